#include "parser/codec/pickle/builder.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <memory>
#include <new>

#include "parser/base/error.h"
#include "parser/codec/pickle/text.h"

namespace ckptfs::pickle {
namespace {

constexpr size_t kMaxIntegerBytes = 4096;
constexpr size_t kMaxIntegerDigits = 4300;  // The limit of Python, too.

bool IsNegative(char most_significant) { return (most_significant & 0x80) != 0; }

bool Grows(Kind kind) { return kind == Kind::kList || kind == Kind::kSet || kind == Kind::kDict; }

// The value that is `node`.
Value OfNode(Node* node) {
  Value value;
  value.kind = node->kind;
  value.node = node;
  return value;
}

}  // namespace

Value OfInteger(Kind kind, int64_t integer) {
  Value value;
  value.kind = kind;
  value.integer = integer;
  return value;
}

Value OfReal(double real) {
  Value value;
  value.kind = Kind::kFloat;
  value.real = real;
  return value;
}

Value OfText(Kind kind, std::string_view text) {
  Value value;
  value.kind = kind;
  value.length = static_cast<uint32_t>(text.size());
  value.text_data = text.data();
  return value;
}

Value OfTwosComplement(std::string_view bytes) {
  if (bytes.size() > kMaxIntegerBytes) {
    Fail(EFBIG, "number has {} bytes (maximum {})", bytes.size(), kMaxIntegerBytes);
  }
  while (bytes.size() > sizeof(int64_t)) {  // Drop what only repeats the sign.
    const char sign = IsNegative(bytes[bytes.size() - 2]) ? '\xff' : '\0';
    if (bytes.back() != sign) return OfText(Kind::kBigInt, bytes);
    bytes.remove_suffix(1);
  }
  if (bytes.empty()) return OfInteger(Kind::kInt, 0);
  int64_t integer = IsNegative(bytes.back()) ? -1 : 0;
  std::memcpy(&integer, bytes.data(), bytes.size());
  return OfInteger(Kind::kInt, integer);
}

Value OfDecimal(std::string_view line) {
  if (line.size() > kMaxIntegerDigits) {
    Fail(EFBIG, "number has {} digits (maximum {})", line.size(), kMaxIntegerDigits);
  }
  if (const auto integer = ParseInteger(line)) return OfInteger(Kind::kInt, *integer);
  return OfText(Kind::kDecimal, line);
}

std::string_view Builder::Keep(std::string_view text) {
  if (text.empty()) return {};
  char* kept = static_cast<char*>(arena_.Take(text.size()));
  std::ranges::copy(text, kept);
  return {kept, text.size()};
}

Value Builder::MakeNode(Kind kind, std::span<const Value> items) {
  if (Grows(kind)) return OfNode(MakeGrowing(kind, items));
  if (kind != Kind::kTuple || !items.empty()) return OfNode(MakeFixed(kind, items));
  if (empty_tuple_ == nullptr) empty_tuple_ = MakeFixed(kind, items);
  return OfNode(empty_tuple_);
}

// The items of a container that never grows follow it in memory.
Node* Builder::MakeFixed(Kind kind, std::span<const Value> items) {
  auto* memory = static_cast<std::byte*>(arena_.Take(sizeof(Node) + items.size_bytes()));
  auto* node = new (memory) Node{kind};
  node->size = static_cast<uint32_t>(items.size());
  node->data = reinterpret_cast<Value*>(memory + sizeof(Node));
  std::uninitialized_copy(items.begin(), items.end(), node->data);
  return node;
}

Node* Builder::MakeGrowing(Kind kind, std::span<const Value> items) {
  auto* node = new (arena_.Take(sizeof(Node))) Node{kind};
  Append(*node, items);
  return node;
}

Value Builder::MakeObject(Kind kind, const Value& target, const Value& arguments) {
  return OfNode(new (arena_.Take(sizeof(Object))) Object{{kind}, target, arguments});
}

Extras& Builder::ExtrasOf(Node* object) {
  Extras*& extras = static_cast<Object*>(object)->extras;
  if (extras == nullptr) extras = new (arena_.Take(sizeof(Extras))) Extras;
  return *extras;
}

// The capacity of a node is its number of items, rounded up to a power of two.
void Builder::Append(Node& node, std::span<const Value> items) {
  if (items.empty()) return;
  const size_t size = node.size + items.size();
  const size_t room = node.size == 0 ? 0 : std::bit_ceil(size_t{node.size});
  if (size > room) {
    node.data = static_cast<Value*>(
        arena_.Grow(node.data, room * sizeof(Value), std::bit_ceil(size) * sizeof(Value)));
  }
  std::uninitialized_copy(items.begin(), items.end(), node.data + node.size);
  node.size = static_cast<uint32_t>(size);
}

}  // namespace ckptfs::pickle
