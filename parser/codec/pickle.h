// The pickle machine: runs a pickle symbolically. Nothing is imported, called or executed; what a
// real unpickler would call becomes a node that says what would have been called.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <span>
#include <string>
#include <string_view>

#include "parser/budget.h"

namespace ckptfs::pickle {

enum class Kind : uint8_t {
  kNone,
  kBool,       // integer: 0 or 1
  kInt,        // integer
  kBigInt,     // text: two's complement, least significant byte first, longer than 8 bytes
  kDecimal,    // text: decimal digits with an optional sign, beyond 64 bits (protocols 0 and 1)
  kFloat,      // real
  kText,       // text: str in UTF-8, possibly with lone surrogates
  kBytes,      // text: bytes; Python 2's str is this too
  kByteArray,  // text
  kGlobal,     // node: a class or a function by name; items = [module, qualified name]
  kTuple,      // node: items
  kList,       // node: items
  kSet,        // node: items
  kFrozenSet,  // node: items
  kDict,       // node: items = key, value, key, value, ... as they were set; keys may repeat
  kCall,       // node: target(*arguments): REDUCE, or INST and OBJ
  kNew,        // node: target.__new__(target, *arguments, **keywords)
  kPersistent, // node: items = [persistent id]
};

struct Node;

// One Python value; 16 bytes, copied freely. Views into the memory of its Graph.
struct Value {
  Kind kind = Kind::kNone;
  uint32_t length = 0;  // Of `text`, in bytes.
  union {
    int64_t integer = 0;
    double real;
    const char* text_data;
    Node* node;
  };

  // Precondition: the kind has a text.
  std::string_view text() const { return {text_data, length}; }
};

// A growing array of values in the memory of a Graph.
struct Sequence {
  Value* data = nullptr;
  uint32_t size = 0;
  uint32_t capacity = 0;

  std::span<const Value> view() const { return {data, size}; }
};

// What has identity: two values with the same node are the same Python object. Nodes may form
// cycles, and one node may be reached by very many paths: who walks them must expect both.
struct Node {
  Kind kind;
  bool is_inst = false;  // A kCall by INST or OBJ, which makes an instance of a class.
  Sequence items;        // See Kind. Of kCall and kNew: what was appended to the object.
};

// A kCall or kNew.
struct Object : Node {
  Value target;     // What is called: mostly a kGlobal.
  Value arguments;  // A kTuple; kNone for the rare call with something else is never made.
  Value keywords;   // A kDict or kNone.
  Value state;      // What BUILD gave to it; kNone if nothing.
  Sequence states;  // All of them, if BUILD came more than once; else empty.
  Sequence pairs;   // Key, value, ...: what SETITEM(S) set on the object.
};

// Precondition for each: the kind is right.
inline std::span<const Value> ItemsOf(const Value& value) { return value.node->items.view(); }
inline const Object& ObjectOf(const Value& value) {
  return *static_cast<const Object*>(value.node);
}
bool IsObject(const Value& value);  // kCall or kNew.

// Whether `value` is the kGlobal `module`.`name`. Python 2's module names count as Python 3's:
// the machine has changed "__builtin__" to "builtins" and "copy_reg" to "copyreg".
bool IsGlobal(const Value& value, std::string_view module, std::string_view name);

// "module.name" of a kGlobal.
std::string GlobalName(const Value& value);

// The result of a run: the value that STOP returned, and the memory that it lives in.
class Graph {
 public:
  explicit Graph(Budget& budget);

  const Value& root() const { return root_; }

  // Number of bytes of the pickle up to and with STOP.
  size_t consumed() const { return consumed_; }

 private:
  friend class Machine;

  std::unique_ptr<std::pmr::monotonic_buffer_resource> arena_;
  Value root_;
  size_t consumed_ = 0;
};

// Runs the pickle at the beginning of `pickle`, protocols 0 to 5; what follows STOP is left alone.
// `pickle` must outlive the result, which points into it.
//
// Time and memory are linear in the size of `pickle`: memory is taken from `budget`. Throws Error
// that says the opcode and the byte: EBADMSG for what is no pickle, ENOTSUP for opcodes that need
// something from outside (EXT1, NEXT_BUFFER, ...), EFBIG for what exceeds a limit.
Graph Load(std::span<const std::byte> pickle, Budget& budget);

}  // namespace ckptfs::pickle
