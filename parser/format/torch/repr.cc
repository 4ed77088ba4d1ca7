#include "parser/format/torch/repr.h"

#include <fmt/format.h>

#include <span>
#include <utility>
#include <vector>

#include "parser/base/encoding.h"
#include "parser/base/metering.h"
#include "parser/format/torch/bytes.h"
#include "parser/format/torch/vocabulary.h"

namespace ckptfs::torch {
namespace {

using pickle::ItemsOf;
using pickle::Kind;
using pickle::Object;
using pickle::ObjectOf;
using pickle::Value;
using Values = std::span<const Value>;

std::string ReprOfText(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') out += '\\';
    if (c == '\n') {
      out += "\\n";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      out += "\\x";
      AppendHex(out, {&c, 1});
    } else {
      out += c;
    }
  }
  return out + "'";
}

std::string ReprOfBytes(std::string_view bytes) {
  std::string out = "b'";
  for (const char c : bytes) {
    if (c == '\'' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c >= 0x20 && c < 0x7f) {
      out += c;
    } else {
      out += "\\x";
      AppendHex(out, {&c, 1});
    }
  }
  return out + "'";
}

constexpr size_t kMaxRepr = 1024;  // Bytes, about.

// Cut where it is longer than names are: objects by the thousand may share one.
std::string ReprOfGlobal(const Value& global) {
  const Values names = ItemsOf(global);
  return fmt::format("{}.{}", names[0].text().substr(0, kMaxRepr),
                     names[1].text().substr(0, kMaxRepr));
}
constexpr int kMaxReprDepth = 6;

void AppendRepr(std::string& out, const Value& value, int depth);

void AppendReprItems(std::string& out, Values items, int depth) {
  bool is_first = true;
  for (const Value& item : items) {
    if (!std::exchange(is_first, false)) out += ", ";
    if (out.size() > kMaxRepr) {
      out += "...";
      return;
    }
    AppendRepr(out, item, depth);
  }
}

void AppendReprContainer(std::string& out, const Value& value, int depth) {
  const bool is_tuple = value.kind == Kind::kTuple;
  const bool is_list = value.kind == Kind::kList;
  if (value.kind == Kind::kFrozenSet) out += "frozenset(";
  out += is_tuple ? '(' : is_list ? '[' : '{';
  if (depth >= kMaxReprDepth) {
    out += "...";
  } else if (value.kind == Kind::kDict) {
    const Values pairs = ItemsOf(value);
    for (size_t i = 0; i + 1 < pairs.size() && out.size() < kMaxRepr; i += 2) {
      if (i > 0) out += ", ";
      AppendRepr(out, pairs[i], depth + 1);
      out += ": ";
      AppendRepr(out, pairs[i + 1], depth + 1);
    }
  } else {
    AppendReprItems(out, ItemsOf(value), depth + 1);
    if (is_tuple && ItemsOf(value).size() == 1) out += ',';
  }
  out += is_tuple ? ')' : is_list ? ']' : '}';
  if (value.kind == Kind::kFrozenSet) out += ')';
}

// Calls that Python prints as such, with their arguments; of all others the class.
void AppendReprObject(std::string& out, const Object& object, int depth) {
  const Known known = KnownCallable(object.target);
  const Values arguments = ItemsOf(object.arguments);
  if (object.target.kind != Kind::kGlobal || depth >= kMaxReprDepth) {
    out += "<object>";
  } else if (known == Known::kSize && arguments.size() == 1 && arguments[0].kind == Kind::kTuple) {
    out += "torch.Size([";
    AppendReprItems(out, ItemsOf(arguments[0]), depth + 1);
    out += "])";
  } else if (known == Known::kEncode && !arguments.empty() && arguments[0].kind == Kind::kText) {
    const auto bytes = BytesOfLatin1(arguments[0].text().substr(0, kMaxRepr));
    out += bytes ? ReprOfBytes(*bytes) : "<bytes>";
  } else if (known == Known::kPrintedCall || known == Known::kComplex) {
    std::string name = ReprOfGlobal(object.target);
    if (name.starts_with("builtins.")) name.erase(0, name.find('.') + 1);
    if (name == "xrange") name = "range";
    out += name + "(";
    AppendReprItems(out, arguments, depth + 1);
    out += ")";
  } else {
    out += fmt::format("<{}>", ReprOfGlobal(object.target));
  }
}

void AppendRepr(std::string& out, const Value& value, int depth) {
  switch (value.kind) {
    case Kind::kNone:
      out += "None";
      return;
    case Kind::kBool:
      out += value.integer != 0 ? "True" : "False";
      return;
    case Kind::kInt:
    case Kind::kBigInt:
    case Kind::kDecimal:
      out += Decimal(value);
      return;
    case Kind::kFloat:
      out += fmt::format("{}", value.real);
      if (out.find_first_of(".en", out.size() - fmt::formatted_size("{}", value.real)) ==
          std::string::npos) {
        out += ".0";
      }
      return;
    case Kind::kText:
      out += ReprOfText(value.text().substr(0, kMaxRepr));
      return;
    case Kind::kBytes:
      out += ReprOfBytes(value.text().substr(0, kMaxRepr));
      return;
    case Kind::kByteArray:
      out += fmt::format("bytearray({})", ReprOfBytes(value.text().substr(0, kMaxRepr)));
      return;
    case Kind::kGlobal:
      out += ReprOfGlobal(value);
      return;
    case Kind::kTuple:
    case Kind::kList:
    case Kind::kSet:
    case Kind::kFrozenSet:
    case Kind::kDict:
      AppendReprContainer(out, value, depth);
      return;
    case Kind::kCall:
    case Kind::kNew:
      AppendReprObject(out, ObjectOf(value), depth);
      return;
    case Kind::kPersistent:
      out += "<storage>";
      return;
  }
}

// Digits that Python converts to and from decimal, which takes time by their square. What has more
// is shown in hexadecimal.
constexpr size_t kMostDecimalBytes = 1785;  // 4,300 digits.

std::string HexOfBytes(std::string_view bytes, bool is_negative) {
  while (bytes.size() > 1 && bytes.back() == 0) bytes.remove_suffix(1);
  CountWork(bytes.size() / 4);
  std::string digits = is_negative ? "-0x" : "0x";
  digits.reserve(digits.size() + 2 * bytes.size());
  AppendHex(digits, std::string(bytes.rbegin(), bytes.rend()));
  return digits;
}

// The digits of a number in two's complement.
std::string DigitsOfBytes(std::string_view little_endian) {
  std::string bytes(little_endian);
  const bool is_negative =
      !bytes.empty() && (static_cast<unsigned char>(bytes.back()) & 0x80U) != 0;
  if (is_negative) {
    unsigned carry = 1;
    for (char& c : bytes) {
      const unsigned sum = (~static_cast<unsigned char>(c) & 0xFFU) + carry;
      c = static_cast<char>(sum & 0xFFU);
      carry = sum >> 8U;
    }
  }
  if (bytes.size() > kMostDecimalBytes) return HexOfBytes(bytes, is_negative);
  CountWork(bytes.size() * bytes.size() / 32);
  // Groups of nine digits, the least significant first.
  std::vector<uint32_t> groups;
  for (size_t i = bytes.size(); i-- > 0;) {
    uint64_t carry = static_cast<unsigned char>(bytes[i]);
    for (uint32_t& group : groups) {
      carry += uint64_t{group} << 8U;
      group = static_cast<uint32_t>(carry % 1'000'000'000);
      carry /= 1'000'000'000;
    }
    if (carry != 0) groups.push_back(static_cast<uint32_t>(carry));
  }
  if (groups.empty()) return "0";
  std::string digits = (is_negative ? "-" : "") + std::to_string(groups.back());
  for (size_t i = groups.size() - 1; i-- > 0;) digits += fmt::format("{:09}", groups[i]);
  return digits;
}

}  // namespace

std::string Decimal(const Value& integer) {
  if (integer.kind == Kind::kInt) return std::to_string(integer.integer);
  if (integer.kind == Kind::kBigInt) return DigitsOfBytes(integer.text());
  return std::string(integer.text());
}

std::string Repr(const Value& value) {
  std::string out;
  AppendRepr(out, value, 0);
  return out;
}

}  // namespace ckptfs::torch
