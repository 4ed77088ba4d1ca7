// Creates the values of a pickle and the nodes of its graph.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "parser/codec/pickle.h"

namespace ckptfs::pickle {

// Values without a node.
Value OfInteger(Kind kind, int64_t integer);
Value OfReal(double real);

// Precondition: `text`, as every text of a pickle, has less than 4 GiB.
Value OfText(Kind kind, std::string_view text);

// Decodes the argument of LONG1 and LONG4, least significant byte first.
Value OfTwosComplement(std::string_view bytes);

// Decodes the argument of INT and LONG, decimal digits.
Value OfDecimal(std::string_view line);

// Creates nodes in an arena, which must outlive it.
class Builder {
 public:
  explicit Builder(Arena& arena) : arena_(arena) {}

  // Returns a copy of `text`.
  std::string_view Keep(std::string_view text);

  // Returns a node of any kind except kCall and kNew. There is only one empty tuple, as in Python.
  Value MakeNode(Kind kind, std::span<const Value> items);

  // Returns a kCall or a kNew.
  Value MakeObject(Kind kind, const Value& target, const Value& arguments);

  // Returns the extras of an object; creates missing ones.
  Extras& ExtrasOf(Node* object);

  // Adds to the items of a list, a set, a dict or an object.
  void Append(Node& node, std::span<const Value> items);

 private:
  Node* MakeFixed(Kind kind, std::span<const Value> items);
  Node* MakeGrowing(Kind kind, std::span<const Value> items);

  Arena& arena_;
  Node* empty_tuple_ = nullptr;
};

}  // namespace ckptfs::pickle
