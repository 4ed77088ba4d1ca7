#include "parser/format/torch/bare.h"

#include <cerrno>

#include "parser/base/error.h"
#include "parser/checkpoint.h"
#include "parser/format/torch/numpy.h"
#include "parser/format/torch/repr.h"

namespace ckptfs::torch {
namespace {

using pickle::ItemsOf;
using pickle::Kind;
using pickle::ObjectOf;
using pickle::Value;
using Values = std::span<const Value>;

constexpr int kMaxDress = 16;  // Layers around a tensor; honest files have three at most.

// Takes off one layer: `bare.function` and `bare.arguments` become those of what is inside. Returns
// whether there was one.
bool Undress(Bare& bare) {
  const Values arguments = bare.arguments;
  const Value* inner = nullptr;
  switch (bare.function) {
    case Known::kRebuildFromType:
    case Known::kRebuildFromTypeV2:
      if (arguments.size() < 3 || arguments[2].kind != Kind::kTuple) return false;
      if (bare.python_type == nullptr && !pickle::IsGlobal(arguments[1], "torch", "Tensor")) {
        bare.python_type = &arguments[1];
      }
      if (arguments.size() > 3 && bare.state == nullptr) bare.state = &arguments[3];
      bare.function = KnownCallable(arguments[0]);
      bare.arguments = ItemsOf(arguments[2]);
      return true;
    case Known::kRebuildParameter:
    case Known::kRebuildParameterWithState:
    case Known::kParameter:
      if (arguments.empty()) return false;
      inner = &arguments[0];
      bare.is_parameter = true;
      if (arguments.size() > 1 && bare.requires_grad == nullptr) bare.requires_grad = &arguments[1];
      if (arguments.size() > 3 && bare.state == nullptr) bare.state = &arguments[3];
      break;
    case Known::kRebuildFromCpu:
    case Known::kRebuildFromNumpy:
      if (arguments.size() < 2) return false;
      inner = &arguments[0];
      bare.cast = &arguments[1];
      if (arguments.size() > 3 && bare.requires_grad == nullptr) bare.requires_grad = &arguments[3];
      break;
    default:
      return false;
  }
  bare.value = inner;
  bare.function = Known::kUnknown;
  bare.arguments = {};
  if (pickle::IsObject(*inner) && !IsArray(*inner)) {
    bare.function = KnownCallable(ObjectOf(*inner).target);
    bare.arguments = ItemsOf(ObjectOf(*inner).arguments);
  }
  return true;
}

}  // namespace

Bare BareOf(const Value& value) {
  Bare bare{.value = &value};
  if (!pickle::IsObject(value) || IsArray(value)) return bare;
  bare.function = KnownCallable(ObjectOf(value).target);
  bare.arguments = ItemsOf(ObjectOf(value).arguments);
  for (int layer = 0; layer < kMaxDress && Undress(bare); ++layer) {
  }
  return bare;
}

std::vector<uint64_t> Numbers(const Value& value, std::string_view what) {
  const bool is_size = pickle::IsObject(value) &&
                       KnownCallable(ObjectOf(value).target) == Known::kSize &&
                       ItemsOf(ObjectOf(value).arguments).size() == 1;
  const Value& tuple = is_size ? ItemsOf(ObjectOf(value).arguments)[0] : value;
  if (tuple.kind != Kind::kTuple && tuple.kind != Kind::kList)
    Fail(EBADMSG, "its {} is no tuple", what);
  if (ItemsOf(tuple).size() > kMaxDimensions) {
    Fail(EBADMSG, "has {} dimensions, but {} is the most", ItemsOf(tuple).size(), kMaxDimensions);
  }
  std::vector<uint64_t> numbers;
  numbers.reserve(ItemsOf(tuple).size());
  for (const Value& item : ItemsOf(tuple)) {
    if (item.kind != Kind::kInt || item.integer < 0) {
      Fail(EBADMSG, "its {} has {}, but wants numbers from 0 to 2^63", what, Repr(item));
    }
    numbers.push_back(static_cast<uint64_t>(item.integer));
  }
  return numbers;
}

}  // namespace ckptfs::torch
