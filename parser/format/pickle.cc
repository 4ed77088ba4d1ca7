// A pickle by itself: what pickle.dump writes (detectron2's .pkl), with the arrays of NumPy inside,
// and with tensors whose storages are whole files of torch.save inside.

#include <algorithm>
#include <string_view>
#include <vector>

#include "parser/codec/pickle/length.h"
#include "parser/format.h"
#include "parser/format/torch/pickled.h"
#include "parser/format/torch/saved.h"

namespace ckptfs {
namespace torch {

Checkpoint ReadPlainPickle(const Extent& data, Reading& reading) {
  const uint64_t length = pickle::LengthOf(data);
  reading.budget.Charge(length);
  std::vector<std::byte> bytes(length);
  data.source->ReadAt(data.offset, bytes);
  Storages storages(reading.budget, reading.sidecar, [](std::string_view) {
    return Record{.data = {},
                  .member = "",
                  .is_in_file = false,
                  .error = "a pickle by itself has no storages"};
  });
  Context context{.reading = reading,
                  .storages = storages,
                  .pickle = bytes,
                  .pickle_record = {.data = {data.source, data.offset, length},
                                    .member = "",
                                    .is_in_file = true,
                                    .error = ""}};
  Checkpoint checkpoint;
  AddPickle("", context, checkpoint);
  return checkpoint;
}

}  // namespace torch

namespace {

// Whether `text` begins with GLOBAL: the opcode and two lines that are names.
bool BeginsWithGlobal(std::string_view text) {
  const auto is_name = [](std::string_view line) {
    return !line.empty() && std::ranges::all_of(line, [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
             c == '_' || c == '.';
    });
  };
  const size_t first = text.find('\n');
  if (!text.starts_with('c') || first == std::string_view::npos) return false;
  const size_t second = text.find('\n', first + 1);
  return second != std::string_view::npos && is_name(text.substr(1, first - 1)) &&
         is_name(text.substr(first + 1, second - first - 1));
}

// Protocols 2 to 5 begin with PROTO. The older ones have no mark; what they write for a dict, a
// list, a tuple or an object begins with one of these, and STOP is the last byte of a file.
bool Matches(const Probe& probe) {
  constexpr std::string_view kContainers = "(}])";
  if (probe.head.size() < 2) return false;
  const std::string_view head(reinterpret_cast<const char*>(probe.head.data()), probe.head.size());
  const auto protocol = static_cast<uint8_t>(head[1]);
  if (head[0] == '\x80') return protocol >= 2 && protocol <= 5;
  return (kContainers.find(head[0]) != std::string_view::npos || BeginsWithGlobal(head)) &&
         probe.tail.back() == std::byte{'.'};
}

Checkpoint Parse(const Source& source, const ReadOptions& options) {
  Budget budget = Budget::ForFile(source.file->size());
  torch::Reading reading(budget, source, options);
  Checkpoint checkpoint = torch::ReadPlainPickle({source.file, 0, source.file->size()}, reading);
  reading.Tell(checkpoint);
  return checkpoint;
}

}  // namespace

extern const Format pickle_format{.name = "pickle", .matches = Matches, .parse = Parse};

}  // namespace ckptfs
