// The commands that we send about values, and what their answers mean.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "parser/codec/resp.h"

namespace ckptfs::redis {

// How many bytes one command asks for at most: a server copies them before it sends them, so that
// large ranges are slow.
constexpr uint64_t kLargestRange = uint64_t{1} << 20U;

// Asks how long the value of `key` is; 0 if there is none.
std::string Strlen(std::string_view key);

// Asks for `length` bytes, at least one, of the value of `key`. The answer is shorter if the value
// is, and empty if there is none.
std::string GetRange(std::string_view key, uint64_t offset, uint64_t length);

// Throws what the text of an error of a server means: EACCES, EINVAL if the key is no string,
// EREMOTEIO, or a Fault if it may pass. Returns if `head` is no error.
void RequireNoError(const resp::Head& head);

// Returns the answer to Strlen. Throws Error as RequireNoError does, or EPROTO.
uint64_t NumberOf(const resp::Head& head);

// Returns how many bytes follow in the answer to GetRange, which are not more than `most`. Throws
// Error as NumberOf does.
uint64_t SizeOf(const resp::Head& head, uint64_t most);

}  // namespace ckptfs::redis
