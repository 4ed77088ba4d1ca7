#include "fs/tensordict_index.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>

#include "fs/tensordict_names.h"
#include "parser/base/text.h"

namespace ckptfs {
namespace {

constexpr size_t kBytesPerLine = 64;  // Of a usual record.
constexpr size_t kLinesPerBlock = 64;

// The numbers in places_: kNothing, or the lowest bit is the kind and the rest is the offset of the
// record or the number of the group.
constexpr uint64_t kNothing = 0;
constexpr uint64_t kIsGroup = 1;
uint64_t PlaceOfRecord(uint64_t begin) { return (begin + 1) << 1U; }
uint64_t PlaceOfGroup(uint64_t group) { return group << 1U | kIsGroup; }

// The content of a record; the other pointers are null.
using Flag = uint64_t;
constexpr Flag kIsTable = 1U << 0U;
constexpr Flag kHasName = 1U << 1U;  // Else that of the file is the key and the suffix.
constexpr Flag kHasMember = 1U << 2U;
constexpr Flag kHasOffset = 1U << 3U;
constexpr Flag kHasAnnotations = 1U << 4U;
constexpr Flag kHasError = 1U << 5U;

Flag FlagIf(bool condition, Flag flag) { return condition ? flag : 0; }

// Appends a text escaped as in JSON, without the quotes.
void AppendEscaped(std::string& out, std::string_view text) {
  std::string quoted;
  AppendText(quoted, text);
  out.append(quoted, 1, quoted.size() - 2);
}

bool IsPlain(char c) { return c >= ' ' && c <= '~' && c != '"' && c != '\\'; }

// The output of lines: their text, ...
class Text {
 public:
  explicit Text(std::string& text) : text_(text) {}

  void Raw(std::string_view json) { text_ += json; }
  void Number(uint64_t number) {
    const fmt::format_int digits(number);
    text_.append(digits.data(), digits.size());
  }
  void Escaped(std::string_view text) {
    if (std::ranges::all_of(text, IsPlain)) {
      text_ += text;
    } else {
      AppendEscaped(text_, text);
    }
  }

 private:
  std::string& text_;
};

// ... and nothing but its size.
class Size {
 public:
  void Raw(std::string_view json) { size_ += json.size(); }
  void Number(uint64_t number) { size_ += fmt::format_int(number).size(); }
  void Escaped(std::string_view text) {
    size_ += text.size();
    if (std::ranges::all_of(text, IsPlain)) return;
    std::string escaped;
    AppendEscaped(escaped, text);
    size_ += escaped.size() - text.size();
  }
  void Skip(uint64_t size) { size_ += size; }

  uint64_t size() const { return size_; }

 private:
  uint64_t size_ = 0;
};

// Returns the value of the annotation `name`, or null.
std::string_view ValueOf(const std::vector<Annotation>& annotations, std::string_view name) {
  const auto found = std::ranges::find(annotations, name, &Annotation::first);
  return found == annotations.end() ? "null" : std::string_view(found->second);
}

}  // namespace

struct TensorIndex::Line {
  uint32_t directory = 0;
  uint64_t flags = 0;
  std::string_view key;
  std::string_view file_name;
  Dtype dtype = Dtype::kOpaque;
  std::string_view foreign_dtype;
  std::vector<uint64_t> shape;
  uint64_t bytes = 0;
  std::string_view member;
  uint64_t file_offset = 0;
  std::string_view error;

  // In JSON.
  std::string_view stride = "null";
  std::string_view storage_offset = "null";
  std::string_view file = "null";
  std::string_view others;  // Members, each with a comma before it.

  bool Has(Flag flag) const { return (flags & flag) != 0; }
};

void TensorIndex::Reserve(size_t lines) {
  records_.reserve(lines * kBytesPerLine);
  places_.reserve(lines);
}

uint32_t TensorIndex::AddDirectory(uint32_t parent, std::string_view key,
                                   std::string_view file_name) {
  Directory added = directories_[parent];
  added.parent = parent;
  added.texts = records_.size();
  key = utf8::Truncate(key, kMostText - std::min<size_t>(kMostText, added.key_bytes + size_t{1}));
  AppendText(key);
  const bool is_too_long = added.path_bytes + file_name.size() + 1 > kMostText;
  AppendText(is_too_long ? "" : file_name);
  Size key_size;
  key_size.Escaped(key);
  Size path_size;
  path_size.Escaped(file_name);
  added.key_bytes = static_cast<uint16_t>(added.key_bytes + key.size() + 1);
  added.key_size += static_cast<uint32_t>(key_size.size() + 1);
  added.path_bytes =
      static_cast<uint16_t>(is_too_long ? kMostText + 1 : added.path_bytes + file_name.size() + 1);
  added.path_size += static_cast<uint32_t>(path_size.size() + 1);
  directories_.push_back(added);
  return static_cast<uint32_t>(directories_.size() - 1);
}

size_t TensorIndex::AddGroup(size_t place, size_t members) {
  if (!groups_.empty()) places_[place] = PlaceOfGroup(groups_.size());
  const size_t first = places_.size();
  groups_.emplace_back(first, members + 1);
  places_.resize(first + members + 1, kNothing);
  return first;
}

void TensorIndex::Add(uint32_t directory, size_t place, std::string_view key,
                      std::string_view file_name, const Tensor& tensor) {
  places_[place] = PlaceOfRecord(records_.size());
  std::string others;
  bool has_annotations = false;
  for (const auto& [name, json] : tensor.annotations) {
    if (!IsAboutBytes(name) && name != "stride") continue;
    has_annotations = true;
    if (name == "stride" || name == "storage_offset" || name == "file") continue;
    others.append(",\"").append(name).append("\":").append(json);
  }
  Append({.directory = directory,
          .flags = FlagIf(!tensor.member.empty(), kHasMember) |
                   FlagIf(tensor.is_in_file, kHasOffset) |
                   FlagIf(has_annotations, kHasAnnotations) |
                   FlagIf(tensor.error.has_value(), kHasError),
          .key = key,
          .file_name = file_name,
          .dtype = tensor.dtype,
          .foreign_dtype = tensor.foreign_dtype,
          .shape = tensor.shape,
          .bytes = tensor.data.length,
          .member = tensor.member,
          .file_offset = tensor.file_offset,
          .error = MessageOf(tensor.error),
          .stride = ValueOf(tensor.annotations, "stride"),
          .storage_offset = ValueOf(tensor.annotations, "storage_offset"),
          .file = ValueOf(tensor.annotations, "file"),
          .others = others});
}

void TensorIndex::Add(uint32_t directory, size_t place, std::string_view key,
                      std::string_view file_name, const Table& table) {
  places_[place] = PlaceOfRecord(records_.size());
  const std::string_view file = ValueOf(table.annotations, "file");
  Append({.directory = directory,
          .flags = kIsTable | FlagIf(!table.member.empty(), kHasMember) |
                   FlagIf(table.error.has_value(), kHasError) |
                   FlagIf(file != "null", kHasAnnotations),
          .key = key,
          .file_name = file_name,
          .shape = {},
          .bytes = table.data.length,
          .member = table.member,
          .error = MessageOf(table.error),
          .file = file});
}

void TensorIndex::AppendNumber(uint64_t number) {
  constexpr unsigned kBits = 7;
  constexpr uint64_t kMore = 1U << kBits;
  for (; number >= kMore; number >>= kBits) records_ += static_cast<char>(number | kMore);
  records_ += static_cast<char>(number);
}

void TensorIndex::AppendText(std::string_view text) {
  AppendNumber(text.size());
  records_ += text;
}

uint64_t TensorIndex::ReadNumber(uint64_t& at) const {
  constexpr unsigned kBits = 7;
  constexpr unsigned kMore = 1U << kBits;
  uint64_t number = 0;
  for (unsigned shift = 0;; shift += kBits) {
    const auto byte = static_cast<unsigned char>(records_[at++]);
    number |= static_cast<uint64_t>(byte & (kMore - 1)) << shift;
    if (byte < kMore) return number;
  }
}

std::string_view TensorIndex::ReadText(uint64_t& at) const {
  const uint64_t size = ReadNumber(at);
  const std::string_view text = std::string_view(records_).substr(at, size);
  at += size;
  return text;
}

void TensorIndex::Append(const Line& line) {
  const Directory& directory = directories_[line.directory];
  uint64_t flags = line.flags;
  const auto suffix = line.Has(kIsTable) ? kTableSuffix : kTensorSuffix;
  const bool has_usual_name = line.file_name.size() == line.key.size() + suffix.size() &&
                              line.file_name.starts_with(line.key) &&
                              line.file_name.ends_with(suffix);
  const std::string_view key =
      utf8::Truncate(line.key, kMostText - std::min<size_t>(kMostText, directory.key_bytes));
  if (!has_usual_name || key.size() < line.key.size()) flags |= kHasName;
  AppendNumber(flags);
  AppendNumber(line.directory);
  AppendText(key);
  if ((flags & kHasName) != 0) AppendText(line.file_name);
  if (!line.Has(kIsTable)) {
    AppendNumber(static_cast<uint64_t>(line.dtype));
    if (line.dtype == Dtype::kOpaque) AppendText(line.foreign_dtype);
    AppendNumber(line.shape.size());
    for (const uint64_t size : line.shape) AppendNumber(size);
  }
  AppendNumber(line.bytes);
  if (line.Has(kHasMember)) AppendText(line.member);
  if (line.Has(kHasOffset)) AppendNumber(line.file_offset);
  if (line.Has(kHasError)) AppendText(line.error);
  if (!line.Has(kHasAnnotations)) return;
  for (const auto json : {line.stride, line.storage_offset, line.file, line.others}) {
    AppendText(json);
  }
}

TensorIndex::Line TensorIndex::Parse(uint64_t begin) const {
  Line line;
  uint64_t at = begin;
  line.flags = ReadNumber(at);
  line.directory = static_cast<uint32_t>(ReadNumber(at));
  line.key = ReadText(at);
  if (line.Has(kHasName)) line.file_name = ReadText(at);
  if (!line.Has(kIsTable)) {
    line.dtype = static_cast<Dtype>(ReadNumber(at));
    if (line.dtype == Dtype::kOpaque) line.foreign_dtype = ReadText(at);
    line.shape.resize(ReadNumber(at));
    for (uint64_t& size : line.shape) size = ReadNumber(at);
  }
  line.bytes = ReadNumber(at);
  if (line.Has(kHasMember)) line.member = ReadText(at);
  if (line.Has(kHasOffset)) line.file_offset = ReadNumber(at);
  if (line.Has(kHasError)) line.error = ReadText(at);
  if (!line.Has(kHasAnnotations)) return line;
  for (auto* json : {&line.stride, &line.storage_offset, &line.file, &line.others}) {
    *json = ReadText(at);
  }
  return line;
}

template <typename Out>
void TensorIndex::Write(const Line& line, Out& out) const {
  // The text before the key or the path; its size is known.
  const Directory& directory = directories_[line.directory];
  const auto before = [&](bool is_path) {
    if constexpr (std::is_same_v<Out, Size>) {
      out.Skip(is_path ? directory.path_size : directory.key_size);
    } else {
      std::vector<uint64_t> way;
      for (uint32_t i = line.directory; i != kRoot; i = directories_[i].parent) {
        way.push_back(directories_[i].texts);
      }
      for (auto texts = way.rbegin(); texts != way.rend(); ++texts) {
        uint64_t at = *texts;
        const std::string_view key = ReadText(at);
        out.Escaped(is_path ? ReadText(at) : key);
        out.Raw(is_path ? "/" : ".");
      }
    }
  };
  const auto text = [&](std::string_view name, Flag flag, std::string_view value) {
    out.Raw(name);
    if (!line.Has(flag)) return out.Raw("null");
    out.Raw("\"");
    out.Escaped(value);
    out.Raw("\"");
  };

  out.Raw("{\"key\":\"");
  before(false);
  out.Escaped(line.key);
  out.Raw("\",\"dtype\":");
  const bool has_type =
      !line.Has(kIsTable) && (line.dtype != Dtype::kOpaque || !line.foreign_dtype.empty());
  if (has_type) {
    out.Raw(line.dtype == Dtype::kOpaque ? "\"" : "\"torch.");
    out.Escaped(line.dtype == Dtype::kOpaque ? line.foreign_dtype : Name(line.dtype));
    out.Raw("\"");
  } else {
    out.Raw("null");
  }
  out.Raw(",\"shape\":");
  out.Raw(line.Has(kIsTable) ? "null" : "[");
  for (size_t i = 0; i < line.shape.size(); ++i) {
    if (i > 0) out.Raw(",");
    out.Number(line.shape[i]);
  }
  if (!line.Has(kIsTable)) out.Raw("]");
  out.Raw(",\"stride\":");
  out.Raw(line.stride);
  out.Raw(",\"path\":");
  const auto suffix = line.Has(kIsTable) ? kTableSuffix : kTensorSuffix;
  const size_t name_bytes =
      line.Has(kHasName) ? line.file_name.size() : line.key.size() + suffix.size();
  if (directory.path_bytes + name_bytes > kMostText) {
    out.Raw("null");
  } else {
    out.Raw("\"");
    before(true);
    out.Escaped(line.Has(kHasName) ? line.file_name : line.key);
    if (!line.Has(kHasName)) out.Raw(suffix);
    out.Raw("\"");
  }
  out.Raw(",\"bytes\":");
  out.Number(line.bytes);
  out.Raw(",\"file\":");
  out.Raw(line.file);
  text(",\"member\":", kHasMember, line.member);
  out.Raw(",\"file_offset\":");
  if (line.Has(kHasOffset)) {
    out.Number(line.file_offset);
  } else {
    out.Raw("null");
  }
  out.Raw(",\"storage_offset\":");
  out.Raw(line.storage_offset);
  text(",\"error\":", kHasError, line.error);
  out.Raw(line.others);
  out.Raw("}\n");
}

// The depth of the recursion is that of the checkpoint, which its format has bounded.
void TensorIndex::SetOrder(size_t group, std::vector<uint64_t>& order) const {
  const auto [first, count] = groups_[group];
  for (const uint64_t place : std::span(places_).subspan(first, count)) {
    if (place == kNothing) continue;
    if ((place & kIsGroup) != 0) {
      SetOrder(place >> 1U, order);
    } else {
      order.push_back((place >> 1U) - 1);
    }
  }
}

// Formats the lines that are read. Finds the first of them in steps of a block.
class TensorIndex::Source final : public ByteSource {
 public:
  Source(TensorIndex index, std::vector<uint64_t> order)
      : index_(std::move(index)), order_(std::move(order)) {
    for (size_t i = 0; i < order_.size(); ++i) {
      if (i % kLinesPerBlock == 0) blocks_.push_back(size_);
      Size line;
      index_.Write(index_.Parse(order_[i]), line);
      size_ += line.size();
    }
  }

  std::string name() const override { return std::string(kIndexName); }
  uint64_t size() const override { return size_; }

  void ReadAt(uint64_t offset, std::span<std::byte> buffer) const override {
    assert(offset <= size() && buffer.size() <= size() - offset);
    if (buffer.empty()) return;
    const auto next = std::ranges::upper_bound(blocks_, offset);
    const auto block = static_cast<size_t>(next - blocks_.begin()) - 1;
    uint64_t skip = offset - blocks_[block];
    std::string line;
    Text out(line);
    for (size_t i = block * kLinesPerBlock; !buffer.empty(); ++i) {
      line.clear();
      index_.Write(index_.Parse(order_[i]), out);
      const size_t begin = std::min<uint64_t>(skip, line.size());
      skip -= begin;
      const size_t count = std::min(line.size() - begin, buffer.size());
      std::ranges::copy(std::as_bytes(std::span(line)).subspan(begin, count), buffer.begin());
      buffer = buffer.subspan(count);
    }
  }

 private:
  const TensorIndex index_;
  const std::vector<uint64_t> order_;  // Where the record of each line begins.
  std::vector<uint64_t> blocks_;       // Where the text of every kLinesPerBlock-th line begins.
  uint64_t size_ = 0;
};

ByteSourcePtr TensorIndex::Finish() && {
  std::vector<uint64_t> order;
  SetOrder(0, order);
  places_ = {};
  groups_ = {};
  return std::make_shared<Source>(std::move(*this), std::move(order));
}

}  // namespace ckptfs
