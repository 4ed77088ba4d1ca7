// Decrypts the chunks of an encrypted file of tensorizer with libsodium alone, one after another on
// one processor, and prints how many seconds the decryption took: what no program can be faster
// than. To read the chunks does not count.
//
//   opener FILE KEY    KEY is 64 hexadecimal digits

#include <fmt/format.h>
#include <sodium.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <span>
#include <string>
#include <vector>

#include "parser/base/budget.h"
#include "parser/base/error.h"
#include "parser/format/tensorizer/index.h"
#include "parser/format/tensorizer/tensor.h"
#include "parser/open.h"

namespace ckptfs {
namespace {

using Clock = std::chrono::steady_clock;
using Key = std::array<unsigned char, crypto_secretbox_KEYBYTES>;

unsigned char* Raw(std::span<std::byte> bytes) {
  return reinterpret_cast<unsigned char*>(bytes.data());
}

// Returns how long the chunks of a tensor took.
Clock::duration Open(const tensorizer::TensorDescription& tensor, const Key& key) {
  constexpr size_t kTag = crypto_secretbox_MACBYTES;
  const Extent& data = tensor.tensor.data;
  const Encryption& encryption = tensor.encryption->chunks;
  std::vector<std::byte> tags(encryption.macs.length);
  encryption.macs.source->ReadAt(encryption.macs.offset, tags);
  std::vector<std::byte> chunk(encryption.chunk_size);
  auto nonce = encryption.nonce;
  Clock::duration spent{};
  for (uint64_t offset = 0, i = 0; offset < data.length; offset += encryption.chunk_size, ++i) {
    const auto bytes = std::span(chunk).first(std::min(chunk.size(), data.length - offset));
    data.source->ReadAt(data.offset + offset, bytes);
    const auto begin = Clock::now();
    if (::crypto_secretbox_open_detached(Raw(bytes), Raw(bytes),
                                         Raw(std::span(tags).subspan(i * kTag, kTag)), bytes.size(),
                                         Raw(nonce), key.data()) != 0) {
      Fail(EIO, "chunk {} cannot be opened", i);
    }
    spent += Clock::now() - begin;
    ::sodium_increment(Raw(nonce), nonce.size());
  }
  return spent;
}

void Run(const std::string& path, const std::string& digits) {
  Key key = {};
  size_t size = 0;
  if (::sodium_init() < 0 ||
      ::sodium_hex2bin(key.data(), key.size(), digits.data(), digits.size(), nullptr, &size,
                       nullptr) != 0 ||
      size != key.size()) {
    Fail(EINVAL, "the key is no {} hexadecimal digits", 2 * key.size());
  }
  const ByteSourcePtr file = OpenSource(path).file;
  Budget budget = Budget::ForFile(file->size());
  const auto header = tensorizer::ReadFileHeader(*file);
  const auto index = tensorizer::ReadIndex(*file, header, budget);
  Clock::duration spent{};
  for (const tensorizer::IndexEntry& entry : index.entries) {
    tensorizer::TensorDescription tensor;
    tensorizer::Describe(entry, header, file, budget, tensor);
    if (tensor.encryption) spent += Open(tensor, key);
  }
  fmt::print("{:.6f}\n", std::chrono::duration<double>(spent).count());
}

}  // namespace
}  // namespace ckptfs

int main(int argc, char** argv) {
  if (argc != 3) {
    fmt::print(stderr, "usage: opener FILE KEY\n");
    return EXIT_FAILURE;
  }
  try {
    ckptfs::Run(argv[1], argv[2]);
  } catch (const std::exception& e) {
    fmt::print(stderr, "opener: {}\n", e.what());
    return EXIT_FAILURE;
  }
}
