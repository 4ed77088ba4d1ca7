// The collections that tensordict saves: their classes, their meta.json, and placeholders for
// corrupt members.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "parser/base/budget.h"
#include "parser/base/error.h"
#include "parser/checkpoint.h"
#include "parser/codec/json_document.h"

namespace ckptfs::tensordict {

constexpr std::string_view kTensorDictType = "<class 'tensordict._td.TensorDict'>";
constexpr std::string_view kLazyStackType = "<class 'tensordict._lazy.LazyStackedTensorDict'>";
constexpr std::string_view kNonTensorDataType = "<class 'tensordict.tensorclass.NonTensorData'>";
constexpr std::string_view kNonTensorStackType = "<class 'tensordict.tensorclass.NonTensorStack'>";

// The maximum nesting of collections; tensordict's own recursion ends soon after.
constexpr int kMostDepth = 128;

enum class CollectionKind : uint8_t {
  kTensorDict,   // Tensors and collections by key.
  kStack,        // Collections "0", "1", ...
  kValue,        // Not a tensor: "data" is its JSON.
  kValueStack,   // "data" is a list in JSON; or as kStack.
  kView,         // A view of the collection "_source".
  kTensorClass,  // Tensors in "_tensordict", other fields in meta.json; or as kTensorDict.
};

// Returns the kind of the class `type`, a value of "_type". An unknown class is a kTensorClass.
CollectionKind KindOf(std::string_view type);

// Returns "torch.Size" for "<class 'torch.Size'>", and an empty text for any other form.
std::string_view ClassOf(std::string_view type);

// The properties of a collection besides its members.
struct Head {
  std::vector<uint64_t> batch_size;
  bool has_device = true;  // Shown as the CPU, whatever it was.
  std::string names;       // Of the dimensions, a JSON list; may be empty.
};

// Returns the member `key` of an object if it is a text, else an empty text.
std::string_view TextAt(json::Node object, std::string_view key);

// Returns the sizes of a shape. Throws Error(EBADMSG), whose message calls the shape `what`.
std::vector<uint64_t> SizesOf(json::Node list, std::string_view what);

// Returns the names of `count` dimensions in the form of Head::names; empty if they are invalid.
std::string NamesOf(json::Node list, size_t count);

// Returns the Collection of the class `type`; its text is empty if it is a TensorDict without a
// batch size on the CPU, as a dict is. Its memory is charged to `budget`.
Collection CollectionOf(Head head, std::string_view type, Budget& budget);

// Returns the text of a Collection of the class `type` whose members are stacked along `dimension`.
// `name` is the name of that dimension, or empty.
std::string StackText(uint64_t dimension, std::string_view name, std::string_view type);

// Appends `"name":` to members in JSON, and a comma before it except for the first one.
void AppendName(std::string& members, std::string_view name);

// Returns the path of the member `key` for messages. `path`, that of its collection, is empty or
// ends with a dot. Long paths are truncated.
std::string PathOf(std::string_view path, std::string_view key);

// Returns the placeholder for a value that cannot be read.
Value Lost(std::string_view class_name, const Error& error);

// Adds warnings and placeholders for the corrupt members of a checkpoint. Everything is charged to
// `budget`, which must outlive this, as must `checkpoint`. Belongs to one thread. `path` is the
// name of a member in messages.
class Losses {
 public:
  Losses(Budget& budget, Checkpoint& checkpoint) : budget_(budget), checkpoint_(checkpoint) {}

  // Counts a tensor that can be read.
  Content Keep(Tensor tensor);

  // Returns the placeholder for a corrupt tensor; `tensor` has its known properties. Throws `error`
  // if it is transient.
  Content LoseTensor(std::string_view path, Tensor tensor, const Error& error);

  // The same for a collection.
  Content LoseCollection(std::string_view path, const Error& error);

  // Throws Error(EBADMSG) if there were corrupt tensors and no tensor with elements can be read.
  void Finish() const;

 private:
  Budget& budget_;
  Checkpoint& checkpoint_;
  size_t readable_ = 0;         // Tensors with bytes.
  std::optional<Error> first_;  // The error of the first corrupt tensor.
};

// Removes the batch sizes of all TensorDicts that contain a composite tensor, at any depth, and
// annotates the TensorDicts with "batch_size". On a mount a composite tensor is a TensorDict of its
// parts. tensordict applies the batch size of a TensorDict to everything inside it, and parts such
// as offsets do not have that batch size, so that it could not load the mount. Throws Error(EFBIG).
void DropBatchSizesAroundComposites(Group& root, Budget& budget);

}  // namespace ckptfs::tensordict
