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

// Bytes in a pickle. Protocols 3 to 5 have opcodes for them; protocol 2 has not, so Python writes
// the call _codecs.encode(text, "latin1"), in whose text each character is a byte.

struct Context;

// Whether `value` is a text, or bytes, which texts are in files that have passed through Python 2.
bool IsText(const pickle::Value& value);

// The bytes that `text` encodes: nothing if a character is not a byte.
std::optional<std::string> BytesOfLatin1(std::string_view text);

// The bytes of `value` if it is bytes in any spelling, or the str of a Python 2: nothing if it is
// something else. The view points into the pickle or into `decoded`.
std::optional<std::string_view> BytesOf(const pickle::Value& value, std::string& decoded,
                                        Budget& budget);

// The bytes of `value` as a record. Bytes that the pickle of `context` has verbatim stay in the
// file. Throws Error: EBADMSG if `value` is not bytes, EFBIG.
Record RecordOfBytes(const pickle::Value& value, Context& context);

// The charge of each value besides its text, so that empty ones are not free.
constexpr uint64_t kCostOfValue = 16;  // In bytes.

// Whether `value` is such a value by its kind: neither a container nor a call.
bool IsLeaf(const pickle::Value& value);

// Appends `value`, for which IsLeaf holds, to `out`, and charges `budget` for it. Returns its type,
// which is empty if JSON has it. Throws Error(EFBIG).
std::string AppendLeaf(std::string& out, const pickle::Value& value, Budget& budget);

// The same of a call that is interpreted as a leaf (ValueKind::kLeaf), but not as a number or a
// complex number. An unknown call is appended as Python prints it.
std::string AppendLeafCall(std::string& out, const pickle::Value& call, Budget& budget);

}  // namespace ckptfs::torch
