// What tensordict calls the collections that it saves, and what their meta.json says of them.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "parser/base/budget.h"
#include "parser/checkpoint.h"
#include "parser/codec/json_document.h"

namespace ckptfs::tensordict {

constexpr std::string_view kTensorDictType = "<class 'tensordict._td.TensorDict'>";
constexpr std::string_view kLazyStackType = "<class 'tensordict._lazy.LazyStackedTensorDict'>";
constexpr std::string_view kNonTensorDataType = "<class 'tensordict.tensorclass.NonTensorData'>";
constexpr std::string_view kNonTensorStackType = "<class 'tensordict.tensorclass.NonTensorStack'>";

// How many collections may lie in one another; tensordict's own recursion ends not long after.
constexpr int kMostDepth = 128;

enum class CollectionKind : uint8_t {
  kTensorDict,   // Tensors and collections by key.
  kStack,        // Collections "0", "1", ...
  kValue,        // No tensor: "data" is its JSON.
  kValueStack,   // "data" is a list in JSON; or as kStack.
  kView,         // Another way to look at the collection "_source".
  kTensorClass,  // Tensors in "_tensordict", other fields in meta.json; or as kTensorDict.
};

// What `type`, a _type, says. A class that nobody knows is a kTensorClass.
CollectionKind KindOf(std::string_view type);

// "torch.Size" of "<class 'torch.Size'>". Empty if it is not written so.
std::string_view ClassOf(std::string_view type);

// What tensordict knows of a collection beside its members.
struct Head {
  std::vector<uint64_t> batch_size;
  bool has_device = true;  // Which is the CPU here, whatever it was.
  std::string names;       // Of the dimensions, a list in JSON; empty if they have none.
};

// The member `key` of an object if that is a text, else an empty one.
std::string_view TextAt(json::Node object, std::string_view key);

// Returns the sizes that a shape has. Throws Error(EBADMSG) that calls it `what`.
std::vector<uint64_t> SizesOf(json::Node list, std::string_view what);

// The names of `count` dimensions as Head has them. What cannot be that is no name.
std::string NamesOf(json::Node list, size_t count);

// Returns the Collection of the class `type`; its text is empty if it is a TensorDict without a
// batch size on the CPU, as a dict is. Its memory is charged to `budget`.
Collection CollectionOf(Head head, std::string_view type, Budget& budget);

// The text of a Collection of the class `type` whose members are stacked along `dimension`, which
// is called `name` unless that is empty.
std::string StackText(uint64_t dimension, std::string_view name, std::string_view type);

// Appends ,"name": to members in JSON; no comma before the first.
void AppendName(std::string& members, std::string_view name);

}  // namespace ckptfs::tensordict
