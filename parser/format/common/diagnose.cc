// Failed downloads leave a login page, a Git LFS pointer, an archive of the checkpoint, or an
// incomplete file. Their first bytes identify all of these, and also the unsupported formats of
// checkpoints. The first matching row counts.

#include "parser/format/common/diagnose.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace ckptfs {
namespace {

using std::string_view_literals::operator""sv;

struct Mark {
  size_t offset;  // In bytes.
  std::string_view bytes;
  std::string_view sentence;
  bool is_json = false;
};

constexpr std::string_view kHtml =
    "it is an HTML page, perhaps an error message that was downloaded in place of the file";
constexpr std::string_view kZip =
    "it is a zip archive that torch.save did not write, which is not supported";

constexpr std::string_view kZlib =
    "it is compressed by zlib, perhaps by joblib.dump(compress=...): load it and dump it without "
    "compress";

constexpr Mark kMarks[] = {
    {0, "PYTORCH1"sv,
     "it was written by a preview of torch 1.0, whose format no release of torch reads"},
    {257, "ustar"sv, "it is a tar archive whose first header is corrupt"},

    {0, "\x89HDF\r\n\x1a\n"sv, "it is an HDF5 file (as of Keras), which is not supported"},
    {0, "PK\3\4"sv, kZip},
    {0, "PK\5\6"sv, "it is an empty zip archive"},

    {0, "version https://git-lfs.github.com/spec/"sv,
     "it is a Git LFS pointer file: fetch the real file with git lfs pull"},
    {0, "<!DOCTYPE html"sv, kHtml},
    {0, "<!doctype html"sv, kHtml},
    {0, "<html"sv, kHtml},
    {0, "<HTML"sv, kHtml},
    {0, "<?xml"sv,
     "it is an XML document, perhaps an error message that was downloaded in place of the file"},
    {0, "{"sv, "it is text that looks like JSON", true},

    {0, "\x1f\x8b"sv, "it is compressed by gzip in a way that is not supported"},
    {0, "BZh"sv, "it is compressed by bzip2: unpack it first"},
    {0,
     "\xfd"
     "7zXZ\0"sv,
     "it is compressed by xz: unpack it first"},
    {0, "\x78\x01"sv, kZlib},
    {0, "\x78\x5e"sv, kZlib},
    {0, "\x78\x9c"sv, kZlib},
    {0, "\x78\xda"sv, kZlib},
    {0, "\x5d\0\0"sv, "it is compressed by lzma: unpack it first"},
    {0, "\x28\xb5\x2f\xfd"sv, "it is compressed by zstd: unpack it first"},
    {0, "\x04\x22\x4d\x18"sv, "it is compressed by lz4: unpack it first"},
    {0, "7z\xbc\xaf\x27\x1c"sv, "it is a 7-Zip archive: unpack it first"},
    {0, "Rar!\x1a\7"sv, "it is a RAR archive: unpack it first"},
    {0, "\x89PNG\r\n\x1a\n"sv, "it is a PNG image"},
    {0, "\xff\xd8\xff"sv, "it is a JPEG image"},
    {0, "GIF8"sv, "it is a GIF image"},
    {0, "%PDF-"sv, "it is a PDF document"},
    {0,
     "\x7f"
     "ELF"sv,
     "it is a program (ELF)"},
    {0, "SQLite format 3\0"sv, "it is an SQLite database"},
};

bool IsAt(const Probe& probe, size_t offset, std::string_view bytes) {
  return probe.head.size() >= offset && probe.head.size() - offset >= bytes.size() &&
         std::memcmp(probe.head.data() + offset, bytes.data(), bytes.size()) == 0;
}

bool IsZero(const Probe& probe) {
  return std::ranges::all_of(probe.head, [](std::byte b) { return b == std::byte{}; });
}

}  // namespace

Diagnosis DiagnoseUnknownFile(const Probe& probe) {
  if (probe.size == 0) return {"it is empty"};
  for (const Mark& mark : kMarks) {
    if (IsAt(probe, mark.offset, mark.bytes)) return {mark.sentence, mark.is_json};
  }
  if (IsZero(probe)) return {"it begins with zeros only: perhaps it was not copied to the end"};
  return {};
}

}  // namespace ckptfs
