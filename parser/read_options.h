// Options for reading a checkpoint.

#pragma once

#include <memory>

#include "parser/base/fd.h"
#include "parser/base/secret.h"
#include "parser/io/byte_source.h"

namespace ckptfs {

class ArchiveAllowance;  // format/archive/files.h
class Budget;

struct ReadOptions {
  AskSecret ask_secret;  // May be empty: there is no secret.

  // Null: bytes are not checked against hashes. Sources keep a reference.
  std::shared_ptr<const Verification> verification;

  // For decoded data; may be null.
  std::shared_ptr<ScratchSpace> scratch;

  // The sidecar with the tensors of the checkpoint; null: it is searched beside the file.
  ByteSourcePtr sidecar;

  // The decoding limit of nested archives; null if the file is not in an archive.
  ArchiveAllowance* archives = nullptr;
  // The budget for reading. If it is null, ReadCheckpoint creates one for the formats.
  Budget* budget = nullptr;
};

}  // namespace ckptfs
