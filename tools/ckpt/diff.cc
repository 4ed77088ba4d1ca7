#include "tools/ckpt/commands.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "parser/base/error.h"
#include "parser/base/json.h"
#include "parser/base/mutex.h"
#include "tools/ckpt/comparison.h"
#include "tools/ckpt/dequantize.h"
#include "tools/ckpt/entries.h"
#include "tools/ckpt/key_map.h"
#include "tools/ckpt/parallel.h"
#include "tools/ckpt/progress.h"
#include "tools/ckpt/statistics.h"

namespace ckptfs::ckpt {
namespace {

enum class Change : uint8_t { kNone, kRemoved, kAdded, kDtype, kShape, kValues, kError };

std::string_view NameOf(Change change) {
  switch (change) {
    case Change::kNone:
      return "same";
    case Change::kRemoved:
      return "only in the first";
    case Change::kAdded:
      return "only in the second";
    case Change::kDtype:
      return "dtype";
    case Change::kShape:
      return "shape";
    case Change::kValues:
      return "values";
    case Change::kError:
      return "error";
  }
  return "";
}

// A key of either checkpoint.
struct Pair {
  std::string key;
  const Tensor* a = nullptr;
  const Tensor* b = nullptr;
  const Tensor* stored_a = nullptr;  // Before Dequantize.
  const Tensor* stored_b = nullptr;
  Change change = Change::kNone;
  std::optional<Comparison> comparison;  // Set if the elements were compared as numbers.
  std::optional<Error> error;
};

// The tensors of a checkpoint by their renamed keys. Throws Error(EINVAL) if two have the same.
std::vector<TensorEntry> RenamedTensors(const Model& model, const DiffOptions& options,
                                        const KeyMap& map) {
  const std::vector<Entry> entries = EntriesOf(model.checkpoint());
  std::vector<TensorEntry> tensors = TensorsOf(entries);
  for (TensorEntry& tensor : tensors) tensor.key = map(tensor.key);
  std::erase_if(tensors, [&](const TensorEntry& t) { return !Matches(t.key, options.pattern); });
  return tensors;
}

// Pairs tensors with the same key; the n-th of several with its n-th.
std::vector<Pair> PairsOf(std::span<const TensorEntry> a, std::span<const TensorEntry> b) {
  std::unordered_map<std::string_view, std::vector<size_t>> theirs;
  for (size_t i = b.size(); i-- > 0;) theirs[b[i].key].push_back(i);
  std::vector<Pair> pairs;
  std::vector<bool> is_paired(b.size());
  for (const TensorEntry& entry : a) {
    Pair& pair = pairs.emplace_back();
    pair.key = entry.key;
    pair.a = entry.tensor;
    pair.stored_a = entry.stored;
    const auto found = theirs.find(entry.key);
    if (found == theirs.end() || found->second.empty()) continue;
    const size_t i = found->second.back();
    found->second.pop_back();
    is_paired[i] = true;
    pair.b = b[i].tensor;
    pair.stored_b = b[i].stored;
  }
  for (size_t i = 0; i < b.size(); ++i) {
    if (!is_paired[i])
      pairs.push_back({.key = b[i].key, .b = b[i].tensor, .stored_b = b[i].stored});
  }
  return pairs;
}

// Compares the headers, and returns whether the bytes have to be read.
bool CompareHeaders(Pair& pair) {
  if (pair.a == nullptr || pair.b == nullptr) {
    pair.change = pair.a == nullptr ? Change::kAdded : Change::kRemoved;
    return false;
  }
  const auto& error = pair.a->error ? pair.a->error : pair.b->error;
  if (error) {
    pair.change = Change::kError;
    pair.error = error;
    return false;
  }
  if (pair.a->shape != pair.b->shape) {
    pair.change = Change::kShape;
    return false;
  }
  if (DtypeNameOf(*pair.a) != DtypeNameOf(*pair.b)) {
    pair.change = Change::kDtype;
    return HasNumbers(*pair.a) && HasNumbers(*pair.b);
  }
  return pair.a->data.length > 0;
}

// A part of a pair that one thread compares.
struct Part {
  size_t pair = 0;
  uint64_t begin = 0;
  uint64_t end = 0;
  bool is_same = true;
  Comparison comparison;
  std::optional<Error> error;
};

// Splits `count` units of each pair, which count(pair) returns, into parts of `most`, unless there
// were too many.
template <typename Count>
std::vector<Part> PartsOf(std::span<const Pair> pairs, std::span<const size_t> chosen,
                          uint64_t most, const Count& count) {
  std::vector<Part> parts;
  for (const size_t i : chosen) {
    constexpr uint64_t kMostParts = 4096;
    const uint64_t units = count(pairs[i]);
    const uint64_t size = std::max(most, units / kMostParts);
    for (uint64_t begin = 0; begin < units; begin += size) {
      Part& part = parts.emplace_back();
      part.pair = i;
      part.begin = begin;
      part.end = std::min(units, begin + size);
    }
  }
  return parts;
}

template <typename Work>
void RunAll(std::span<Part> parts, const Work& work) {
  InParallel(parts.size(), [&](size_t i) {
    try {
      work(parts[i]);
    } catch (const Error& error) {
      parts[i].error = error;
    }
  });
}

void TakeErrors(std::span<const Part> parts, std::span<Pair> pairs) {
  for (const Part& part : parts) {
    if (!part.error || pairs[part.pair].error) continue;
    pairs[part.pair].change = Change::kError;
    pairs[part.pair].error = part.error;
  }
}

// Compares stored bytes of pairs with the same dtype; returns those that differ.
std::vector<size_t> DifferingOf(std::span<Pair> pairs, std::span<const size_t> chosen,
                                Progress& progress) {
  constexpr uint64_t kMost = uint64_t{16} << 20U;  // Bytes.
  std::vector<Part> parts =
      PartsOf(pairs, chosen, kMost, [](const Pair& pair) { return pair.stored_a->data.length; });
  RunAll(parts, [&](Part& part) {
    const Pair& pair = pairs[part.pair];
    part.is_same = AreSame(*pair.stored_a, *pair.stored_b, part.begin, part.end);
    progress.Add(part.end - part.begin);
  });
  TakeErrors(parts, pairs);
  std::vector<size_t> differing;
  for (const Part& part : parts) {
    const bool is_new = differing.empty() || differing.back() != part.pair;
    if (!part.is_same && is_new && !pairs[part.pair].error) differing.push_back(part.pair);
  }
  return differing;
}

// Compares the elements of the chosen pairs.
void CompareElements(std::span<Pair> pairs, std::span<const size_t> chosen, double tolerance) {
  constexpr uint64_t kMost = uint64_t{4} << 20U;
  std::vector<Part> parts = PartsOf(pairs, chosen, kMost, [](const Pair& pair) {
    return HasNumbers(*pair.a) ? ElementCountOf(*pair.a) : pair.a->data.length;
  });
  RunAll(parts, [&](Part& part) {
    const Pair& pair = pairs[part.pair];
    part.comparison = Compare(*pair.a, *pair.b, part.begin, part.end);
  });
  TakeErrors(parts, pairs);
  for (const Part& part : parts) {
    Pair& pair = pairs[part.pair];
    if (pair.error) continue;
    if (!pair.comparison) pair.comparison.emplace();
    pair.comparison->Add(part.comparison);
  }
  for (const size_t i : chosen) {
    Pair& pair = pairs[i];
    if (!pair.comparison || pair.comparison->differing == 0) continue;
    const bool is_within =
        HasNumbers(*pair.a) && pair.comparison->max_absolute <= tolerance && tolerance > 0;
    if (!is_within && pair.change == Change::kNone) pair.change = Change::kValues;
  }
}

std::string DescriptionOf(const Tensor* tensor) {
  return tensor == nullptr ? "" : DtypeNameOf(*tensor) + " " + ShapeText(tensor->shape);
}

std::string DifferenceJson(double value) {
  return std::isfinite(value) ? fmt::to_string(value) : json::String(fmt::to_string(value));
}

std::string JsonOf(const Pair& pair) {
  const auto header = [](const Tensor* tensor) -> std::string {
    if (tensor == nullptr) return "null";
    return fmt::format(R"({{"dtype":{},"shape":{}}})", json::String(DtypeNameOf(*tensor)),
                       ShapeText(tensor->shape));
  };
  std::vector<std::pair<std::string_view, std::string>> members = {
      {"key", json::String(pair.key)},
      {"change", json::String(NameOf(pair.change))},
      {"first", header(pair.a)},
      {"second", header(pair.b)}};
  if (pair.comparison) {
    const Comparison& result = *pair.comparison;
    members.emplace_back("elements", fmt::to_string(result.count));
    members.emplace_back("differing", fmt::to_string(result.differing));
    const auto or_null = [&](double value) {
      return HasNumbers(*pair.a) ? DifferenceJson(value) : "null";
    };
    members.emplace_back("max_absolute", or_null(result.max_absolute));
    members.emplace_back("max_relative", or_null(result.max_relative));
    members.emplace_back("cosine", or_null(result.Cosine()));
  }
  if (pair.error) members.emplace_back("error", json::String(MessageOf(pair.error)));
  return json::Object(members);
}

std::string NoteOf(const Pair& pair) {
  if (pair.error) return std::string(MessageOf(pair.error));
  if (pair.a == nullptr || pair.b == nullptr) return "";
  for (const Tensor* const tensor : {pair.a, pair.b}) {
    if (!HasNumbers(*tensor)) return NoNumbersText(*tensor);
  }
  return "";
}

std::vector<std::string> CellsOf(const Pair& pair) {
  std::vector<std::string> cells = {pair.key, std::string(NameOf(pair.change)),
                                    DescriptionOf(pair.a), DescriptionOf(pair.b)};
  const bool has_numbers =
      pair.comparison && HasNumbers(*pair.a) && HasNumbers(*pair.b) && !pair.error;
  cells.push_back(pair.comparison
                      ? fmt::format("{} of {}", pair.comparison->differing, pair.comparison->count)
                      : "");
  if (has_numbers) {
    cells.push_back(fmt::format("{:.3g}", pair.comparison->max_absolute));
    cells.push_back(fmt::format("{:.3g}", pair.comparison->max_relative));
    cells.push_back(fmt::format("{:.6f}", pair.comparison->Cosine()));
  } else {
    cells.resize(cells.size() + 3);
  }
  cells.push_back(NoteOf(pair));
  return cells;
}

void PrintPairs(std::span<const Pair> pairs, OutputFormat format) {
  Table table({{"key", Align::kLeft},
               {"change", Align::kLeft},
               {"first", Align::kLeft},
               {"second", Align::kLeft},
               {"differing", Align::kRight},
               {"absolute", Align::kRight},
               {"relative", Align::kRight},
               {"cosine", Align::kRight},
               {"note", Align::kLeft}});
  std::string json = "[";
  size_t count = 0;
  for (const Pair& pair : pairs) {
    if (pair.change == Change::kNone) continue;
    json += (count++ == 0 ? "\n" : ",\n") + JsonOf(pair);
    if (format != OutputFormat::kJson) table.Add(CellsOf(pair));
  }
  if (format == OutputFormat::kJson) return Print(json + "\n]\n");
  if (format == OutputFormat::kCsv) return Print(table.Csv());
  if (count > 0) Print(table.Text(HasColours()));
}

}  // namespace

int Diff(const Model& a, const Model& b, const DiffOptions& options) {
  const KeyMap map(options.map);
  std::vector<TensorEntry> ours = RenamedTensors(a, options, map);
  std::vector<TensorEntry> theirs = RenamedTensors(b, options, map);
  const auto our_numbers = Dequantize(ours);
  const auto their_numbers = Dequantize(theirs);
  if (ours.empty() && theirs.empty() && !options.pattern.empty()) {
    Fail(ENOENT, "no tensor of {} or {} matches {}", a.name(), b.name(), Quoted(options.pattern));
  }
  std::vector<Pair> pairs = PairsOf(ours, theirs);
  std::vector<size_t> same_type, elements;
  uint64_t bytes = 0;
  for (size_t i = 0; i < pairs.size(); ++i) {
    if (!CompareHeaders(pairs[i])) continue;
    const bool is_same_type = pairs[i].change != Change::kDtype &&
                              pairs[i].stored_a->quantizer == pairs[i].stored_b->quantizer;
    (is_same_type ? same_type : elements).push_back(i);
    bytes += pairs[i].stored_a->data.length;
  }
  {
    Progress progress(bytes);
    const std::vector<size_t> differing = DifferingOf(pairs, same_type, progress);
    elements.insert(elements.end(), differing.begin(), differing.end());
    CompareElements(pairs, elements, options.tolerance);
  }
  PrintPairs(pairs, options.format);
  const auto is_error = [](const Pair& pair) { return pair.change == Change::kError; };
  if (std::ranges::any_of(pairs, is_error)) return 2;
  return std::ranges::all_of(pairs, [](const Pair& p) { return p.change == Change::kNone; }) ? 0
                                                                                             : 1;
}

}  // namespace ckptfs::ckpt
