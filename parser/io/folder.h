// Folders: the directories of local and remote checkpoints.

#pragma once

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <ctime>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "parser/base/error.h"
#include "parser/io/byte_source.h"

namespace ckptfs {

// A directory whose files make up one checkpoint: local, or the keys under one prefix of a bucket.
// All methods may be called by several threads at once.
class Folder {
 public:
  virtual ~Folder() = default;

  // What this is, for messages. Never contains a secret.
  virtual std::string name() const = 0;

  // The names of the regular files in it (links to such included), hidden ones too, in the order of
  // their bytes. Throws Error; EFBIG if there are more than kMostFiles.
  virtual std::vector<std::string> List() const = 0;

  // Opens the file `name`. Throws Error, whose message need not name it: ENOENT if it is missing,
  // EBADMSG if IsPlainName does not hold.
  virtual ByteSourcePtr Open(const std::string& name) const = 0;

  // The names of the directories in it, links to such not included, in the order of their bytes.
  // Throws Error; EFBIG if there are more than kMostFiles.
  virtual std::vector<std::string> ListFolders() const = 0;

  // Opens the directory `name`; null if it does not exist or is a link, which could lead anywhere,
  // and in circles. Throws Error; EBADMSG if IsPlainName does not hold.
  virtual std::shared_ptr<const Folder> OpenFolder(const std::string& name) const = 0;

  // Whether to open a file may cost a round trip over a network.
  virtual bool is_remote() const { return false; }

  // When files were last added or removed; the epoch if that is not known.
  virtual timespec modified() const { return {}; }
};

constexpr size_t kMostFiles = 100'000;

using FolderPtr = std::shared_ptr<const Folder>;

// Whether `name` names a file of a folder itself: not empty, ".", or "..", and without '/', '\' or
// NUL.
bool IsPlainName(std::string_view name);

// Returns the names of files, of which there may be many, as a message may show them.
std::string Listed(std::span<const std::string> names);

// What a URI names. A file comes with the folder that it lies in, where its siblings are.
struct Source {
  ByteSourcePtr file;     // Null if it is a folder.
  FolderPtr folder;       // Null if there is no such thing as a sibling.
  std::string file_name;  // Of `file` in `folder`.

  // What it is, for messages.
  std::string name() const { return file ? file->name() : folder->name(); }

  timespec modified() const { return file ? file->modified() : folder->modified(); }
};

// Bounds the files that a checkpoint opens on a server. May be used by several threads.
class FileCount {
 public:
  // Counts a file that is to be opened. Throws Error(EFBIG) if they are more than kMostFiles.
  void Add() {
    if (opened_.fetch_add(1) >= kMostFiles) {
      Fail(EFBIG, "the checkpoint has more than {} files", kMostFiles);
    }
  }

 private:
  std::atomic<size_t> opened_ = 0;
};

}  // namespace ckptfs
