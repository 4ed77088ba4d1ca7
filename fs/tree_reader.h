// Reads checkpoints and lays them out as trees, in bounded memory and time. A checkpoint of a store
// that cannot be read becomes a tree with an error.

#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fs/checks.h"
#include "fs/log.h"
#include "fs/options.h"
#include "fs/remote.h"
#include "fs/secrets.h"
#include "fs/store_folder.h"
#include "fs/tensordict.h"
#include "fs/tree.h"
#include "fs/tree_cache.h"
#include "parser/base/mutex.h"
#include "parser/io/folder.h"
#include "parser/read_options.h"

namespace ckptfs {

// Returns `folder`, which adds the permissions of what is opened in it to `readers`.
FolderPtr MakeReportingFolder(FolderPtr folder, std::shared_ptr<Readers> readers);

class TreeReader {
 public:
  // All but `secrets` must outlive this.
  // `readers` are those of the only checkpoint.
  TreeReader(const Options& options, const Remote& remote, const Readers& readers, Secrets secrets,
             Log& log);
  TreeReader(const TreeReader&) = delete;
  TreeReader& operator=(const TreeReader&) = delete;
  ~TreeReader() = default;

  // Sets the tensors of the checkpoint, if they are in another file.
  void SetSidecar(ByteSourcePtr sidecar) { sidecar_ = std::move(sidecar); }

  struct Result {
    Tree tree;
    uint64_t memory = 0;                // That it keeps, in bytes.
    mode_t umask = 0;                   // By the permissions of the only checkpoint.
    std::vector<std::string> warnings;  // For the log.
  };

  // Reads the only checkpoint of the mount. Limits the memory of the process, and ends it if the
  // parse cannot be stopped in another way. Throws Error; the message begins with the name of the
  // source.
  Result ReadAlone(const Source& source);

  // Reads one of many checkpoints while others are being read. Limits what is counted. Thread-safe.
  // Throws as ReadAlone does, and Error(EINTR) if the reader that waits for it is gone.
  Result ReadOneOfMany(const Source& source);

  // Lets later reads use the disk for what they decode.
  void AllowScratch();

 private:
  enum class Place : uint8_t { kAlone, kInStore };

  std::shared_ptr<const Secret> AskSecret(bool takes_passphrase, Budget& budget);

  // `shown` is the name of the source on the mount.
  Result Read(const Source& source, const std::string& shown, Place place, Budget& budget);

  // Returns what the permissions of the only checkpoint take away. `of_folder` is that of its
  // folder.
  mode_t MaskOf(const Checkpoint& checkpoint, const Source& source, mode_t of_folder) const;

  void AddCompanions(Checkpoint& checkpoint, const Source& source, mode_t umask,
                     std::vector<BesideEntry>& beside) const;

  const Options& options_;
  const Remote& remote_;
  const Readers& readers_;
  Log& log_;
  const std::shared_ptr<ScratchSpace> scratch_ = std::make_shared<ScratchSpace>();
  ByteSourcePtr sidecar_;  // May be null.

  Mutex mutex_;
  Secrets secrets_ GUARDED_BY(mutex_);
};

// TreeReader::ReadOneOfMany.
using ReadOneOfMany = std::function<TreeReader::Result(const Source& source)>;

struct StoreRequest {
  const StoreFolder& folder;  // That the checkpoint is in.
  const StoreItem& item;
  const std::string& path;  // Of its directory in the store.
  const Options& options;
  const ReadOneOfMany& read;
  Log& log;
};

// Reads the checkpoint of a store. Returns nothing if it cannot be read, but was changed so
// recently that it may not be complete; after that, a tree with the file error.txt. Logs warnings
// and the error unless `is_reported`, which it sets. Throws Error if the failure may pass: a server
// does not answer, the file has changed, the reader is gone.
std::optional<StoredTree> ReadStoredTree(const StoreRequest& request, bool& is_reported);

}  // namespace ckptfs
