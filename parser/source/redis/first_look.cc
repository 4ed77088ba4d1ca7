#include "parser/source/redis/first_look.h"

#include <algorithm>
#include <cerrno>
#include <span>

#include "parser/base/error.h"
#include "parser/source/redis/answers.h"

namespace ckptfs::redis {
namespace {

std::vector<std::byte> ReadValue(const resp::Head& head, uint64_t most, Connection& connection) {
  std::vector<std::byte> bytes(static_cast<size_t>(SizeOf(head, most)));
  for (std::span<std::byte> room = bytes; !room.empty();) {
    room = room.subspan(connection.Read(room));
  }
  connection.ReadEnd();
  return bytes;
}

}  // namespace

Dialogue::Question FirstLook::At(size_t i) const {
  const auto& [key, head_size] = wanted_[i];
  return {
      .key = key, .commands = {Strlen(key), GetRange(key, 0, head_size)}, .answer_size = head_size};
}

void FirstLook::Take(size_t i, size_t n, const resp::Head& head, Connection& connection) {
  if (n == 0) found_[i] = {};
  try {
    RequireNoError(head);
  } catch (const Error& e) {
    found_[i].refused = e;
    return;
  }
  if (n == 0) {
    found_[i].length = NumberOf(head);
    return;
  }
  found_[i].head = ReadValue(head, wanted_[i].head_size, connection);
  // Memory is reserved by these lengths, so they must agree before anybody uses them.
  const uint64_t expected = std::min(found_[i].length, wanted_[i].head_size);
  if (!found_[i].refused && found_[i].head.size() != expected) {
    Fail(EPROTO, "the key {}: the server sends {} bytes of a value of {} (expected {})",
         Quoted(wanted_[i].key), found_[i].head.size(), found_[i].length, expected);
  }
}

}  // namespace ckptfs::redis
