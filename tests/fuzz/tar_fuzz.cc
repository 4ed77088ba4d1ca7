// The oracle: an archive has members with safe names whose bytes can be read, or throws Error.
// Checksums are corrected first, because the fuzzer would not find them.

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "parser/base/budget.h"
#include "parser/base/error.h"
#include "parser/codec/tar.h"
#include "parser/io/simple_sources.h"

namespace {

constexpr size_t kBlock = 512;

// Writes the checksum of a header, as six octal digits, NUL and a space.
void PutChecksum(std::span<char> block) {
  const std::span<char> field = block.subspan(148, 8);
  std::ranges::fill(field, ' ');
  unsigned sum = 0;
  for (const char c : block) sum += static_cast<unsigned char>(c);
  for (size_t digit = 6; digit-- > 0; sum >>= 3U)
    field[digit] = static_cast<char>('0' + (sum & 7U));
  field[6] = '\0';
}

void Check(bool is_right) {
  if (!is_right) __builtin_trap();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string archive(reinterpret_cast<const char*>(data), size);
  for (size_t begin = 0; begin + kBlock <= size; begin += kBlock) {
    const auto block = std::span(archive).subspan(begin, kBlock);
    if (std::ranges::any_of(block, [](char c) { return c != 0; })) PutChecksum(block);
  }
  const ckptfs::MemorySource source(archive);
  ckptfs::tar::FirstName(std::as_bytes(std::span(archive)));
  ckptfs::Budget budget(uint64_t{64} << 20U);
  try {
    for (const ckptfs::tar::Member& member : ckptfs::tar::ReadDirectory(source, budget)) {
      Check(member.offset <= size && member.size <= size - member.offset);
      Check(!member.name.empty() && member.name[0] != '/' && member.name != "..");
      Check(member.name.find("/../") == std::string::npos);
    }
  } catch (const ckptfs::Error&) {
  }
  return 0;
}
