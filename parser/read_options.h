// What a user may want of the reading of a checkpoint.

#pragma once

#include <memory>

#include "parser/base/secret.h"
#include "parser/base/temporary_file.h"
#include "parser/io/byte_source.h"

namespace ckptfs {

class ArchiveAllowance;  // format/archive/allowance.h
class Budget;

struct ReadOptions {
  AskSecret ask_secret;  // May be empty: there is no secret.

  // Null: bytes are not checked against hashes. What is read keeps it.
  std::shared_ptr<const Verification> verification;

  // For what is decoded; null: there is none.
  std::shared_ptr<ScratchSpace> scratch;

  // The file with the tensors of a checkpoint whose own file has none; null: it lies beside it.
  ByteSourcePtr sidecar;

  // What archives in archives may cost; null: the file lies in no archive.
  ArchiveAllowance* archives = nullptr;
  // What reading may cost. ReadCheckpoint gives one to the formats if this is null.
  Budget* budget = nullptr;
};

}  // namespace ckptfs
