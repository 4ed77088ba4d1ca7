// The jagged tensors of a consolidated file. Each is several leaves there:
//
//   <NJT_VALUES>k     the tensors in it, one after another along one dimension
//   <NJT_OFFSETS>k    where each begins; its last item says which dimension that is
//   <NJT_LENGTHS>k    how long each is, if there are holes between them
//
// memmap of tensordict refuses them, so a mount cannot have them as they were: it has their parts,
// named as those of a .pth are, and the call that puts them together.

#pragma once

#include <cstddef>
#include <memory_resource>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "parser/base/budget.h"
#include "parser/base/secret_hash.h"
#include "parser/checkpoint.h"
#include "parser/codec/json_document.h"

namespace ckptfs::tensordict {

class Jagged {
 public:
  // `leaves` and what they point to must outlive this.
  Jagged(std::span<const json::Members::Member> leaves, Budget& budget);

  // Whether `leaf` is a part of a jagged tensor whose values and offsets are there, ...
  bool IsPart(std::string_view leaf) const;

  // ... and if it is the values of one: that tensor. Else nothing.
  struct Composite {
    std::string_view key;
    std::vector<std::pair<std::string_view, json::Node>> parts;  // By their names.
    std::vector<Annotation> about;                               // What their directory tells.
  };
  std::optional<Composite> CompositeOf(std::string_view leaf) const;

 private:
  struct Parts {
    std::optional<json::Node> values;
    std::optional<json::Node> offsets;
    std::optional<json::Node> lengths;
  };

  const Parts* Find(std::string_view key) const;

  std::pmr::unordered_map<std::string_view, Parts, SecretHash> tensors_;
};

}  // namespace ckptfs::tensordict
