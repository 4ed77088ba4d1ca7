// A plain pickle of pickle.dump (detectron2's .pkl), which may contain arrays of NumPy, and tensors
// whose storages are nested files of torch.save. A file may contain several pickles.

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "parser/base/budget.h"
#include "parser/base/error.h"
#include "parser/codec/pickle/lexer.h"
#include "parser/format.h"
#include "parser/format/torch/numpy.h"
#include "parser/format/torch/reader.h"

namespace ckptfs {
namespace {

// Whether `text` begins with GLOBAL: the opcode and two lines with names.
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

// Protocols 2 to 5 begin with PROTO. Older ones have no mark: a dict, a list, a tuple or an object
// begins with one of these opcodes, and STOP is the last byte of a file.
bool MatchesPickle(const Probe& probe) {
  constexpr std::string_view kContainers = "(}])";
  if (probe.head.size() < 2) return false;
  const std::string_view head(reinterpret_cast<const char*>(probe.head.data()), probe.head.size());
  const auto protocol = static_cast<uint8_t>(head[1]);
  if (head[0] == '\x80') return protocol >= 2 && protocol <= 5;
  return (kContainers.find(head[0]) != std::string_view::npos || BeginsWithGlobal(head)) &&
         !probe.tail.empty() && probe.tail.back() == std::byte{'.'};
}

Record RecordOf(const Extent& data) { return {.data = data, .member = "", .is_in_file = true}; }

void RecordTrailingBytes(uint64_t length, Checkpoint& checkpoint) {
  if (length == 0) return;
  checkpoint.annotations.emplace_back("trailing_bytes", std::to_string(length));
  checkpoint.warnings.push_back(
      fmt::format("{} bytes follow the pickle and are ignored: they are not a pickle", length));
}

// Reads consecutive pickles of pickle.dump or joblib.dump as a list.
Checkpoint ReadPickles(const Extent& data, std::byte mark, torch::Reading& reading) {
  Checkpoint all;
  all.root.python_type = "list";
  reading.is_part = true;
  uint64_t offset = 0;
  while (true) {
    uint64_t length = 0;
    const std::string number = std::to_string(all.root.members.size());
    try {
      Checkpoint one = torch::ReadPlainPickle(
          RecordOf({data.source, data.offset + offset, data.length - offset}), reading, &length);
      reading.budget.Charge(2 * sizeof(Member) + sizeof(Group));
      std::ranges::move(one.warnings, std::back_inserter(all.warnings));
      all.root.members.push_back(
          {{number, Key::Kind::kNumber}, std::move(one.root.members.front().content)});
    } catch (const Error& e) {
      if (IsFatal(e) || all.root.members.empty()) throw;
      all.warnings.push_back(
          fmt::format("pickle {} at byte {}: {}: ignored", number, offset, e.what()));
      return all;
    }
    offset += length;
    const Extent rest = {data.source, data.offset + offset, data.length - offset};
    if (!pickle::IsNextPickle(rest, mark)) break;
  }
  RecordTrailingBytes(data.length - offset, all);
  return all;
}

Checkpoint ReadAll(const Extent& data, torch::Reading& reading) {
  std::byte mark = {};
  data.source->ReadAt(data.offset, {&mark, 1});
  const auto found = pickle::LengthUnless(data, torch::kJoblibArray, reading.budget);
  uint64_t length = found.value_or(0);
  Checkpoint checkpoint;
  if (!found) checkpoint = torch::ReadJoblib(RecordOf(data), reading, length);
  const Extent rest = {data.source, data.offset + length, data.length - length};
  if (pickle::IsNextPickle(rest, mark)) return ReadPickles(data, mark, reading);
  if (found) {
    checkpoint = torch::ReadWholePickle(RecordOf({data.source, data.offset, length}), reading);
  }
  RecordTrailingBytes(rest.length, checkpoint);
  return checkpoint;
}

Checkpoint ParsePickle(const Source& source, const ReadOptions& options) {
  Budget& budget = *options.budget;
  torch::Reading reading(budget, source, options);
  Checkpoint checkpoint = ReadAll({source.file, 0, source.file->size()}, reading);
  reading.Report(checkpoint);
  return checkpoint;
}

}  // namespace

extern const Format pickle_format{.name = "pickle", .matches = MatchesPickle, .parse = ParsePickle};

}  // namespace ckptfs
