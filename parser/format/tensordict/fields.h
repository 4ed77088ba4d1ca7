// The fields of values and of tensorclasses, which are no tensors: in meta.json what JSON can hold,
// in other.pickle the rest.

#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "parser/base/budget.h"
#include "parser/base/error.h"
#include "parser/checkpoint.h"
#include "parser/codec/json_document.h"
#include "parser/format/tensordict/directory.h"

namespace ckptfs::tensordict {

struct Fields {
  std::string text;   // The text of a Collection: the class and the fields, as JSON.
  std::string types;  // Of those that JSON does not tell, an object; empty if there are none.
  std::optional<Error> error;  // Why other.pickle could not be read.
};

// Reads the fields of a collection whose meta.json is `meta`. What the result keeps is charged to
// `budget`. Throws Error(EFBIG).
Fields ReadFields(json::Node meta, const Directory& directory, Budget& budget);

// The same of a value: its data, and a Collection with the rest, if that is more than usual.
struct Data {
  Value value;
  std::optional<Error> error;
};
Data ReadData(json::Node meta, std::string_view type, const Directory& directory, Budget& budget);

// The members of `meta` but `without`, as the text of a Collection.
std::string TextOfMembers(json::Node meta, std::string_view without, Budget& budget);

}  // namespace ckptfs::tensordict
