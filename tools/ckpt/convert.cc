#include "tools/ckpt/commands.h"

#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

#include "parser/base/error.h"
#include "parser/base/text.h"
#include "tools/ckpt/cast.h"
#include "tools/ckpt/dequantize.h"
#include "tools/ckpt/entries.h"
#include "tools/ckpt/key_map.h"
#include "tools/ckpt/output_file.h"
#include "tools/ckpt/parallel.h"
#include "tools/ckpt/progress.h"
#include "tools/ckpt/target.h"

namespace ckptfs::ckpt {
namespace {

constexpr uint64_t kCopiedAtOnce = uint64_t{4} << 20U;  // Bytes that a thread copies at once.

enum class Target : uint8_t { kSafetensors, kNpz, kNpy, kGguf, kTensorizer, kTensorDict };

std::optional<Target> TargetNamed(std::string_view name) {
  if (name == "safetensors") return Target::kSafetensors;
  if (name == "npz") return Target::kNpz;
  if (name == "npy") return Target::kNpy;
  if (name == "gguf") return Target::kGguf;
  if (name == "tensors") return Target::kTensorizer;
  if (name == "tensordict") return Target::kTensorDict;
  return {};
}

Target TargetOf(const ConvertOptions& options) {
  const std::string suffix = std::filesystem::path(options.output).extension().string();
  const std::string name = !options.target.empty() ? options.target
                           : suffix.empty()        ? ""
                                                   : suffix.substr(1);
  const auto target = TargetNamed(name);
  if (!target)
    Fail(EINVAL, "unknown format {}; --to takes safetensors, npz, npy, gguf, tensors or tensordict",
         Quoted(name));
  if (!options.shard.empty() && *target != Target::kSafetensors) {
    Fail(EINVAL, "--shard is for safetensors only");
  }
  return *target;
}

// Parses a number of bytes with a unit: "5GB", "500MB", "2GiB". Returns 0 for an empty text.
uint64_t BytesOf(std::string_view text) {
  if (text.empty()) return 0;
  constexpr std::pair<std::string_view, uint64_t> kUnits[] = {
      {"KiB", uint64_t{1} << 10U},
      {"MiB", uint64_t{1} << 20U},
      {"GiB", uint64_t{1} << 30U},
      {"KB", 1'000},
      {"MB", 1'000'000},
      {"GB", 1'000'000'000},
      {"", 1},
  };
  for (const auto& [suffix, factor] : kUnits) {
    if (!text.ends_with(suffix)) continue;
    const auto number = ParseNumber<uint64_t>(text.substr(0, text.size() - suffix.size()), 10);
    uint64_t bytes = 0;
    if (!number || *number == 0 || __builtin_mul_overflow(*number, factor, &bytes)) break;
    return bytes;
  }
  Fail(EINVAL, "--shard: {} is no number of bytes, such as 5GB", Quoted(text));
}

// Quantized types are decoded first.
Tensor CastTo(const Tensor& tensor, Dtype dtype) {
  Tensor numbers = Dequantized(tensor);
  if (numbers.dtype != Dtype::kOpaque) numbers.foreign_dtype.clear();
  return Cast(std::move(numbers), dtype);
}

// Returns what is to be written: a checkpoint whose root has the tensors with their whole keys.
Checkpoint Selected(const Model& model, const ConvertOptions& options) {
  const KeyMap map(options.map);
  std::optional<Dtype> dtype;
  if (!options.dtype.empty()) {
    dtype = CastTypeNamed(options.dtype);
    if (!dtype) {
      Fail(EINVAL, "--dtype: unknown type {}; it takes bfloat16, float16, float32 or float64",
           Quoted(options.dtype));
    }
  }
  Checkpoint selected;
  bool has_tensor = false;
  for (const Entry& entry : EntriesOf(model.checkpoint())) {
    if (!Matches(entry.key, options.pattern)) continue;
    Key key{.text = map(entry.key), .kind = Key::Kind::kWhole};
    if (const auto* const tensor = std::get_if<Tensor>(entry.content)) {
      CheckReadable(*tensor, entry.key);
      has_tensor = true;
      selected.root.members.push_back({std::move(key), dtype ? CastTo(*tensor, *dtype) : *tensor});
    } else if (const auto* const value = std::get_if<Value>(entry.content)) {
      selected.root.members.push_back({std::move(key), *value});
    }
  }
  if (!has_tensor && !options.pattern.empty()) {
    Fail(ENOENT, "{}: no tensor matches {}", model.name(), Quoted(options.pattern));
  }
  return selected;
}

bool IsFolder(Target target) { return target == Target::kNpy || target == Target::kTensorDict; }

// Throws Error(EEXIST) if the folder `path` has what no conversion to `target` has written: it
// would be deleted with the folder.
void CheckReplaced(const std::string& path, Target target) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (!fs::is_directory(path, error)) return;
  bool is_ours = fs::is_empty(path, error) || target == Target::kNpy ||
                 fs::exists(fs::path(path) / "meta.json", error);
  if (target == Target::kNpy) {
    for (fs::directory_iterator entry(path, error), end; entry != end; entry.increment(error)) {
      is_ours &= entry->path().string().ends_with(".npy");
    }
  }
  if (error) Fail(error.value(), "{}: {}", path, ErrnoText(error.value()));
  if (is_ours) return;
  Fail(EEXIST, "{}: folder with other files than -f replaces; remove it first", path);
}

std::vector<PlannedFile> Plan(Checkpoint& checkpoint, Target target, const std::string& path,
                              uint64_t shard) {
  switch (target) {
    case Target::kSafetensors:
      return PlanSafetensors(checkpoint, path, shard);
    case Target::kNpz:
      return PlanNpz(checkpoint, path);
    case Target::kGguf:
      return PlanGguf(checkpoint, path);
    case Target::kTensorizer:
      return PlanTensorizer(checkpoint, path);
    case Target::kTensorDict:
      return PlanTensorDict(checkpoint, path);
    case Target::kNpy:
      break;
  }
  return PlanNpy(checkpoint, path);
}

// A part of a segment that one thread copies.
struct Chunk {
  size_t segment = 0;
  uint64_t begin = 0;  // In the segment.
  uint64_t length = 0;
  uint64_t crc = 0;
};

std::vector<Chunk> ChunksOf(std::span<const Segment> segments) {
  std::vector<Chunk> chunks;
  for (size_t i = 0; i < segments.size(); ++i) {
    const uint64_t size = segments[i].source->size();
    for (uint64_t begin = 0; begin < size; begin += kCopiedAtOnce) {
      chunks.push_back({.segment = i,
                        .begin = begin,
                        .length = std::min(kCopiedAtOnce, size - begin),
                        .crc = 0});
    }
  }
  return chunks;
}

// Calls work(chunk, bytes) for all chunks of `segments` with what they consist of. Throws the first
// Error.
template <typename Work>
void ForChunks(std::span<const Segment> segments, std::vector<Chunk>& chunks, Progress& progress,
               const Work& work) {
  InParallel(chunks.size(), [&](size_t i) {
    CancelOnSignal::Check();
    Chunk& chunk = chunks[i];
    const auto buffer = std::make_unique_for_overwrite<std::byte[]>(chunk.length);
    const std::span bytes(buffer.get(), chunk.length);
    segments[chunk.segment].source->ReadAt(chunk.begin, bytes);
    work(chunk, bytes);
    progress.Add(chunk.length);
  });
}

// Writes `segments`, and sets the CRC32 of each if `has_crc`.
void WriteSegments(std::span<Segment> segments, const OutputFile& out, Progress& progress,
                   bool has_crc) {
  std::vector<Chunk> chunks = ChunksOf(segments);
  ForChunks(segments, chunks, progress, [&](Chunk& chunk, std::span<const std::byte> bytes) {
    out.Write(segments[chunk.segment].offset + chunk.begin, bytes);
    if (!has_crc) return;
    chunk.crc = ::crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size());
  });
  for (const Chunk& chunk : chunks) {
    uint32_t& crc = segments[chunk.segment].crc;
    crc =
        static_cast<uint32_t>(::crc32_combine(crc, chunk.crc, static_cast<z_off_t>(chunk.length)));
  }
}

void CheckSegments(std::span<const Segment> segments, const OutputFile& out, Progress& progress) {
  const Fd file = out.Reopen();
  std::vector<Chunk> chunks = ChunksOf(segments);
  ForChunks(segments, chunks, progress, [&](const Chunk& chunk, std::span<const std::byte> bytes) {
    const auto buffer = std::make_unique_for_overwrite<std::byte[]>(chunk.length);
    const std::span written(buffer.get(), chunk.length);
    const uint64_t offset = segments[chunk.segment].offset + chunk.begin;
    const ReadResult result = ReadFully(file.number(), offset, written);
    if (result.error) throw WithContext(out.path().string(), *result.error);
    if (result.count == written.size() && std::ranges::equal(written, bytes)) return;
    Fail(EIO, "{}: the disk does not return what was written near byte {}", out.path().string(),
         offset);
  });
}

uint64_t SizeOf(std::span<const PlannedFile> files) {
  uint64_t size = 0;
  for (const PlannedFile& file : files) {
    for (const Segment& segment : file.segments) size += segment.source->size();
  }
  return size;
}

uint64_t EndOf(std::span<const Segment> segments) {
  uint64_t end = 0;
  for (const Segment& each : segments) end = std::max(end, each.offset + each.source->size());
  return end;
}

OutputFile WriteFile(PlannedFile& plan, Progress& progress, bool is_verified) {
  OutputFile out(plan.path);
  out.Resize(EndOf(plan.segments));
  WriteSegments(plan.segments, out, progress, plan.finish != nullptr);
  std::vector<Segment> rest;
  if (plan.finish) {
    rest = plan.finish(plan.segments);
    out.Resize(EndOf(rest));
    WriteSegments(rest, out, progress, false);
  }
  if (!is_verified) return out;
  out.Sync();
  CheckSegments(plan.segments, out, progress);
  CheckSegments(rest, out, progress);
  return out;
}

}  // namespace

void Convert(const Model& model, const ConvertOptions& options) {
  const Target target = TargetOf(options);
  const uint64_t shard = BytesOf(options.shard);
  Checkpoint checkpoint = Selected(model, options);
  const CancelOnSignal cancel_on_signal;
  std::optional<OutputFolder> folder;
  if (IsFolder(target)) {
    if (options.existing == Existing::kKeep) {
      CheckOutput(options.output, Existing::kKeep);
    } else {
      CheckReplaced(options.output, target);
    }
    folder.emplace(options.output);
  }
  const std::string& path = folder ? folder->temporary() : options.output;
  std::vector<PlannedFile> plans = Plan(checkpoint, target, path, shard);
  if (!folder) {
    for (const PlannedFile& plan : plans) CheckOutput(plan.path, options.existing);
  }
  Progress progress(SizeOf(plans) * (options.is_verified ? 2 : 1));
  std::vector<OutputFile> files;
  for (PlannedFile& plan : plans) {
    if (folder) OutputFolder::AddFolderOf(plan.path);
    files.push_back(WriteFile(plan, progress, options.is_verified));
    if (!folder) continue;
    files.back().Commit(Existing::kKeep);
    for (const std::string& link : plan.links) OutputFolder::AddLink(plan.path, link);
    files.pop_back();
  }
  // The index of shards comes last, and an old one goes first: it never names shards of two
  // conversions.
  if (files.size() > 1 && options.existing == Existing::kReplace) files.back().RemoveExisting();
  for (OutputFile& file : files) file.Commit(options.existing);
  if (folder) folder->Commit(options.existing);
}

}  // namespace ckptfs::ckpt
