// What is in a folder of a bucket.
//
// S3 has no folders: there are keys, and a listing of those with one prefix that have no further
// '/'. What has one is told once, up to it: a "common prefix". It comes in pages, in XML, as
// ListObjectsV2 defines it. The keys in it are percent-encoded, for a key may have characters that
// XML has not.
//
// https://docs.aws.amazon.com/AmazonS3/latest/API/API_ListObjectsV2.html

#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "parser/source/s3/sigv4.h"

namespace ckptfs::s3 {

// Names of files and of folders, without the prefix; in the order of their bytes, each once. Names
// that no file system has are not among them, nor is what stands for the folder itself.
struct Listing {
  std::vector<std::string> files;
  std::vector<std::string> folders;
};

// One page as the server sends it: whole keys, decoded.
struct Page {
  std::vector<std::string> keys;
  std::vector<std::string> prefixes;  // Each ends with '/'.
  std::string next;                   // What asks for the page after it; empty if it is the last.
};

// Throws Error(EBADMSG) if `xml` is no listing.
Page ReadPage(const std::string& xml);

// Lists what is right below `prefix`, which is empty or ends with '/'. `ask` is called with the
// query for one page after another and returns the XML. Throws Error: what `ask` throws, EBADMSG if
// an answer is no listing or not the one that was asked for, EFBIG if there are more than
// kMostFiles or their names take more than 32 MiB.
Listing List(std::string_view prefix, const std::function<std::string(const Query&)>& ask);

}  // namespace ckptfs::s3
