// What the objects in the JSON of ZANJ stand for.
//
// An object that is more than a dict says so in its member "__muutils_format__" (before ZANJ 0.4.0
// "__format__"): an array or a table with its data or with a "$ref" to the member of the archive
// that has it, a set, or the name of a class.
//
//   numpy.ndarray:array_list_meta   torch.Tensor:external       list:external
//   pandas.DataFrame:external       set                         Config(SerializableDataclass)

#pragma once

#include <cstdint>
#include <string_view>

#include "parser/codec/json_document.h"

namespace ckptfs::zanj {

struct Tag {
  enum class Kind : uint8_t {
    kNone,           // No object, or a dict.
    kClass,          // An object of the class `text`.
    kSet,            // `data` is a list.
    kLists,          // An array whose elements are lists in lists, ...
    kHex,            // ... hex digits, ...
    kBase64,         // ... base64, ...
    kScalar,         // ... a single one without a list around it, ...
    kExternalArray,  // ... or a member of the archive.
    kTable,          // A table whose rows are here.
    kExternalTable,  // Rows that are a member of the archive: of a table or a long list.
    kText,           // An object that ZANJ has no form for: texts that describe it.
  };

  Kind kind = Kind::kNone;
  std::string_view text;  // The tag as it is; empty if there is none.
  std::string_view type;  // The part that names a type: "torch.Tensor". May be empty.

  bool is_array() const { return kind >= Kind::kLists && kind <= Kind::kExternalArray; }
  bool is_table() const { return kind == Kind::kTable || kind == Kind::kExternalTable; }
};

// Returns what `node` is. A set whose data are outside is a table.
Tag TagOf(json::Node node);

// Returns the name of the member that has what `node` keeps outside. Precondition: its tag says
// that it does.
std::string_view ReferenceOf(json::Node node);

// Whether `key` is where a tag is, which is no member of the object itself.
bool IsTagKey(std::string_view key);

}  // namespace ckptfs::zanj
