#include "fs/tensordict_meta.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <charconv>
#include <cstdint>
#include <iterator>

#include "fs/tensordict_foreign.h"
#include "fs/tensordict_names.h"
#include "parser/base/hex.h"
#include "parser/base/json.h"
#include "parser/base/utf8.h"

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

// Whether a note may have this name: tensordict must not take it for something else.
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

// Whether `text` is an integer that every reader of JSON reads as it is.
bool IsNumber(std::string_view text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() &&
         fmt::format_int(number).size() == text.size();  // No leading zero.
}

// Appends what a key is in the checkpoint.
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

// Whether a user gets the tensor from its bytes by viewing them as another type. Quantized ones
// need their quantizer, too.
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

// The shape as bytes: of types that pack several elements into one the rows are not kept apart.
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
  if (name.is_told()) AppendOriginal(text_, name);
  AppendAnnotations(text_, annotations);
  text_ += "},";
}

void DirectoryMeta::AddTensor(const EntryName& name, const Tensor& tensor, std::string_view view) {
  Begin(name.key, "\"device\":\"cpu\",");
  text_ += view;
  AppendOptional(text_, "error", tensor.error);
  End(name, tensor.annotations);
}

void DirectoryMeta::AddValue(const EntryName& name, const Value& value) {
  Begin(name.key, "\"type\":\"NonTensorData\"");
  AppendOptional(text_, "python_type", value.python_type);
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

// An entry without a shape and a type is nothing to tensordict.
void DirectoryMeta::AddTable(const EntryName& name, const Table& table) {
  Begin(name.key, "");
  AppendLines(table);
  End(name, {});
}

// Appends what there is to be told of a table.
void DirectoryMeta::AppendLines(const Table& table) {
  text_ += "\"bytes\":";
  AppendNumber(text_, table.data.length);
  AppendOptional(text_, "python_type", table.python_type);
  AppendOptional(text_, "error", table.error);
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

std::string SummaryText(const Checkpoint& checkpoint, std::string_view version) {
  std::string text = "{\"version\":";
  AppendText(text, version);
  AppendOptional(text, "format", checkpoint.format);
  AppendOptional(text, "python_type", checkpoint.root.python_type);
  AppendAnnotations(text, checkpoint.root.annotations);
  AppendAnnotations(text, checkpoint.annotations);
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

}  // namespace ckptfs
