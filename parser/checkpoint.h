// What a checkpoint contains, whatever format it came in: a tree of groups, tensors and values.

#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "parser/base/dtype.h"
#include "parser/io/byte_source.h"

namespace ckptfs {

// What a member is called in its group.
struct Key {
  enum class Kind : uint8_t {
    kText,    // A string of the checkpoint; a name that is split at dots.
    kWhole,   // A string whose dots separate nothing.
    kNumber,  // An integer of a dict or the index of a list; `text` is in decimal.
    kOther,   // Anything else; `text` is what Python prints: "(1, 'a')", "None", "b'k'".
  };

  std::string text;  // Any bytes at all: empty, with NUL, not UTF-8.
  Kind kind = Kind::kText;
};

// Something that we know about a tensor or a value and that its reader may want to know: a name and
// a text in JSON. Names are as in meta.json: "requires_grad", "quantizer".
using Annotation = std::pair<std::string_view, std::string>;  // The names are literals.

// What a storage of PyTorch is that a checkpoint has by itself, without a tensor of it.
struct StorageType {
  Dtype dtype = Dtype::kUint8;  // The tensor has bytes instead if elements share one.
  bool is_untyped = false;
  bool is_big_endian = false;
};

// One tensor: how to interpret it and where its bytes are.
struct Tensor {
  Dtype dtype = Dtype::kOpaque;
  std::string foreign_dtype;    // What the checkpoint calls a kOpaque type; else empty.
  std::vector<uint64_t> shape;  // Row-major; empty for a scalar.
  Extent data;                  // Little-endian elements, densely packed.
  std::string error;            // Not empty: why its bytes cannot be had.
  int error_code = EIO;         // What reading it is then.

  std::string member;        // The part of the file that the bytes are in: "data/0". May be empty.
  uint64_t file_offset = 0;  // Of the first element in the file, in bytes, ...
  bool is_in_file = false;   // ... if the file has it as it is, byte by byte.
  bool is_complete = true;   // Whether all pieces of an assembled tensor are present.
  std::optional<StorageType> storage;  // Set if this is a storage by itself.
  std::vector<Annotation> annotations;

  // Not null: this is a nested tensor, several tensors of which `data` has the elements one after
  // another, and `shape` their number. What this points to is the matrix of int64 whose rows are
  // their shapes. It has no error.
  std::shared_ptr<const Tensor> sizes;
};

// What the members of a TensorDict have in common: their shapes begin with these dimensions.
struct Batch {
  std::vector<uint64_t> size;
  std::string names;  // Of the dimensions, a list in JSON; empty if they have no names.
};

// What tensordict calls a directory, where that is not what it calls a dict or a value as a rule.
struct Collection {
  // Members of its meta.json, in JSON without braces around them: "_type", "device", "stack_dim",
  // ...; of a value all but "data". Empty: those that a dict or a value has as a rule.
  std::string text;

  // Of a TensorDict whose `text` is not empty: further members, "shape" and "_names".
  std::optional<Batch> batch;

  // Of a group: tensordict takes whatever else is in that meta.json for a field of the class, so
  // the members of the group are not listed there, and found by their names.
  bool is_closed = false;

  // Of a value, if not empty: likewise of a TensorDict without members, `_tensordict`, which has
  // the batch size of the value.
  std::string inner;

  // Returns the members of `batch` and `text`.
  std::string Json() const;
};

// JSON of a checkpoint that is longer than this, in bytes, is a file of its own on the mount, and no
// part of a meta.json, but for what tensordict itself has there.
constexpr size_t kMaxInlineJson = size_t{1} << 20U;

// Anything that is no tensor: a number, a text, a dict without tensors, an object.
struct Value {
  std::string json;         // Strict JSON.
  std::string python_type;  // Where JSON does not tell it: "tuple", "set", "numpy.float32".
  std::vector<Annotation> annotations;
  Collection collection;
};

// A table or a long list: too much for a value, so its rows are a file of their own, in JSON, one a
// line.
struct Table {
  Extent data;              // The lines, as the checkpoint has them.
  std::string python_type;  // "list", "tuple", "pandas.DataFrame".
  std::string error;        // Not empty: why its bytes cannot be had.
  int error_code = EIO;     // What reading it is then.

  std::string member;  // The part of the file that the bytes are in. May be empty.
  std::vector<Annotation> annotations;
};

struct Member;

// A dict, a list or an object that has a tensor somewhere in it.
struct Group {
  std::vector<Member> members;  // In the order of the checkpoint. Keys may occur twice.
  std::string python_type;      // Where it is no dict: "list", "torch.nn.modules.linear.Linear".
  std::vector<Annotation> annotations;

  // Not empty: a tensor that is made of its members. What it is, and how it is put together:
  // "class", "shape", "recipe", ..., which its own meta.json tells.
  std::vector<Annotation> about;

  // Not null: this is the part of the table that has tensors in it; its rows are shown beside it.
  std::unique_ptr<Table> table;

  Collection collection;
};

using Content = std::variant<std::unique_ptr<Group>, Tensor, Value, Table>;

struct Member {
  Key key;
  Content content;
};

// A class or function that the pickles of a checkpoint import.
struct Global {
  std::string name;         // "torch.FloatStorage"
  bool is_refused = false;  // By torch.load(weights_only=True).
};

// The root is a group, also where the checkpoint is a single tensor or a single value: then it has
// one member, `tensor` or `value`.
struct Checkpoint {
  std::string_view format;  // Name of the Format that read it.
  Group root;
  std::vector<std::string> warnings;    // Sentences for the terminal: what is damaged or left out.
  std::vector<Annotation> annotations;  // About the file as a whole: {"byteorder", "\"little\""}.
  std::vector<Global> globals;          // Sorted by name, each once.
};

// Checks what no consumer should have to check again: shapes have at most kMaxDimensions, and each
// extent lies within its source and has the size that dtype and shape imply. What has an error
// needs its length only. Throws Error that names the tensor or the table.
void Validate(const Checkpoint& checkpoint);

}  // namespace ckptfs
