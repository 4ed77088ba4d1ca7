// The objects and values in ZANJ's JSON.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "parser/checkpoint.h"
#include "parser/codec/json_document.h"
#include "parser/format/zanj/zip.h"

namespace ckptfs::zanj {

// Returns `node`, which contains no array and no table, as strict JSON. Types that JSON cannot
// express are recorded: that of the value itself, and those inside it in the annotation
// "python_types" (an object: JSON pointer -> type). A set becomes a list; an object loses its tag,
// which becomes its type; an object that ZANJ only describes becomes its repr; NaN, infinities and
// integers beyond 64 bits become strings; a list in another member is inserted the first time that
// it is referred to. Throws Error: EFBIG, and the errors of reading such a list.
Value ValueOf(json::Node node, Externals& externals);

// Appends a row of a table as Python prints it, as in a .jsonl member of the archive.
void AppendRow(std::string& out, json::Node node);

// The type of an object in ZANJ's JSON.
//
// Its member "__muutils_format__" ("__format__" before ZANJ 0.4.0) is the tag of an array or a
// table, whose data are inline or in a member of the archive named by "$ref", of a set, or of a
// class:
//
//   numpy.ndarray:array_list_meta   torch.Tensor:external       list:external
//   pandas.DataFrame:external       set                         Config(SerializableDataclass)

struct Tag {
  enum class Kind : uint8_t {
    kNone,           // Not an object, or a dict.
    kClass,          // An object of the class `text`.
    kSet,            // `data` is a list.
    kLists,          // An array of nested lists, ...
    kHex,            // ... of hex digits, ...
    kBase64,         // ... of base64, ...
    kScalar,         // ... of one element without a list, ...
    kExternalArray,  // ... or in a member of the archive.
    kTable,          // A table with inline rows.
    kExternalTable,  // A table or a long list whose rows are a member of the archive.
    kText,           // An object that ZANJ could only describe by texts.
  };

  Kind kind = Kind::kNone;
  std::string_view text;  // The whole tag; may be empty.
  std::string_view type;  // The part that names a type: "torch.Tensor". May be empty.

  bool is_array() const { return kind >= Kind::kLists && kind <= Kind::kExternalArray; }
  bool is_table() const { return kind == Kind::kTable || kind == Kind::kExternalTable; }
};

// Returns the tag of `node`. A set whose data are in a member is a table.
Tag TagOf(json::Node node);

// Returns the name of the member with the data of `node`. Precondition: its tag is external.
std::string_view ReferenceOf(json::Node node);

// Returns whether `key` is the key of a tag.
bool IsTagKey(std::string_view key);

}  // namespace ckptfs::zanj
