// Storages that are files inside of a pickle.
//
// torch.save gives each storage a persistent id; but where somebody pickles a tensor without it
// (pickle.dump, joblib), a storage has to bring its bytes along. It is then pickled as the call
// torch.storage._load_from_bytes(bytes), and the bytes are a whole file of torch.save, whose object
// is that storage.

#pragma once

#include <map>

#include "parser/codec/pickle.h"
#include "parser/format/torch/storage.h"

namespace ckptfs::torch {

struct Context;

// All such storages of one pickle, each read when a tensor first needs it. Belongs to one thread.
class NestedStorages {
 public:
  // Returns the storage that `call`, which calls Known::kLoadFromBytes, makes. It lives as long as
  // this. Throws Error that says what is wrong with the file in it.
  const Storage& Get(const pickle::Value& call, Context& context);

 private:
  std::map<const void*, Storage> known_;  // By where the bytes are: many calls may share them.
};

// The storage that `value` is: a persistent id, or a file. Throws Error; EBADMSG if it is neither.
const Storage& StorageOf(const pickle::Value& value, Context& context);

}  // namespace ckptfs::torch
