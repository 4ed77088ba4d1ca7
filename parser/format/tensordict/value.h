// Values and fields of collections that are not tensors: JSON, and pickles for what JSON cannot
// hold.

#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "parser/base/budget.h"
#include "parser/base/error.h"
#include "parser/checkpoint.h"
#include "parser/codec/json_document.h"
#include "parser/format/archive/record.h"
#include "parser/format/tensordict/directory.h"

namespace ckptfs::tensordict {

// Returns `node` as strict JSON. NaN, infinities and integers beyond 64 bits become strings; their
// types are recorded, those inside the value in the annotation "python_types" (an object: JSON
// pointer -> type). The last one of repeated keys counts, as in Python. Memory is charged to
// `budget`. Throws Error(EFBIG).
Value ValueOf(json::Node node, Budget& budget);

// Pickles beside meta.json. They are interpreted symbolically: nothing in them is executed.
//
//   other.pickle   of a value or of a tensorclass: {field: value}
//   pickle.pkl     of a stack of values: nested lists of values

constexpr const char* kFieldsName = "other.pickle";
constexpr const char* kStackName = "pickle.pkl";

// Returns the fields in an other.pickle; an empty list if it is not a dict. The result is charged
// to `budget`. Throws Error.
std::vector<std::pair<std::string, Value>> ReadFields(const Record& record, Budget& budget);

// Returns the stack in a pickle.pkl. As in tensordict, nested lists of equal length are stacks
// inside the stack, and any other item is a value. The result is charged to `budget`. Throws Error.
std::unique_ptr<Group> ReadStack(const Record& record, Budget& budget);

// The fields of a tensorclass or of a value: those that JSON can hold are in meta.json, the others
// in other.pickle.
struct Fields {
  std::string text;            // The text of a Collection: the class and the fields, as JSON.
  std::string types;           // Types that JSON cannot express, an object; may be empty.
  std::optional<Error> error;  // The error of reading other.pickle.
};

// Reads the fields of the collection with the meta.json `meta`. The result is charged to `budget`.
// Throws Error(EFBIG).
Fields ReadFields(json::Node meta, const Directory& directory, Budget& budget);

struct Data {
  Value value;
  std::optional<Error> error;  // The error of reading other.pickle.
};

// Reads the data of a value. Its Collection contains the other fields, if there are unusual ones.
Data ReadData(json::Node meta, std::string_view type, const Directory& directory, Budget& budget);

// Returns the members of `meta`, except `without`, as the text of a Collection.
std::string TextOfMembers(json::Node meta, std::string_view without, Budget& budget);

}  // namespace ckptfs::tensordict
