// The element types of NumPy's arrays.
//
// NumPy spells a type as byte order, kind and size: "<f4", ">U3" (texts of 3 characters), "<M8[ns]"
// (times). A structure is a list of fields: [('a', '<f4'), ('b', '|u1', (2,))].

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "parser/base/dtype.h"
#include "parser/codec/npy/literal.h"

namespace ckptfs::npy {

struct Type {
  Dtype dtype = Dtype::kOpaque;  // kOpaque for all that PyTorch has no type for.
  uint64_t item_size = 0;        // In bytes. May be 0.
  uint64_t swap_size = 1;        // Bytes that are to be reversed if it is big-endian: see SwapSize.
  bool is_big_endian = false;    // As stored. False for what is shown as it is stored.
  bool has_objects = false;      // The elements are pickled Python objects: there are no bytes.
  std::string name;              // As numpy's dtype.str has it: "<f4", "|S5"; "|V12" if structured.
};

// The type of byte order `order` ('<', '>', '|' or '=') that `code` spells: "f4", "U3", "M8[ns]".
// Nothing if it is none of NumPy's, nor of what is written in their place by ml_dtypes.
std::optional<Type> TypeNamed(char order, std::string_view code);

// The name of the type when its elements are little-endian: "<M8[ns]" for ">M8[ns]". Types whose
// elements nobody can swap keep theirs.
std::string LittleEndianName(const Type& type);

// Takes a type as the header of a file has it, and appends it to `json`, with lists for tuples.
// Throws Error: EBADMSG if it is none, EOVERFLOW if its elements have 2^63 bytes or more, or
// more fields than we read.
Type TakeType(Literal& literal, std::string& json);

}  // namespace ckptfs::npy
