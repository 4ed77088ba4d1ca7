// Reads a checkpoint of a store. One that cannot be read becomes a tree with an error.

#pragma once

#include <functional>
#include <optional>
#include <string>

#include "fs/log.h"
#include "fs/options.h"
#include "fs/store_folder.h"
#include "fs/tree_cache.h"
#include "fs/tree_reader.h"
#include "parser/io/folder.h"

namespace ckptfs {

// Reads a checkpoint: TreeReader::ReadOneOfMany.
using ReadOneOfMany = std::function<TreeReader::Result(const Source& source)>;

struct StoreRequest {
  const StoreFolder& folder;  // That the checkpoint is in.
  const StoreItem& item;
  const std::string& path;  // Of its directory in the store.
  const Options& options;
  const ReadOneOfMany& read;
  Log& log;
};

// Reads the checkpoint. Returns nothing if it cannot be read, but was changed so recently that it may
// not be complete; after that, a tree with the file error.txt. Logs warnings and the error unless
// `is_reported`, which it sets. Throws Error if the failure may pass: a server does not answer, the
// file has changed, the reader is gone.
std::optional<StoredTree> ReadStoredTree(const StoreRequest& request, bool& is_reported);

}  // namespace ckptfs
