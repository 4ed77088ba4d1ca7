// Storages: the runs of bytes that the tensors of a pickle are views of, named by persistent ids.

#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "parser/byte_source.h"
#include "parser/codec/pickle.h"
#include "parser/format/torch/vocabulary.h"

namespace ckptfs::torch {

// The bytes of a storage, as its container has them.
struct Record {
  Extent data;
  std::string member;       // What messages and meta.json call it: "data/0".
  bool is_in_file = false;  // `data` is a range of the file, else of something decoded.
  std::string error;        // Not empty: why it cannot be read; then `data` has no source.
};

// A storage as the first persistent id that names it describes it. PyTorch, too, takes the class
// from the first.
struct Storage {
  Record record;
  StorageClass type;
  uint64_t size = 0;     // Bytes that tensors may use: what the id says.
  std::string location;  // "cpu", "cuda:0"
};

// All storages of one pickle, each looked up when a tensor first needs it. Belongs to one thread.
class Storages {
 public:
  // `find` looks up a record by the key of a storage. It does not throw: what is wrong with a
  // record is its error.
  explicit Storages(std::function<Record(std::string_view key)> find) : find_(std::move(find)) {}

  // Returns the storage that `persistent`, a kPersistent, names. It lives as long as this.
  // Throws Error(EBADMSG) if the id has not the form ('storage', class, key, location, elements),
  // or contradicts what another one says of the same key.
  const Storage& Get(const pickle::Value& persistent);

 private:
  std::function<Record(std::string_view key)> find_;
  std::unordered_map<std::string, Storage> known_;  // By key.
};

}  // namespace ckptfs::torch
