// The header of a member determines type and shape; those in the JSON are a copy. Exception:
// numpy.save writes the types of ml_dtypes as void types of their size ("<V2"), so that only the
// JSON has them.

#include "parser/format/zanj/array.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "parser/base/error.h"
#include "parser/base/json.h"
#include "parser/codec/npy.h"
#include "parser/format/numpy/array.h"
#include "parser/format/zanj/elements.h"
#include "parser/format/zanj/value.h"
#include "parser/io/simple_sources.h"

namespace ckptfs::zanj {
namespace {

std::string_view TextOf(json::Node node, std::string_view key) {
  const auto member = node.Find(key);
  return member && member->is_text() ? member->text() : std::string_view();
}

// The name of the type in the JSON, without the module.
std::string_view TypeNameOf(json::Node node) {
  constexpr std::string_view kTorch = "torch.";
  std::string_view name = TextOf(node, "dtype");
  if (name.starts_with(kTorch)) name.remove_prefix(kTorch.size());
  return name;
}

npy::Type TypeOf(Dtype dtype) {
  return {.dtype = dtype,
          .item_size = ItemSize(dtype),
          .swap_size = SwapSize(dtype),
          .name = std::string(Name(dtype))};
}

// The type that NumPy prints as `name`: "float32", but ">i4" if it is not the machine's own,
// "<U3", "datetime64[s]". Returns nothing if it is unknown.
std::optional<npy::Type> TypePrinted(std::string_view name) {
  if (const auto dtype = DtypeNamed(name)) return TypeOf(*dtype);
  if (name.empty()) return std::nullopt;
  constexpr std::string_view kOrders = "<>|=";
  if (kOrders.find(name[0]) != std::string_view::npos) {
    return npy::TypeNamed(name[0], name.substr(1));
  }
  constexpr std::pair<std::string_view, std::string_view> kLongNames[] = {
      {"datetime64", "M8"}, {"timedelta64", "m8"}, {"float128", "f16"}, {"complex256", "c32"}};
  for (const auto& [longer, code] : kLongNames) {
    if (name.starts_with(longer)) {
      return npy::TypeNamed('<', std::string(code).append(name.substr(longer.size())));
    }
  }
  return std::nullopt;
}

std::vector<uint64_t> SizesIn(json::Node list) {
  if (!list.is_list()) Fail(EBADMSG, "shape: not a list");
  if (list.count() > kMaxDimensions) {
    Fail(EBADMSG, "too many dimensions (found {}, maximum {})", list.count(), kMaxDimensions);
  }
  std::vector<uint64_t> sizes;
  json::Items items(list);
  while (const auto item = items.Next()) {
    if (item->kind() != json::Node::Kind::kWhole) {
      Fail(EBADMSG, "its shape has an item that is not a size");
    }
    sizes.push_back(item->whole());
  }
  return sizes;
}

// The shape may be outside, like all lists.
std::vector<uint64_t> ShapeOf(json::Node node, Externals& externals) {
  const auto member = node.Find("shape");
  if (!member) Fail(EBADMSG, "has no shape");
  if (TagOf(*member).kind != Tag::Kind::kExternalTable) return SizesIn(*member);
  return SizesIn(externals.ReadRows(externals.Open(ReferenceOf(*member))).root());
}

// The bytes in the archive, as a member.
Record RecordOf(std::string bytes) {
  const uint64_t length = bytes.size();
  return {.data = {std::make_shared<MemorySource>(std::move(bytes)), 0, length},
          .member = "",
          .is_in_file = false};
}

// Bytes whose type we do not know: as large as they have room for.
npy::Type UnknownType(std::string_view name, size_t size, const std::vector<uint64_t>& shape) {
  const uint64_t count = std::max<uint64_t>(numpy::CountOf(shape), 1);
  if (size % count != 0) {
    Fail(EBADMSG, "has {} bytes, which are not a whole number for its {} elements", size, count);
  }
  return {.item_size = size / count, .name = std::string(name)};
}

void FillInline(json::Node node, const Tag& tag, Externals& externals, Tensor& tensor) {
  constexpr uint64_t kCost = 128;  // In bytes, of a source.
  Budget& budget = externals.budget();
  budget.Charge(kCost);
  numpy::Layout layout{.type = {}, .shape = ShapeOf(node, externals), .is_fortran = false};
  const std::string_view name = TypeNameOf(node);
  auto type = TypePrinted(name);
  const auto data = node.Find("data");
  if (tag.kind == Tag::Kind::kLists || tag.kind == Tag::Kind::kScalar) {
    layout.type = TypeOf(type->dtype);
    numpy::SetType(layout, tensor);
    if (!data) Fail(EBADMSG, "has no data");
    const Record record = RecordOf(ElementsOfLists(*data, type->dtype, layout.shape, externals));
    return numpy::SetBytes(layout, record, externals.members().blocks(), tensor);
  }
  if (type) {
    layout.type = *type;
    numpy::SetType(layout, tensor);
  }
  if (!data || !data->is_text()) Fail(EBADMSG, "its data are not text");
  std::string bytes = tag.kind == Tag::Kind::kHex ? BytesOfHex(data->text(), budget)
                                                  : BytesOfBase64(data->text(), budget);
  if (!type) {
    layout.type = UnknownType(name, bytes.size(), layout.shape);
    numpy::SetType(layout, tensor);
  }
  numpy::SetBytes(layout, RecordOf(std::move(bytes)), externals.members().blocks(), tensor);
}

// Sets type and shape of an array in a member from the JSON, in case the member cannot be read.
void Expect(json::Node node, Externals& externals, Tensor& tensor) {
  try {
    if (const auto type = TypePrinted(TypeNameOf(node))) {
      numpy::SetType({.type = *type, .shape = ShapeOf(node, externals), .is_fortran = false},
                     tensor);
    }
  } catch (const Error& e) {
    if (IsFatal(e)) throw;
    tensor = {};
  }
}

// Makes a type that has only a size one of ml_dtypes, if `name` is one of that size.
void SetName(std::string_view name, const std::string& descr, npy::Type& type) {
  constexpr std::string_view kSizesOnly[] = {"\"<V", "\"|V", "\"<f1\"", "\"|f1\"", "\"<W4\""};
  const bool has_size_only = std::ranges::any_of(
      kSizesOnly, [&](std::string_view beginning) { return descr.starts_with(beginning); });
  if (!has_size_only || name.empty()) return;
  const auto dtype = DtypeNamed(name);
  if (dtype && ItemSize(*dtype) == type.item_size) {
    type = TypeOf(*dtype);
  } else if (!dtype) {
    type.name = name;
  }
}

void FillExternal(json::Node node, Externals& externals, Tensor& tensor) {
  Expect(node, externals, tensor);
  const Record record = externals.Open(ReferenceOf(node));
  tensor.member = record.member;
  record.Check();
  npy::ArrayHeader header =
      npy::ReadHeader([&](size_t most) { return externals.members().ReadHead(record, most); },
                      record.data.length, externals.budget());
  SetName(TypeNameOf(node), header.descr, header.type);
  const auto claimed = std::exchange(tensor, {});
  numpy::FillSaved(std::move(header), record, externals.members().blocks(), tensor);
  const bool is_known = claimed.data.length > 0 || !claimed.shape.empty();
  if (is_known && (claimed.shape != tensor.shape || claimed.dtype != tensor.dtype)) {
    tensor.annotations.emplace_back(
        "told", fmt::format(R"({{"dtype":"{}","shape":[{}]}})", Name(claimed.dtype),
                            fmt::join(claimed.shape, ",")));
  }
}

}  // namespace

bool HasBytes(json::Node node, const Tag& tag) {
  if (tag.kind != Tag::Kind::kLists && tag.kind != Tag::Kind::kScalar) return true;
  const auto type = TypePrinted(TypeNameOf(node));
  return type && IsNumeric(type->dtype);
}

void FillArray(json::Node node, const Tag& tag, Externals& externals, Tensor& tensor) {
  const bool is_torch =
      tag.type.empty() ? TextOf(node, "dtype").starts_with("torch.") : tag.type == "torch.Tensor";
  if (tag.kind == Tag::Kind::kExternalArray) {
    FillExternal(node, externals, tensor);
  } else {
    FillInline(node, tag, externals, tensor);
  }
  if (is_torch) return;
  tensor.annotations.emplace_back("python_type",
                                  json::String(tag.type.empty() ? "numpy.ndarray" : tag.type));
}

Value ValueOfArray(json::Node node, const Tag& tag, Externals& externals) {
  const auto data = node.Find("data");
  Value value = data ? ValueOf(*data, externals)
                     : Value{.json = "null", .python_type = "", .annotations = {}};
  value.python_type = tag.type.empty() ? "numpy.ndarray" : tag.type;
  externals.budget().Charge(2 * value.python_type.size());
  for (const std::string_view key : {"dtype", "shape"}) {
    if (const auto member = node.Find(key)) {
      value.annotations.emplace_back(key == "dtype" ? "numpy_dtype" : "numpy_shape",
                                     ValueOf(*member, externals).json);
    }
  }
  return value;
}

}  // namespace ckptfs::zanj
