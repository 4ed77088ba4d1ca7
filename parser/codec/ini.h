// INI files, as those of the AWS tools and of s3cmd.
//
//   [profile training]
//   region = eu-central-1
//   s3 =
//     endpoint_url = https://objects.example
//
// Names are compared without case. The value follows '=' or ':'. A line that is indented more than
// its setting continues the value.
//
// There is no standard. This is the dialect of Python's configparser, which these tools use: a
// comment is a line of its own, values are not quoted.

#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace ckptfs::ini {

using Section = std::map<std::string, std::string, std::less<>>;  // Names are in lower case.
using Sections = std::map<std::string, Section, std::less<>>;

// Parses a text. A value of several lines has line feeds between them. Sections of one name are
// merged, of settings of one name the last one counts. Throws Error(EBADMSG) with the number of the
// line, but without its text, which may be secret.
Sections Read(std::string_view text);

// Reads the lines of a value that is a list of settings itself.
Section ReadValue(std::string_view value);

// Returns the setting `name`; empty if it is missing.
std::string_view Find(const Section& section, std::string_view name);

// Splits a command line into words, without a shell.
//
// `credential_process = "/opt/my tools/sign" --role 'a b'` is split as by Python's shlex, which the
// AWS tools use: blanks separate words, quotes and backslashes prevent that. Nothing is expanded:
// "$HOME" stays as it is.
//
// Throws Error(EINVAL) for an unclosed quotation mark or a trailing backslash.
std::vector<std::string> SplitWords(std::string_view line);

}  // namespace ckptfs::ini
