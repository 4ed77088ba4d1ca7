#include "fs/tensordict_meta.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>

#include "fs/tensordict_names.h"
#include "parser/base/encoding.h"
#include "parser/base/json.h"
#include "parser/base/text.h"

namespace ckptfs {

namespace {

void AppendNumber(std::string& out, uint64_t number) {
  const fmt::format_int digits(number);
  out.append(digits.data(), digits.size());
}

// Appends ,"name":"text" if there is any text.
void AppendOptional(std::string& out, std::string_view name, std::string_view text) {
  if (text.empty()) return;
  out.append(",\"").append(name).append("\":");
  AppendText(out, text);
}

// Whether an annotation may have this name, which must have no meaning for tensordict.
[[maybe_unused]] bool IsAnnotationName(std::string_view name) {
  constexpr std::array<std::string_view, 5> kOurs = {"type", "dtype", "shape", "device",
                                                     "is_nested"};
  return std::ranges::count(kOurs, name) == 0;
}

void AppendAnnotations(std::string& out, const std::vector<Annotation>& annotations) {
  for (const auto& [name, json] : annotations) {
    assert(IsAnnotationName(name));
    if (IsAboutBytes(name)) continue;
    AppendAnnotation(out, name, json);
  }
}

// Whether `text` is an integer that every reader of JSON reads exactly.
bool IsNumber(std::string_view text) {
  const auto number = ParseNumber<int64_t>(text);
  return number && fmt::format_int(*number).size() == text.size();  // No leading zero.
}

// Appends the original key.
void AppendOriginal(std::string& out, const EntryName& name) {
  out += ",\"key\":";
  if (name.kind == Key::Kind::kNumber && IsNumber(name.original)) {
    out += name.original;
  } else {
    AppendText(out, name.original);
  }
  if (name.kind == Key::Kind::kOther) out += ",\"key_type\":\"other\"";
  if (!utf8::IsValid(name.original)) {
    out += ",\"key_hex\":\"";
    AppendHex(out, name.original);
    out += '"';
  }
}

// Whether tensordict has a name for the type and torch can map it from a file.
bool IsLoadable(Dtype dtype) { return dtype >= Dtype::kBool && dtype <= Dtype::kComplex128; }

// Whether viewing the bytes as another type gives the tensor. Quantized ones also need their
// quantizer.
bool IsViewOfBytes(Dtype dtype) {
  constexpr Dtype kQuantized[] = {Dtype::kQint8, Dtype::kQuint8, Dtype::kQint32, Dtype::kQuint4x2,
                                  Dtype::kQuint2x4};
  return !IsLoadable(dtype) && dtype != Dtype::kOpaque && ElementsPerItem(dtype) == 1 &&
         std::ranges::count(kQuantized, dtype) == 0;
}

// Whether torch can count the elements and strides of the shape. A tensor without elements may have
// any other dimensions.
bool IsCountable(const std::vector<uint64_t>& shape) {
  int64_t product = 1;
  return std::ranges::none_of(shape, [&product](uint64_t size) {
    return __builtin_mul_overflow(product, std::max<uint64_t>(size, 1), &product);
  });
}

// The shape in bytes: rows are merged for types that pack several elements into a byte.
std::vector<uint64_t> ByteShape(const Tensor& tensor) {
  std::vector<uint64_t> shape = tensor.shape;
  if (shape.empty() || ElementsPerItem(tensor.dtype) > 1) return {tensor.data.length};
  if (__builtin_mul_overflow(shape.back(), uint64_t{ItemSize(tensor.dtype)}, &shape.back())) {
    return {0};  // Only a tensor without elements gets here.
  }
  return shape;
}

}  // namespace

bool IsAboutBytes(std::string_view name) {
  constexpr std::string_view kNames[] = {
      // Of a tensor.
      "storage_offset", "file", "chunks", "hashes", "encryption", "module_index",
      // Of the checkpoint.
      "folder", "sidecar", "storage_meta", "index_bytes", "total_data_bytes", "alignment_from"};
  return std::ranges::count(kNames, name) != 0;
}

void AppendText(std::string& out, std::string_view text) {
  if (utf8::IsValid(text)) {
    json::AppendString(out, text);
    return;
  }
  std::string valid;
  while (!text.empty()) {
    const utf8::Character next = utf8::Decode(text);
    valid += next.is_valid ? text.substr(0, next.length) : "\uFFFD";
    text.remove_prefix(next.length);
  }
  json::AppendString(out, valid);
}

void AppendShape(std::string& out, const std::vector<uint64_t>& shape) {
  out += '[';
  for (const uint64_t size : shape) {
    AppendNumber(out, size);
    out += ',';
  }
  if (!shape.empty()) out.pop_back();
  out += ']';
}

void AppendView(std::string& out, const Tensor& tensor) {
  const bool is_loadable = IsLoadable(tensor.dtype);
  if (tensor.sizes != nullptr && is_loadable) {
    out += "\"shape\":";
    AppendShape(out, tensor.sizes->shape);
    out.append(",\"dtype\":\"torch.").append(Name(tensor.dtype)) += "\",\"is_nested\":true";
    return;
  }
  const std::vector<uint64_t> listed = is_loadable ? tensor.shape : ByteShape(tensor);
  const bool is_countable = IsCountable(listed);
  out += "\"shape\":";
  AppendShape(out, is_countable ? listed : std::vector<uint64_t>{0});
  out.append(",\"dtype\":\"torch.").append(Name(is_loadable ? tensor.dtype : Dtype::kUint8));
  out += "\",\"is_nested\":false";
  if (tensor.dtype == Dtype::kOpaque) {
    AppendOptional(out, "foreign_dtype", tensor.foreign_dtype);
  } else if (!is_loadable) {
    out.append(",\"x_dtype\":\"torch.").append(Name(tensor.dtype)) += '"';
  }
  if (!is_loadable || !is_countable) {
    out += ",\"x_shape\":";
    AppendShape(out, tensor.shape);
  }
  if (IsViewOfBytes(tensor.dtype) && IsCountable(tensor.shape)) {
    out.append(",\"recipe\":\"tensor.view(torch.").append(Name(tensor.dtype)) += ").reshape(";
    AppendShape(out, tensor.shape);
    out += ")\"";
  }
}

void DirectoryMeta::Clear() { text_.assign(1, '{'); }

void DirectoryMeta::Begin(std::string_view key, std::string_view what) {
  json::AppendString(text_, key);
  text_.append(":{").append(what);
}

void DirectoryMeta::End(const EntryName& name, const std::vector<Annotation>& annotations) {
  if (name.must_record_key()) AppendOriginal(text_, name);
  AppendAnnotations(text_, annotations);
  text_ += "},";
}

void DirectoryMeta::AddTensor(const EntryName& name, const Tensor& tensor, std::string_view view) {
  Begin(name.key, "\"device\":\"cpu\",");
  text_ += view;
  AppendOptional(text_, "error", MessageOf(tensor.error));
  if (!tensor.is_complete) text_ += ",\"complete\":false";
  End(name, tensor.annotations);
}

void DirectoryMeta::AddValue(const EntryName& name, const Value& value) {
  Begin(name.key, "\"type\":\"NonTensorData\"");
  AppendOptional(text_, "python_type", value.python_type);
  AppendOptional(text_, "error", MessageOf(value.error));
  End(name, value.annotations);
}

void DirectoryMeta::AddGroup(const EntryName& name, const Group& group) {
  Begin(name.key, "\"type\":\"TensorDict\"");
  AppendOptional(text_, "python_type", group.python_type);
  if (group.table != nullptr) {
    text_ += ",\"lines\":{";
    AppendLines(*group.table);
    text_ += '}';
  }
  End(name, group.annotations);
}

// tensordict ignores an entry without a shape and a type.
void DirectoryMeta::AddTable(const EntryName& name, const Table& table) {
  Begin(name.key, "");
  AppendLines(table);
  End(name, {});
}

// Appends the members that describe a table.
void DirectoryMeta::AppendLines(const Table& table) {
  text_ += "\"bytes\":";
  AppendNumber(text_, table.data.length);
  AppendOptional(text_, "python_type", table.python_type);
  AppendOptional(text_, "error", MessageOf(table.error));
  AppendAnnotations(text_, table.annotations);
}

void DirectoryMeta::AddLevel(const EntryName& name) {
  Begin(name.key, "\"type\":\"TensorDict\"");
  End(name, {});
}

std::string_view DirectoryMeta::Finish(std::string_view collection, std::string_view summary) {
  if (collection.empty()) {
    text_ += R"("shape":[],"device":"cpu","_type":"<class 'tensordict._td.TensorDict'>")";
  } else {
    AppendForeignMembers(text_, collection);
  }
  if (!summary.empty()) text_.append(",\"").append(kSummaryKey).append("\":").append(summary);
  return text_ += '}';
}

std::string ValueMeta(const Value& value) {
  if (!value.collection.text.empty()) {
    std::string text = "{";
    AppendForeignMembers(text, value.collection.text);
    return text.append(",\"data\":").append(value.json) += '}';
  }
  return R"({"_type":"<class 'tensordict.tensorclass.NonTensorData'>","data":)" + value.json +
         R"(,"_metadata":null,"_is_non_tensor":true})";
}

std::string CollectionMeta(std::string_view collection) {
  std::string text = "{";
  AppendForeignMembers(text, collection);
  return text += '}';
}

std::string AboutText(const std::vector<Annotation>& about) {
  std::string text;
  for (const auto& [name, json] : about) AppendAnnotation(text, name, json);
  text.front() = '{';  // Instead of a comma.
  return text += '}';
}

namespace {

template <typename Predicate>
void AppendGlobals(std::string& out, std::string_view name, const std::vector<Global>& globals,
                   const Predicate& is_listed) {
  out.append(",\"").append(name).append("\":[");
  const size_t begin = out.size();
  for (const Global& global : globals) {
    if (!std::invoke(is_listed, global)) continue;
    if (out.size() > begin) out += ',';
    json::AppendString(out, global.name);
  }
  out += ']';
}

}  // namespace

std::string SummaryText(const Checkpoint& checkpoint, std::string_view version) {
  std::string text = "{\"version\":";
  AppendText(text, version);
  AppendOptional(text, "format", checkpoint.format);
  AppendOptional(text, "python_type", checkpoint.root.python_type);
  AppendAnnotations(text, checkpoint.root.annotations);
  AppendAnnotations(text, checkpoint.annotations);
  if (!checkpoint.globals.empty()) {
    AppendGlobals(text, "globals", checkpoint.globals, [](const Global&) { return true; });
    AppendGlobals(text, "globals_refused_by_weights_only", checkpoint.globals, &Global::is_refused);
  }
  if (!checkpoint.warnings.empty()) {
    text += ",\"warnings\":[";
    for (const std::string& warning : checkpoint.warnings) {
      AppendText(text, warning);
      text += ',';
    }
    text.back() = ']';
  }
  return text + '}';
}

namespace {

// Names of members that only ckptfs may write, at any depth.
constexpr std::string_view kEverywhere[] = {kSummaryKey, "recipe", "error", "x_dtype", "x_shape"};

// The other members of entries of ckptfs.
constexpr std::string_view kInEntries[] = {
    "attributes",    "batch_size",    "block_bytes",    "block_elements",
    "byte_order",    "bytes",         "columns",        "complete",
    "conj",          "data_file",     "dims",           "field_types",
    "file_bytes",    "foreign_dtype", "fortran_order",  "ggml_type",
    "key",           "key_hex",       "key_type",       "kind",
    "lines",         "location",      "logical_shape",  "lost_chunks",
    "meta",          "neg",           "not_in_index",   "numpy_dtype",
    "numpy_shape",   "python_type",   "python_types",   "quantizer",
    "requires_grad", "rows",          "saved_device",   "shape_in_python",
    "storage_dtype", "stored_dtype",  "stored_shape",   "stride",
    "tied_to",       "told",          "trailing_bytes", "unknown_type"};

// The identity of an entry.
constexpr std::string_view kMarks[] = {"type", "dtype", "bytes"};

template <typename Names>
bool Has(const Names& names, std::string_view name) {
  return std::ranges::count(names, name) != 0;
}

// Annotations whose JSON objects at this depth are written by ckptfs, while names and values in
// them may come from the checkpoint. Other annotations have no objects, or only objects of the
// checkpoint.
struct OwnDepth {
  std::string_view note;
  size_t depth;
};
constexpr OwnDepth kOwnDepths[] = {{"shards", 2}, {"lost_chunks", 2}};

// Iterates over the strings of valid JSON; other tokens contain no braces or brackets.
class Scanner {
 public:
  // `json` begins at nesting depth `depth`.
  explicit Scanner(std::string_view json, size_t depth = 0) : json_(json), depth_(depth) {}

  // Moves to the next string; returns false at the end of the open object or list.
  bool Next() {
    for (at_ += token_.size(); at_ < json_.size(); ++at_) {
      const char c = json_[at_];
      if (c == '{' || c == '[') ++depth_;
      if ((c == '}' || c == ']') && --depth_ == 0) return false;
      if (c == '"') {
        token_ = json_.substr(at_, LengthOfString());
        return true;
      }
    }
    return false;
  }

  size_t begin() const { return at_; }                // Of the string.
  size_t end() const { return at_ + token_.size(); }  // After its second quote.
  size_t depth() const { return depth_; }             // 1 in the outermost object.

  // Whether the string is the name of a member.
  bool is_name() const {
    const size_t next = json_.find_first_not_of(" \t\r\n", end());
    return next != std::string_view::npos && json_[next] == ':';
  }

  // The string without its quotes and escapes, which names of ckptfs do not need.
  std::string Text() const {
    const std::string_view inner = token_.substr(1, token_.size() - 2);
    std::string text;
    for (size_t i = 0; i < inner.size(); ++i) {
      if (inner[i] == '\\' && inner[++i] == 'u') {
        text += utf8::Encode(
            static_cast<char32_t>(std::stoul(std::string(inner.substr(i + 1, 4)), nullptr, 16)));
        i += 4;
      } else {
        text += inner[i];  // Of "\n" this appends the wrong character, but no name of ours has one.
      }
    }
    return text;
  }

 private:
  size_t LengthOfString() const {
    size_t end = at_ + 1;
    while (json_[end] != '"') end += json_[end] == '\\' ? 2 : 1;
    return end + 1 - at_;
  }

  std::string_view json_;
  std::string_view token_;
  size_t at_ = 0;
  size_t depth_;
};

// Whether the object at the beginning of `json` looks like an entry.
bool LooksLikeEntry(std::string_view json) {
  Scanner scanner(json);
  while (scanner.Next()) {
    if (scanner.depth() == 1 && scanner.is_name() && Has(kMarks, scanner.Text())) return true;
  }
  return false;
}

// Appends `json`, whose objects at `own_depth` are written by ckptfs, and renames members of other
// objects with names of ckptfs. If `are_members`, it is the content of the outermost object, and
// objects in it are in the position of entries.
void AppendRenamed(std::string& out, std::string_view json, size_t own_depth, bool are_members) {
  Scanner scanner(json, are_members ? 1 : 0);
  size_t copied = 0;
  bool is_entry = false;
  while (scanner.Next()) {
    if (!scanner.is_name()) continue;
    const size_t depth = scanner.depth();
    const bool is_member = are_members && depth == 1;
    if (is_member) {
      const size_t value = json.find_first_not_of(" \t\r\n:", scanner.end());
      is_entry = json[value] == '{' && LooksLikeEntry(json.substr(value));
    }
    std::string name = scanner.Text();
    name.resize(name.find_last_not_of('_') + 1);
    const bool is_in_entry = is_entry && depth == 2;
    const bool is_ours =
        is_member ? name == kSummaryKey : Has(kEverywhere, name) || (is_in_entry && IsOurs(name));
    if (!is_ours || depth == own_depth) continue;
    out.append(json.substr(copied, scanner.end() - 1 - copied)) += '_';
    copied = scanner.end() - 1;
  }
  out.append(json.substr(copied));
}

}  // namespace

bool IsOurs(std::string_view name) {
  const auto is_ours = [](std::string_view n) { return Has(kEverywhere, n) || Has(kInEntries, n); };
  return is_ours(name) || (name.ends_with(kAnnotationFileSuffix) &&
                           is_ours(name.substr(0, name.size() - kAnnotationFileSuffix.size())));
}

void AppendForeignMembers(std::string& out, std::string_view members) {
  AppendRenamed(out, members, 0, true);
}

void AppendAnnotation(std::string& out, std::string_view name, std::string_view json) {
  out.append(",\"").append(name).append("\":");
  const auto* own = std::ranges::find(kOwnDepths, name, &OwnDepth::note);
  AppendRenamed(out, json, own == std::end(kOwnDepths) ? 0 : own->depth, false);
}

}  // namespace ckptfs
