// Values without children (numbers, texts, bytes, names) in JSON, as value.h defines it.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "parser/base/budget.h"
#include "parser/codec/pickle.h"
#include "parser/format/torch/storage.h"

namespace ckptfs::torch {

// Protocols 3 to 5 have opcodes for bytes. With protocol 2, Python writes the call
// _codecs.encode(text, "latin1"), in which each character of the text is a byte.

struct Context;

// Whether `value` is a text, or bytes: a str of Python 2.
bool IsText(const pickle::Value& value);

// The bytes that `text` encodes: nothing if a character is not a byte.
std::optional<std::string> BytesOfLatin1(std::string_view text);

// Returns the bytes of `value` if it is bytes in any encoding or a str of Python 2; else nothing.
// The view points into the pickle or into `decoded`.
std::optional<std::string_view> BytesOf(const pickle::Value& value, std::string& decoded,
                                        Budget& budget);

// The bytes of `value` as a record. Bytes that are verbatim in the pickle of `context` are not
// copied. Throws Error: EBADMSG if `value` is not bytes, EFBIG.
Record RecordOfBytes(const pickle::Value& value, Context& context);

// The charge of each value besides its text, so that empty ones are not free.
constexpr uint64_t kCostOfValue = 16;  // In bytes.

// Whether `value` is a leaf by its kind: neither a container nor a call.
bool IsLeaf(const pickle::Value& value);

// Appends `value`, for which IsLeaf holds, to `out`, and charges `budget` for it. Returns its type,
// which is empty if JSON expresses it. Throws Error(EFBIG).
std::string AppendLeaf(std::string& out, const pickle::Value& value, Budget& budget);

// The same for a call that is interpreted as a leaf (ValueKind::kLeaf), but not as a number or a
// complex number. An unknown call is appended as Python prints it.
std::string AppendLeafCall(std::string& out, const pickle::Value& call, Budget& budget);

}  // namespace ckptfs::torch
