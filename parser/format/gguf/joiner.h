// Several files as one model.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory_resource>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "parser/base/budget.h"
#include "parser/base/error.h"
#include "parser/base/secret_hash.h"
#include "parser/checkpoint.h"
#include "parser/format/gguf/header.h"
#include "parser/format/gguf/parts.h"
#include "parser/io/byte_source.h"
#include "parser/io/folder.h"

namespace ckptfs::gguf {

// Reads the parts of a model and puts them together. Belongs to one thread.
class Joiner {
 public:
  // `name` is that of the part that the user has named; the files are in `folder`, which must
  // outlive this, as must `budget`.
  Joiner(const Folder& folder, PartName name, Budget& budget);

  // Call once. A part that cannot be read is shown as lost. Throws Error if none can be, or if they
  // do not make one model.
  Checkpoint Read();

 private:
  struct Part {
    uint32_t number = 0;  // From 1 on.
    std::string name;     // Of the file.
    ByteSourcePtr file;
    std::optional<Header> header;  // While it is needed.
    std::optional<Error> error;    // Why it cannot be read.
  };

  void OpenAll();
  void ReadHeaderOf(Part& part);
  void AddPart(Part& part);
  void CheckNumber(const Part& part) const;
  uint64_t AlignmentOf(const Part& part) const;
  void Merge(const Part& part, Checkpoint one);
  void TellShard(Part& part, uint64_t alignment);
  void AddLost(const Part& part);
  void TellLost();

  const Folder& folder_;
  const PartName name_;
  Budget& budget_;
  std::vector<Part> parts_;
  std::optional<uint32_t> first_alignment_;  // Of the first part, if it can be read.
  std::optional<uint64_t> total_;            // Tensors of the model.
  std::vector<size_t> lost_;                 // Parts, by their place in parts_.
  std::pmr::unordered_map<std::string, uint32_t, SecretHash, std::equal_to<>> names_;
  std::string shards_ = "{";  // A JSON object, with a comma at its end.
  Checkpoint merged_;
};

}  // namespace ckptfs::gguf
