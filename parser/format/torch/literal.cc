#include "parser/format/torch/literal.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "parser/base/text.h"
#include "parser/format/torch/globals.h"
#include "parser/format/torch/leaf.h"
#include "parser/format/torch/python.h"
#include "parser/format/torch/repr.h"
#include "parser/format/torch/tensor.h"

namespace ckptfs::torch {
namespace {

constexpr size_t kMostText = 1024;     // Bytes of one text.
constexpr size_t kMostOfAll = 16'384;  // Bytes of an expression.
constexpr int kMaxNesting = 16;

// Constants of torch other than element types: types without dense bytes, memory formats,
// quantization schemes.
constexpr std::string_view kConstants[] = {
    "bit",
    "channels_last",
    "channels_last_3d",
    "contiguous_format",
    "int1",
    "int2",
    "int3",
    "int4",
    "int5",
    "int6",
    "int7",
    "per_channel_affine",
    "per_channel_affine_float_qparams",
    "per_channel_symmetric",
    "per_tensor_affine",
    "per_tensor_symmetric",
    "preserve_format",
    "uint1",
    "uint2",
    "uint3",
    "uint4",
    "uint5",
    "uint6",
    "uint7",
};

constexpr std::string_view kLayouts[] = {
    "torch.jagged",     "torch.sparse_bsc", "torch.sparse_bsr", "torch.sparse_coo",
    "torch.sparse_csc", "torch.sparse_csr", "torch.strided",
};

constexpr std::string_view kDevices[] = {"cpu", "cuda", "hpu", "meta", "mps", "mtia", "xla", "xpu"};

template <size_t kSize>
bool IsOneOf(const std::string_view (&names)[kSize], std::string_view name) {
  return std::ranges::count(names, name) != 0;
}

// Recipes have no builtins such as float(), so infinity is a literal out of range.
std::string FloatLiteral(double real) {
  if (std::isnan(real)) return "(1e999 - 1e999)";
  if (std::isinf(real)) return real > 0 ? "1e999" : "-1e999";
  std::string text = fmt::format("{}", real);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

class Speller {
 public:
  explicit Speller(Budget& budget) : budget_(budget) {}

  // Appends `value`. Returns false if it cannot be spelled.
  bool Spell(const Value& wrapped, const std::string& place, int depth);

  // Whether JSON expresses everything that was appended.
  bool is_json() const { return is_json_; }

  std::string TakeText() { return std::move(out_); }

 private:
  bool SpellLeaf(const Value& value);
  bool SpellItems(Values items, std::string_view open, std::string_view close,
                  const std::string& place, int depth);
  bool SpellDict(Values pairs, int depth);
  bool SpellCall(const Value& call, const std::string& place, int depth);
  bool SpellDevice(Values arguments);
  bool SpellBytes(const Value& value);
  bool Append(const std::optional<std::string>& text);

  Budget& budget_;
  std::string out_;
  bool is_json_ = true;
};

bool Speller::Append(const std::optional<std::string>& text) {
  if (!text) return false;
  out_ += *text;
  return true;
}

bool Speller::Spell(const Value& wrapped, const std::string& place, int depth) {
  const Value& value = Unwrapped(wrapped);
  budget_.Work(1);
  if (depth > kMaxNesting || out_.size() > kMostOfAll) return false;
  if (ClassifyTensor(value) != TensorKind::kNone) {
    is_json_ = false;
    out_ += place;
    return !place.empty();
  }
  switch (value.kind) {
    case Kind::kTuple:
      is_json_ = false;
      return SpellItems(ItemsOf(value), "(", ItemsOf(value).size() == 1 ? ",)" : ")", place, depth);
    case Kind::kList:
      return SpellItems(ItemsOf(value), "[", "]", place, depth);
    case Kind::kDict:
      return SpellDict(ItemsOf(value), depth);
    case Kind::kCall:
      is_json_ = false;
      return SpellCall(value, place, depth);
    default:
      return SpellLeaf(value);
  }
}

bool Speller::SpellLeaf(const Value& value) {
  switch (value.kind) {
    case Kind::kNone:
    case Kind::kBool:
      out_ += Repr(value);
      return true;
    case Kind::kInt:
      out_ += fmt::format("{}", value.integer);
      return true;
    case Kind::kBigInt:
      is_json_ = false;
      if (value.text().size() > kMostText) return false;
      out_ += Decimal(value);
      return true;
    case Kind::kFloat:
      is_json_ = is_json_ && std::isfinite(value.real);
      out_ += FloatLiteral(value.real);
      return true;
    case Kind::kText:
      return Append(TextLiteral(value.text()));
    case Kind::kBytes:
      is_json_ = false;
      return SpellBytes(value);
    case Kind::kGlobal:
      is_json_ = false;
      return Append(ConstantName(value));
    default:
      return false;
  }
}

bool Speller::SpellItems(Values items, std::string_view open, std::string_view close,
                         const std::string& place, int depth) {
  if (items.size() > kMostOfAll) return false;
  out_ += open;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out_ += ", ";
    const std::string below = place.empty() ? "" : fmt::format("{}['{}']", place, i);
    if (!Spell(items[i], below, depth + 1)) return false;
  }
  out_ += close;
  return true;
}

// The name of a key in the directory is unknown here, so a tensor in a dict has no path.
bool Speller::SpellDict(Values pairs, int depth) {
  if (pairs.size() > kMostOfAll) return false;
  out_ += '{';
  for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
    if (i > 0) out_ += ", ";
    is_json_ = is_json_ && pairs[i].kind == Kind::kText;
    if (pairs[i].kind > Kind::kGlobal || !Spell(pairs[i], "", depth + 1)) return false;
    out_ += ": ";
    if (!Spell(pairs[i + 1], "", depth + 1)) return false;
  }
  out_ += '}';
  return true;
}

bool Speller::SpellCall(const Value& call, const std::string& place, int depth) {
  const Object& object = ObjectOf(call);
  const Values arguments = ItemsOf(object.arguments);
  const bool is_of_items = arguments.size() == 1 &&
                           (arguments[0].kind == Kind::kTuple || arguments[0].kind == Kind::kList);
  if (!object.states().empty()) return false;
  switch (FindCallable(object.target)) {
    case KnownCallable::kSize:
      return is_of_items && SpellItems(ItemsOf(arguments[0]), "torch.Size([", "])", place, depth);
    case KnownCallable::kDevice:
      return SpellDevice(arguments);
    case KnownCallable::kLayout:
      if (arguments.size() != 1 || arguments[0].kind != Kind::kText ||
          !IsOneOf(kLayouts, arguments[0].text())) {
        return false;
      }
      out_ += arguments[0].text();
      return true;
    case KnownCallable::kEncode:
    case KnownCallable::kBytes:
      return SpellBytes(call);
    default:
      return false;
  }
}

bool Speller::SpellDevice(Values arguments) {
  if (arguments.empty() || arguments.size() > 2 || arguments[0].kind != Kind::kText ||
      !IsOneOf(kDevices, arguments[0].text())) {
    return false;
  }
  constexpr int64_t kMostDevices = 128;  // An index is a signed char in PyTorch.
  std::string index;
  if (arguments.size() == 2) {
    const bool is_index = arguments[1].kind == Kind::kInt && arguments[1].integer >= 0 &&
                          arguments[1].integer < kMostDevices;
    if (!is_index) return false;
    index = fmt::format(", {}", arguments[1].integer);
  }
  out_ += fmt::format("torch.device('{}'{})", arguments[0].text(), index);
  return true;
}

bool Speller::SpellBytes(const Value& value) {
  std::string decoded;
  const auto bytes = BytesOf(value, decoded, budget_);
  if (!bytes || bytes->size() > kMostText) return false;
  out_ += "b'";
  for (const char c : *bytes) out_ += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  out_ += '\'';
  return true;
}

}  // namespace

std::optional<std::string> TextLiteral(std::string_view text) {
  if (text.size() > kMostText) return std::nullopt;
  std::string out = "'";
  while (!text.empty()) {
    const utf8::Character character = utf8::Decode(text);
    if (!character.is_valid) return std::nullopt;
    const char32_t code = character.code;
    const bool is_letter = (code >= 'a' && code <= 'z') || (code >= 'A' && code <= 'Z');
    if (is_letter || (code >= '0' && code <= '9') ||
        (code < 0x80 && code != 0 &&
         std::string_view("_-.:/ ").find(static_cast<char>(code)) != std::string_view::npos)) {
      out += static_cast<char>(code);
    } else {
      out += fmt::format("\\U{:08x}", static_cast<uint32_t>(code));
    }
    text.remove_prefix(character.length);
  }
  return out + "'";
}

std::optional<std::string> ConstantName(const Value& value) {
  if (value.kind != Kind::kGlobal || ItemsOf(value)[0].text() != "torch") return std::nullopt;
  const std::string_view name = ItemsOf(value)[1].text();
  if (const auto dtype = DtypeNamed(name)) return fmt::format("torch.{}", Name(*dtype));
  if (IsOneOf(kConstants, name)) return fmt::format("torch.{}", name);
  return std::nullopt;
}

std::optional<std::string> LiteralOf(const Value& value, std::string_view place, Budget& budget) {
  Speller speller(budget);
  if (!speller.Spell(value, std::string(place), 0) || speller.is_json()) return std::nullopt;
  return speller.TakeText();
}

}  // namespace ckptfs::torch
