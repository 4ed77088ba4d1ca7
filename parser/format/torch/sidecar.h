// The file beside a checkpoint that has its tensors.
//
// tensorizer.torch_compat lets torch.save write "model.pt" with everything but the bytes of
// storages, which it writes as a list of tensors to a file of tensorizer, "model.pt.tensors". A
// persistent id ('TensorizerPickler', 0, 'storage', i, dtype) means the bytes of tensor i.

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "parser/checkpoint.h"
#include "parser/format/archive/record.h"
#include "parser/io/folder.h"
#include "parser/read_options.h"

namespace ckptfs::torch {

// Opened when a tensor first needs it. Belongs to one thread.
class Sidecar {
 public:
  // That of the checkpoint `source`, unless `options`, which must outlive this, names another one.
  Sidecar(Source source, const ReadOptions& options)
      : source_(std::move(source)), options_(options) {}

  // Returns the bytes of tensor `index`, or the reason why they cannot be had. Throws Error if the
  // user must do something first (EKEYREJECTED), or if it exceeds a limit.
  Record Find(uint64_t index);

  // Adds what there is to be told about the sidecar, if it was needed.
  void Tell(Checkpoint& checkpoint) const;

 private:
  void Open();
  ByteSourcePtr OpenFile();

  const Source source_;
  const ReadOptions& options_;
  bool is_open_ = false;
  std::string name_;
  std::string error_;  // Of the file as a whole.
  std::vector<std::string> warnings_;
  std::map<std::string, Tensor> tensors_;  // By their keys: "0".
};

}  // namespace ckptfs::torch
