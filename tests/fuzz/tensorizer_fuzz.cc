#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "parser/base/error.h"
#include "parser/checkpoint.h"
#include "parser/detect.h"
#include "parser/io/simple_sources.h"
#include "tests/support/reading.h"

namespace {

// The key of the encrypted seeds: the bytes from 0 on.
std::shared_ptr<const ckptfs::Secret> AskKey(bool /*takes_passphrase*/) {
  ckptfs::SecretBytes key(32);
  uint8_t next = 0;
  for (std::byte& byte : key.bytes()) byte = std::byte{next++};
  return std::make_shared<ckptfs::Secret>(
      ckptfs::Secret{ckptfs::Secret::Kind::kKey, std::move(key), "key_file"});
}

void Read(const std::string& file, const ckptfs::ReadOptions& options) try {
  const ckptfs::Checkpoint checkpoint =
      ckptfs::ReadCheckpoint(std::make_shared<ckptfs::MemorySource>(file), options);
  ckptfs::ReadTensors(checkpoint.root);
} catch (const ckptfs::Error&) {
}

}  // namespace

// The oracle: a file is a checkpoint whose tensors can be read or fail, with and without a key, or
// throws Error.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string file(reinterpret_cast<const char*>(data), size);
  Read(file, {});
  const auto report = [](std::string_view, ckptfs::Verdict, std::string_view) {};
  Read(file, {.ask_secret = AskKey,
              .verification = std::make_shared<ckptfs::Verification>(
                  ckptfs::Verification{.is_enforced = true, .report = report})});
  return 0;
}
