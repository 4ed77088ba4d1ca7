// Failed downloads leave a login page, a Git LFS pointer, an archive of the checkpoint, or an
// incomplete file. Their first bytes identify all of these, and also the unsupported formats of
// checkpoints. The first matching row counts.

#include "parser/format/common/diagnose.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

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

constexpr std::string_view kGgml =
    "it is a model in the ggml format before gguf: convert it to gguf first";

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

    {512, "\x89HDF\r\n\x1a\n"sv, "it is an HDF5 file (as of MATLAB), which is not supported"},
    {0, "MATLAB 5.0 MAT-file"sv, "it is a MATLAB file, which is not supported"},
    {0, "lmgg"sv, kGgml},
    {0, "fmgg"sv, kGgml},
    {0, "tjgg"sv, kGgml},
    {0, "algg"sv, "it is an adapter in the ggml format before gguf: convert it to gguf first"},
    {4, "TFL3"sv, "it is a TensorFlow Lite model, which is not supported"},
    {4, "ORTM"sv, "it is an ONNX Runtime model, which is not supported"},
    {0, "PAR1"sv, "it is a Parquet file, which is not supported"},
    {0, "ARROW1"sv, "it is an Arrow file, which is not supported"},
    {0, "FEA1"sv, "it is a Feather file, which is not supported"},
    {0, "CBM1"sv, "it is a CatBoost model, which is not supported"},
    {0, "\x0c\xdb\x3a\x2a"sv,
     "it is part of an OCDBT database (as of Orbax), which is not supported"},
    {0, "\x12\1\0\0\0\0\0\0"sv, "it is an MXNet file, which is not supported"},
};

// The last bytes of the index of a TensorFlow checkpoint, which is a LevelDB table.
constexpr std::string_view kTableEnd = "\x57\xfb\x80\x8b\x24\x75\x47\xdb"sv;

bool IsAt(const Probe& probe, size_t offset, std::string_view bytes) {
  return probe.head.size() >= offset && probe.head.size() - offset >= bytes.size() &&
         std::memcmp(probe.head.data() + offset, bytes.data(), bytes.size()) == 0;
}

bool IsTable(const Probe& probe) {
  const size_t size = kTableEnd.size();
  return probe.tail.size() >= size &&
         std::memcmp(probe.tail.last(size).data(), kTableEnd.data(), size) == 0;
}

// Whether a message of Protocol Buffers begins with a version, and continues with a field that has
// a length: the first two fields of an ONNX model, a Core ML model and a TensorFlow SavedModel.
bool IsProtobufModel(const Probe& probe) {
  if (probe.head.size() < 4) return false;
  const auto at = [&](size_t i) { return std::to_integer<unsigned>(probe.head[i]); };
  constexpr unsigned kMostFields = 15;
  return at(0) == 0x08 && at(1) >= 1 && at(1) < 0x20 && (at(2) & 7) == 2 && at(2) >> 3 >= 2 &&
         at(2) >> 3 <= kMostFields;
}

// Whether the file begins with a map whose first key is printable text, as a state of Flax does.
bool IsMessagePack(const Probe& probe) {
  const auto at = [&](size_t i) -> unsigned {
    return i < probe.head.size() ? std::to_integer<unsigned>(probe.head[i]) : 0;
  };
  const size_t key = at(0) == 0xde ? 3 : at(0) == 0xdf ? 5 : 1;
  if (key == 1 && (at(0) < 0x81 || at(0) > 0x8f)) return false;
  const bool is_short = at(key) > 0xa0 && at(key) <= 0xbf;
  if (!is_short && at(key) != 0xd9) return false;
  const size_t first = is_short ? key + 1 : key + 2;
  const size_t length = is_short ? at(key) - 0xa0 : at(key + 1);
  if (length == 0 || first + length >= probe.head.size()) return false;
  return std::ranges::all_of(probe.head.subspan(first, length), [](std::byte b) {
    return b >= std::byte{0x20} && b < std::byte{0x7f};
  });
}

bool IsZero(const Probe& probe) {
  return std::ranges::all_of(probe.head, [](std::byte b) { return b == std::byte{}; });
}

// Types without a mark of their own, in the order of their tests.
struct Guess {
  bool (*matches)(const Probe& probe);
  std::string_view sentence;
};

constexpr Guess kGuesses[] = {
    {IsTable, "it is the index of a TensorFlow checkpoint, which is not supported"},
    {IsProtobufModel,
     "it looks like Protocol Buffers (ONNX, Core ML, TensorFlow), which is not supported"},
    {IsMessagePack, "it looks like MessagePack (as of Flax), which is not supported"},
    {IsZero, "it begins with zeros only: perhaps it was not copied to the end"},
};

}  // namespace

Diagnosis DiagnoseUnknownFile(const Probe& probe) {
  if (probe.size == 0) return {"it is empty"};
  for (const Mark& mark : kMarks) {
    if (IsAt(probe, mark.offset, mark.bytes)) return {mark.sentence, mark.is_json};
  }
  for (const Guess& guess : kGuesses) {
    if (guess.matches(probe)) return {guess.sentence};
  }
  return {};
}

std::string_view DiagnoseUnknownFolder(std::span<const std::string> files) {
  constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"manifest.ocdbt", "it is an Orbax checkpoint"},
      {"_METADATA", "it is an Orbax checkpoint"},
      {"zarr.json", "it is a Zarr array"},
      {".zarray", "it is a Zarr array"},
      {".zgroup", "it is a Zarr array"},
      {"saved_model.pb", "it is a TensorFlow SavedModel"},
      {"Manifest.json", "it looks like a Core ML package"},
  };
  for (const auto& [name, what] : kNames) {
    if (std::ranges::find(files, name) != files.end()) return what;
  }
  const bool is_tensorflow = std::ranges::any_of(files, [](std::string_view name) {
    return name.find(".data-00000-of-") != std::string_view::npos;
  });
  return is_tensorflow ? "it is a TensorFlow checkpoint" : "";
}

}  // namespace ckptfs
