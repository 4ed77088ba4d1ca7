// A folder of a store: its files and folders under their own names, and for each checkpoint X among
// them a directory X.d. Knows no inodes and no trees.

#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fs/tree.h"
#include "parser/base/mutex.h"
#include "parser/io/folder.h"

namespace ckptfs {

// The object that a name in a folder of a store refers to.
struct StoreItem {
  enum class Kind : uint8_t { kFile, kFolder, kLink, kTree };

  Kind kind = Kind::kFile;
  EntryInfo info;          // Of the file or folder; of a tree, that of its checkpoint.
  std::string target;      // Of a link.
  std::string checkpoint;  // Of a tree: the name of the file or folder that it is of.

  // Differs between files, folders and checkpoints that had the name at different times.
  std::string identity;
};

// Entries of a directory, and the memory of their names.
struct StoreListing {
  std::vector<std::string> names;
  std::vector<Entry> entries;  // Without inodes.
};

struct StoreSettings {
  bool mirrors_files = true;         // Show the files themselves.
  std::chrono::seconds refresh{60};  // How often a remote folder is listed again.
  bool has_views = true;             // Show the safetensors views of model repositories.
};

// Thread-safe. Methods throw Error.
class StoreFolder {
 public:
  StoreFolder(FolderPtr folder, const StoreSettings& settings);

  // Finds what `name` stands for. Reads the listing of a remote folder; reads the head and the tail
  // of a file, or the listing of a folder, whose tree it is. A file of that name hides a tree.
  std::optional<StoreItem> Find(const std::string& name);

  // Lists all names. Detects each file of a local folder; goes by the suffixes of remote files.
  std::shared_ptr<const StoreListing> List();

  const Folder& folder() const { return *folder_; }
  FolderPtr shared() const { return folder_; }

  // How long its names remain valid, in seconds.
  double seconds() const;

 private:
  // Whether a version of a file or a folder is a checkpoint.
  struct Detection {
    std::string version;
    bool is_checkpoint = false;
  };

  std::optional<StoreItem> FindView(const std::string& name) const;
  std::optional<StoreItem> FindTree(const std::string& name);
  bool IsTaken(const std::string& name) const;
  std::optional<StoreItem> FindTreeOf(const std::string& checkpoint);
  bool IsCheckpointFile(const std::string& name, const EntryInfo& info);
  bool IsCheckpointFolder(const std::string& name, const std::string& version);
  bool Detected(const std::string& name, const std::string& version,
                bool (*detect)(const Folder& folder, const std::string& name));
  void Refresh();

  const FolderPtr folder_;
  const StoreSettings settings_;

  Mutex mutex_;  // Not held during I/O.
  std::map<std::string, Detection, std::less<>> detections_ GUARDED_BY(mutex_);
  std::chrono::steady_clock::time_point listed_ GUARDED_BY(mutex_);
};

}  // namespace ckptfs
