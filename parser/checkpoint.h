// The contents of a checkpoint in any format: a tree of groups, tensors and values.

#pragma once

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
#include "parser/base/error.h"
#include "parser/io/byte_source.h"

namespace ckptfs {

// The name of a member in its group.
struct Key {
  enum class Kind : uint8_t {
    kText,    // A string of the checkpoint; a name that is split at dots.
    kWhole,   // A string that is not split at dots.
    kNumber,  // An integer of a dict or the index of a list; `text` is in decimal.
    kOther,   // Anything else; `text` is what Python prints: "(1, 'a')", "None", "b'k'".
  };

  std::string text;  // Any bytes: may be empty, contain NUL, or not be UTF-8.
  Kind kind = Kind::kText;
};

// A property of a member or of the checkpoint: a name as in meta.json ("requires_grad",
// "quantizer") and a JSON text. Annotations are for output only.
using Annotation = std::pair<std::string_view, std::string>;  // The names are literals.

// The type of a PyTorch storage that is in a checkpoint by itself, without a tensor.
struct StorageType {
  Dtype dtype = Dtype::kUint8;  // The tensor has bytes instead if elements share one.
  bool is_untyped = false;
  bool is_big_endian = false;
};

// The numbers that integers q stand for: (q - zero_point) * scale.
struct Quantizer {
  double scale = 1;
  int64_t zero_point = 0;

  bool operator==(const Quantizer&) const = default;
};

// One tensor: how to interpret it and where its bytes are.
struct Tensor {
  Dtype dtype = Dtype::kOpaque;
  std::string foreign_dtype;    // The name of a kOpaque type in the checkpoint; else empty.
  std::vector<uint64_t> shape;  // Row-major; empty for a scalar.
  Extent data;                  // Little-endian elements, densely packed.
  std::optional<Error> error;   // Set: reads fail with it.

  std::string member;          // The member of the file with the bytes: "data/0". May be empty.
  uint64_t file_offset = 0;    // Of the first element in the file, in bytes, ...
  bool is_in_file = false;     // ... if the file contains the same bytes.
  bool is_big_endian = false;  // Of a kOpaque type: the parts of its elements are.
  bool is_complete = true;     // Whether all pieces of an assembled tensor are present.
  std::optional<Quantizer> quantizer;  // Of a quantized type with one for all elements.
  std::optional<StorageType> storage;  // Set if this is a storage by itself.
  std::vector<Annotation> annotations;

  // Not null: this is a nested tensor. `data` is the concatenation of its components, `shape` their
  // number, and `sizes` a matrix of int64 whose rows are their shapes. It has no error.
  std::shared_ptr<const Tensor> sizes;
};

// The batch size of a TensorDict: the shapes of its members begin with these dimensions.
struct Batch {
  std::vector<uint64_t> size;
  std::string names;  // Of the dimensions, a JSON list; empty if they have no names.
};

// The meta.json of a directory for tensordict, where it differs from that of a dict or a value.
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

// JSON of a checkpoint that exceeds this size, in bytes, is a file of its own on the mount and not
// a part of a meta.json, unless tensordict itself stores it there.
constexpr size_t kMaxInlineJson = size_t{1} << 20U;

// Anything except a tensor: a number, a text, a dict without tensors, an object.
struct Value {
  std::string json;            // Strict JSON.
  std::string python_type;     // If JSON cannot express it: "tuple", "set", "numpy.float32".
  std::optional<Error> error;  // Set: the object cannot be read, and `json` describes it.
  std::vector<Annotation> annotations;
  Collection collection;
};

// A table or a long list, too large for a value: its rows are a file of JSON lines.
struct Table {
  Extent data;                 // The lines as stored.
  std::string python_type;     // "list", "tuple", "pandas.DataFrame".
  std::optional<Error> error;  // Set: reads fail with it.

  std::string member;  // The member of the file with the bytes. May be empty.
  std::vector<Annotation> annotations;
};

struct Member;

// A dict, a list or an object that contains a tensor at any depth.
struct Group {
  std::vector<Member> members;  // In the order of the checkpoint. Keys may occur twice.
  std::string python_type;      // Unless it is a dict: "list", "torch.nn.modules.linear.Linear".
  std::vector<Annotation> annotations;

  // Not empty: this is a composite tensor, whose parts are the members. "class", "shape", "recipe"
  // and others describe its assembly in its own meta.json.
  std::vector<Annotation> about;

  // Not null: this is the part of a table that contains tensors; the rows are shown beside it.
  std::unique_ptr<Table> table;

  Collection collection;
};

using Content = std::variant<std::unique_ptr<Group>, Tensor, Value, Table>;

// A visitor of contents made of one function for each kind: without a default `auto&`, one that
// lacks a kind does not compile.
template <typename... Functions>
struct Overloaded : Functions... {
  using Functions::operator()...;
};

template <typename... Functions>
Overloaded(Functions...) -> Overloaded<Functions...>;

struct Member {
  Key key;
  Content content;
};

// Compares the numbers that are the keys of two members: digits without leading zeros.
bool HasSmallerNumber(const Member& a, const Member& b);

// A class or function that the pickles of a checkpoint import.
struct Global {
  std::string name;         // "torch.FloatStorage"
  bool is_refused = false;  // By torch.load(weights_only=True).

  friend bool operator==(const Global&, const Global&) = default;
};

// The root is always a group. If the checkpoint is a single tensor or value, the root has one
// member, `tensor` or `value`.
struct Checkpoint {
  std::string_view format;  // The name of its Format.
  Group root;
  std::vector<std::string> warnings;    // Messages for the terminal about corrupt or ignored parts.
  std::vector<Annotation> annotations;  // About the file as a whole: {"byteorder", "\"little\""}.
  std::vector<Global> globals;          // Sorted by name, each once.

  // Of a folder: the names of the files and subfolders in it that the checkpoint consists of.
  std::vector<std::string> parts;
};

// Returns the annotations of a group, a tensor, a value or a table.
std::vector<Annotation>& AnnotationsOf(Content& content);

// Checks the invariants that consumers rely on: shapes have at most kMaxDimensions, and each extent
// lies within its source and has the size that dtype and shape imply. Of members with an error,
// only the size is checked. Throws Error that names the tensor or the table.
void Validate(const Checkpoint& checkpoint);

// Makes the group at `path`, keys separated by slashes, the root of `checkpoint`. If no member has
// a key, but dotted keys begin with it, the group consists of these. Throws Error(ENOENT) that
// names the keys that exist if there is no such group.
void TakeSubtree(Checkpoint& checkpoint, std::string_view path);

}  // namespace ckptfs
