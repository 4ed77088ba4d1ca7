// The pickle machine: runs a pickle symbolically. Nothing is imported, called or executed; a call
// that an unpickler would make becomes a node that describes it. Values and nodes form a graph,
// which owns their memory.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "parser/base/budget.h"

namespace ckptfs::pickle {

enum class Kind : uint8_t {
  kNone,
  kBool,        // integer: 0 or 1
  kInt,         // integer
  kBigInt,      // text: two's complement, least significant byte first, beyond 64 bits
  kDecimal,     // text: decimal digits, maybe after a minus, beyond 64 bits (protocols 0 and 1)
  kFloat,       // real
  kText,        // text: str in valid UTF-8, except that lone surrogates are encoded like the rest
  kBytes,       // text: bytes; Python 2's str is this too
  kByteArray,   // text
  kGlobal,      // node: a class or a function by name; items = [module, qualified name]
  kTuple,       // node: items
  kList,        // node: items
  kSet,         // node: items, as they were added; may repeat
  kFrozenSet,   // node: items; may repeat
  kDict,        // node: items = key, value, key, value, ... as they were set; keys may repeat
  kCall,        // node: target(*arguments): REDUCE, or INST and OBJ
  kNew,         // node: target.__new__(target, *arguments, **keywords)
  kPersistent,  // node: items = [persistent id]
};

struct Node;

// One Python value; 16 bytes, copied freely. Views into the memory of its Graph.
// NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init): one member of a union is all of them.
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

// An object with identity: two values with the same node are the same Python object. Nodes may form
// cycles, and there may be exponentially many paths to a node: a traversal must expect both.
struct Node {
  Kind kind;
  bool is_inst = false;   // A kCall by INST or OBJ, which create an instance of a class.
  uint32_t size = 0;      // Number of items.
  Value* data = nullptr;  // The items.

  // See Kind. Of kCall and kNew: the items that were appended or added to the object.
  std::span<const Value> items() const { return {data, size}; }
};

// The parts that few objects have.
struct Extras {
  Value keywords;            // A kDict or kNone.
  Node states{Kind::kList};  // The arguments of BUILD, oldest first.
  Node pairs{Kind::kDict};   // The items of SETITEM(S).
};

// A kCall or kNew.
struct Object : Node {
  Value target;              // The callable: mostly a kGlobal.
  Value arguments;           // A kTuple.
  Extras* extras = nullptr;  // Null if there are none.

  // The keyword arguments: a kDict or kNone.
  Value keywords() const { return extras == nullptr ? Value() : extras->keywords; }

  // The arguments of BUILD for the object: usually none or one.
  std::span<const Value> states() const {
    return extras == nullptr ? std::span<const Value>() : extras->states.items();
  }

  // The last of states(), kNone if there is none.
  Value state() const { return states().empty() ? Value() : states().back(); }

  // Key, value, ...: the items set on the object, in that order; keys may repeat.
  std::span<const Value> pairs() const {
    return extras == nullptr ? std::span<const Value>() : extras->pairs.items();
  }
};

// Whether `value` is a kCall or kNew.
inline bool IsObject(const Value& value) {
  return value.kind == Kind::kCall || value.kind == Kind::kNew;
}

// Precondition: the kind has a node.
inline std::span<const Value> ItemsOf(const Value& value) { return value.node->items(); }

// Precondition: IsObject(value).
inline const Object& ObjectOf(const Value& value) {
  return *static_cast<const Object*>(value.node);
}

// Whether `value` is the kGlobal `module`.`name`. In pickles of protocols 0 to 2, the machine has
// translated the names of Python 2 to those of Python 3: "__builtin__" to "builtins".
bool IsGlobal(const Value& value, std::string_view module, std::string_view name);

// "module.name" of a kGlobal.
std::string GlobalName(const Value& value);

// Allocates pieces of memory that live as long as the arena. Small pieces are cut from chunks; a
// large one has its own block, which is freed when it grows. Everything is charged to a Budget,
// which must outlive the arena. Pieces are aligned to 8 bytes, and no destructors run.
class Arena {
 public:
  explicit Arena(Budget& budget) : budget_(budget) {}
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Returns a piece of `size` bytes. Throws Error(EFBIG) if the budget is exhausted.
  void* Take(size_t size);

  // Returns a piece of `new_size` bytes that begins with the `old_size` bytes of `piece`, which is
  // freed; null is an empty piece. The latest small piece grows without a copy.
  void* Grow(void* piece, size_t old_size, size_t new_size);

 private:
  // A block that is charged to the budget: this head, then the memory.
  struct Block {
    Block* previous;
    Block* next;
    size_t size;  // Of all, in bytes.
  };

  // Returns the memory of a new block.
  std::byte* NewBlock(size_t size);
  void Free(Block* block);

  Budget& budget_;
  Block* blocks_ = nullptr;    // A list of all.
  std::byte* next_ = nullptr;  // The free part of the current chunk.
  size_t free_ = 0;            // Its size.
  size_t chunk_size_ = 0;      // Of the current chunk.
};

// The result of a run: the value that STOP returned, and its memory.
class Graph {
 public:
  explicit Graph(Budget& budget) : arena_(std::make_unique<Arena>(budget)) {}

  const Value& root() const { return root_; }

  // Value, state, value, state, ...: arguments of BUILD for values that are not objects. A real
  // unpickler fails there, or sets attributes of a global; here the value is unchanged, and the
  // state is kept for reports. A state of None has no effect and is skipped.
  std::span<const Value> stray_states() const { return stray_states_.items(); }

  // Every kGlobal of the pickle, in its order and with duplicates.
  std::span<const Value> globals() const { return globals_.items(); }

  // Every kCall and kNew, in the order of the calls, if the pickle was run by RunPartly; else
  // empty.
  std::span<const Value> calls() const { return calls_.items(); }

  // The length of the pickle up to and including STOP, in bytes.
  size_t consumed() const { return consumed_; }

 private:
  friend class Machine;

  std::unique_ptr<Arena> arena_;
  Value root_;
  Node stray_states_{Kind::kDict};
  Node globals_{Kind::kList};
  Node calls_{Kind::kList};
  size_t consumed_ = 0;
};

// Resolves a persistent id: returns `persistent` itself, a kPersistent, or another value that lives
// as long as the graph. May throw Error.
using Resolve = std::function<Value(const Value& persistent)>;

// Runs the pickle at the beginning of `pickle`, protocols 0 to 5; bytes after STOP are ignored.
// Each persistent id is passed to `resolve`, unless it is empty. `pickle` and `budget` must outlive
// the result, which points into the one and is charged to the other.
//
// Time and memory are linear in the size of `pickle`. Throws Error with the opcode and the
// byte: EBADMSG if it is not a pickle, ENOTSUP for opcodes with operands outside the pickle (EXT1,
// NEXT_BUFFER, ...) and later protocols, EFBIG beyond a limit or the budget.
//
// Errors that an unpickler finds only when it calls or compares (an unknown class, a list as a key)
// are not errors here.
Graph Load(std::span<const std::byte> pickle, Budget& budget, const Resolve& resolve = {});

}  // namespace ckptfs::pickle
