#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "parser/base/error.h"
#include "parser/codec/resp.h"
#include "parser/source/redis/key_table.h"

namespace {

// The parts of a model are sorted, do not overlap, and are within the largest file.
void CheckKeyTable(std::string_view header) {
  const auto bytes = std::as_bytes(std::span(header));
  const ckptfs::redis::KeyTable table("p", std::vector<std::byte>(bytes.begin(), bytes.end()));
  uint64_t end = 0;
  for (const auto& part : table.parts()) {
    if (part.length == 0 || part.offset < end) std::abort();
    if (part.length > std::numeric_limits<int64_t>::max() - part.offset) std::abort();
    end = part.end();
  }
}

}  // namespace

// The oracle: the bytes of a server are replies, or throw Error. A prefix of a line is never parsed
// as another reply than the whole line.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using ckptfs::resp::Head;
  std::string_view text(reinterpret_cast<const char*>(data), size);
  if (ckptfs::resp::SlotOf(text) >= ckptfs::resp::kSlots) std::abort();
  try {
    CheckKeyTable(text);
  } catch (const ckptfs::Error&) {
  }
  try {
    while (const auto head = ckptfs::resp::ReadHead(text)) {
      if (head->size == 0 || head->size > text.size()) std::abort();
      if (ckptfs::resp::ReadHead(text.substr(0, head->size - 1))) std::abort();
      if (head->kind == Head::Kind::kValue && head->number < 0) std::abort();
      if (head->kind == Head::Kind::kError) {
        const auto redirect = ckptfs::resp::ReadRedirect(head->text);
        if (redirect && (redirect->slot >= ckptfs::resp::kSlots || redirect->port == 0)) {
          std::abort();
        }
      }
      text.remove_prefix(head->size);
    }
  } catch (const ckptfs::Error&) {
  }
  return 0;
}
