// ckpt verify: hashes of all tensors.

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "parser/base/mutex.h"
#include "parser/io/byte_source.h"
#include "tools/ckpt/model.h"
#include "tools/ckpt/output.h"

namespace ckptfs::ckpt {

// The hashes that turn out to be wrong. Sources report from any thread.
class WrongHashes {
 public:
  // Returns a verification that reports to this, which must outlive it.
  std::shared_ptr<const Verification> MakeVerification();

  // Returns a sentence for each wrong hash.
  std::vector<std::string> Sentences() const;

 private:
  mutable Mutex mutex_;
  std::vector<std::string> sentences_ GUARDED_BY(mutex_);
};

// Reads all tensors that have a hash, in several threads, and prints what is wrong and how many are
// right. `model` was opened with the verification of `wrong`. Returns the exit status: 5 if a hash
// is wrong or a tensor cannot be read, else 0. Throws Error.
int VerifyHashes(const Model& model, const WrongHashes& wrong, OutputFormat format);

}  // namespace ckptfs::ckpt
