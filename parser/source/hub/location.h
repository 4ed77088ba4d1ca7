// Where a file on the Hugging Face Hub is: its URI.
//
//   hf://[models/|datasets/|spaces/]ID[@REVISION][/PATH]
//
// ID is "org/name". Old models have no organisation: ID is then "name", either as all of the URI
// ("hf://gpt2") or before a revision ("hf://gpt2@main/config.json"). Of "hf://a/b/c", therefore,
// "a/b" is the ID.
//
// REVISION is a branch, a tag or a commit, percent-encoded: "feature%2Fx". Only refs/pr/NUMBER and
// refs/convert/NAME contain a slash as it is. PATH extends to the end and is not encoded.

#pragma once

#include <cstdint>
#include <string>

#include "parser/io/location.h"

namespace ckptfs::hub {

struct RepositoryId {
  enum class Kind : uint8_t { kModel, kDataset, kSpace };

  Kind kind = Kind::kModel;
  std::string name;      // "org/name" or "name": letters, digits, '-', '_' and '.'.
  std::string revision;  // Decoded; empty: "main".

  // Returns "hf://datasets/org/name@revision", in which the revision is encoded.
  std::string Uri() const;

  // Returns the path of its interface: "/api/datasets/org/name".
  std::string ApiPath() const;

  // Returns the path of its page: "/datasets/org/name", of a model "/org/name".
  std::string PagePath() const;

  // Returns the name of its folder in the local cache: "datasets--org--name".
  std::string CacheName() const;

  std::string revision_or_main() const { return revision.empty() ? "main" : revision; }
};

struct FileId {
  RepositoryId repository;
  std::string path;  // Of plain names; empty or ends with '/': a folder.

  bool is_folder() const { return path.empty() || path.ends_with('/'); }
};

// Parses "hf://org/name@revision/path". Throws Error(EINVAL).
FileId ParseUri(const Location& uri);

// Whether `text` is the id of a commit: 40 hexadecimal digits in lower case.
bool IsCommit(std::string_view text);

// Whether all components of `path`, which must not end with '/', are plain names.
bool IsPlainPath(std::string_view path);

}  // namespace ckptfs::hub
