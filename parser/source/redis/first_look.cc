#include "parser/source/redis/first_look.h"

#include <span>

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
  } else {
    found_[i].head = ReadValue(head, wanted_[i].head_size, connection);
  }
}

}  // namespace ckptfs::redis
