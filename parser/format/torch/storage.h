// Storages: the runs of bytes that the tensors of a pickle are views of, named by persistent ids.

#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "parser/base/budget.h"
#include "parser/base/error.h"
#include "parser/base/hash.h"
#include "parser/checkpoint.h"
#include "parser/codec/pickle.h"
#include "parser/format/archive/record.h"
#include "parser/format/torch/globals.h"
#include "parser/io/byte_source.h"
#include "parser/io/folder.h"
#include "parser/read_options.h"

namespace ckptfs::torch {

// The file with the tensors of a checkpoint, beside it.
//
// tensorizer.torch_compat lets torch.save write "model.pt" with everything but the bytes of
// storages, which it writes as a list of tensors to a file of tensorizer, "model.pt.tensors". A
// persistent id ('TensorizerPickler', 0, 'storage', i, dtype) means the bytes of tensor i.

// Opened when a tensor first needs it. Belongs to one thread.
class Sidecar {
 public:
  // The sidecar of the checkpoint `source`, or the one in `options`, which must outlive this.
  Sidecar(Source source, const ReadOptions& options)
      : source_(std::move(source)), options_(options) {}

  // Returns the bytes of tensor `index`, or a record with an error. Throws Error: EKEYREJECTED if
  // the key is wrong, EFBIG if a limit is exceeded.
  Record Find(uint64_t index);

  // Adds the name and the warnings of the sidecar to `checkpoint`, if it was opened.
  void Report(Checkpoint& checkpoint) const;

 private:
  void Open();
  ByteSourcePtr OpenFile();

  const Source source_;
  const ReadOptions& options_;
  bool is_open_ = false;
  std::string name_;
  std::optional<Error> error_;  // Of the file as a whole.
  std::vector<std::string> warnings_;
  std::map<std::string, Tensor> tensors_;  // By their keys: "0".
};

// The maximum length of a key, which is a number, and of a location, which is a device: each tensor
// has both.
constexpr size_t kMostStorageText = 128;

// A parsed persistent id of a storage.
struct StorageId {
  StorageClass type;
  std::string key;
  std::string location;  // "cpu", "cuda:0"
  uint64_t elements = 0;
  uint64_t size = 0;  // Of these, in bytes.

  // In files from before PyTorch 0.4 a storage may be a part of the one that the key names.
  struct View {
    uint64_t offset = 0;  // In bytes.
    uint64_t size = 0;    // In bytes.
  };
  std::optional<View> view;

  // Set if the bytes are those of a tensor in the sidecar, which alone has their number. The key is
  // then unique.
  std::optional<uint64_t> in_sidecar;
};

// Parses `persistent`, a kPersistent. Throws Error(EBADMSG) if the id has not the form
// ('storage', class, key, location, elements[, None or (view key, offset, elements)]), or that of
// Sidecar.
StorageId ParseStorageId(const pickle::Value& persistent);

// A storage as described by its first persistent id, from which PyTorch, too, takes the class.
struct Storage {
  Record record;
  StorageClass type;
  uint64_t size = 0;     // Bytes that tensors may use, as the id gives them.
  std::string location;  // "cpu", "cuda:0"
};

// All storages of one pickle, each looked up when a tensor first needs it. Belongs to one thread.
class Storages {
 public:
  // `find` looks up a record by the key of a storage. It does not throw: the record has the error.
  // `budget`, to which storages are charged, and `sidecar` must outlive this.
  Storages(Budget& budget, Sidecar& sidecar, std::function<Record(std::string_view key)> find)
      : budget_(budget), sidecar_(sidecar), find_(std::move(find)) {}

  // Returns the storage that `persistent`, a kPersistent, names. It lives as long as this.
  // Throws Error: EBADMSG as ParseStorageId does, or if the id contradicts another id of
  // the same key; EFBIG.
  const Storage& Get(const pickle::Value& persistent);

 private:
  using ViewKey = std::tuple<std::string, uint64_t, uint64_t>;  // Of the whole, offset, size.

  const Storage& Whole(StorageId id);

  Budget& budget_;
  Sidecar& sidecar_;
  std::function<Record(std::string_view key)> find_;
  std::deque<std::pair<std::string, Storage>> wholes_;  // With their keys.
  HashIndex by_key_;                                    // Of wholes_.
  std::map<ViewKey, Storage> views_;
};

// Storages nested in a pickle.
//
// torch.save gives each storage a persistent id. Other picklers (pickle.dump, joblib) put the bytes
// into the pickle: the call torch.storage._load_from_bytes(bytes), whose bytes are a whole file of
// torch.save, whose object is that storage.

struct Context;

// All such storages of one pickle, each read when a tensor first needs it. Belongs to one thread.
class NestedStorages {
 public:
  // Returns the storage that `call`, which calls KnownCallable::kLoadFromBytes, makes. It lives as
  // long as this. Throws Error if the file in it is invalid.
  const Storage& Get(const pickle::Value& call, Context& context);

 private:
  std::map<const void*, Storage> known_;  // By address: many calls may share bytes.
};

// The storage that `value` is: a persistent id, or a file. Throws Error; EBADMSG if it is neither.
const Storage& StorageOf(const pickle::Value& value, Context& context);

}  // namespace ckptfs::torch
