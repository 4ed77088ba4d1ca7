// Folders: the directories of local and remote checkpoints, and how several of their files are
// opened.

#pragma once

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <ctime>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "parser/base/error.h"
#include "parser/base/mutex.h"
#include "parser/io/byte_source.h"
#include "parser/io/remote_object.h"

namespace ckptfs {

class Budget;

// A directory whose files make up one checkpoint: local, or the keys under one prefix of a bucket.
// All methods may be called by several threads at once.
class Folder {
 public:
  virtual ~Folder() = default;

  // The name for messages. Never contains a secret.
  virtual std::string name() const = 0;

  // The names of the regular files in it, including hidden ones and links to files, in the order of
  // their bytes. Throws Error; EFBIG if there are more than kMostFiles.
  virtual std::vector<std::string> List() const = 0;

  // Opens the file `name`. Throws Error, whose message need not name it: ENOENT if it is missing,
  // EBADMSG if it is no name (IsPlainName, or IsLocalName).
  virtual ByteSourcePtr Open(const std::string& name) const = 0;

  // The same for a file whose first bytes may not be needed. A remote folder that knows the length
  // and the version from its listing sends no request.
  virtual ByteSourcePtr OpenData(const std::string& name) const { return Open(name); }

  // The names of the directories in it, without links, in the order of their bytes. Throws Error;
  // EFBIG if there are more than kMostFiles.
  virtual std::vector<std::string> ListFolders() const = 0;

  // Opens the directory `name`; null if it does not exist or is a link, which could lead anywhere,
  // and in circles. Throws Error as Open does.
  virtual std::shared_ptr<const Folder> OpenFolder(const std::string& name) const = 0;

  // Returns what is known of the file or folder `name` without opening it; nothing if there is none
  // that List or ListFolders would return. Throws Error as Open does.
  virtual std::optional<EntryInfo> Find(const std::string& name) const = 0;

  // The names of the links in it that lead to directories, in the order of their bytes. Throws
  // Error.
  virtual std::vector<std::string> ListLinks() const { return {}; }

  // Returns where the link `name` leads: the path of a directory of the same checkpoint or store,
  // from this folder. Nothing if it is no link, or leads elsewhere. Throws Error as Open
  // does.
  virtual std::optional<std::string> FindLink(const std::string& /*name*/) const { return {}; }

  // Whether opening a file may cost a round trip over a network.
  virtual bool is_remote() const { return false; }

  // Whether nothing in it ever changes.
  virtual bool is_immutable() const { return false; }

  // Discards a cached listing.
  virtual void ForgetListing() const {}

  // The time when files were last added or removed; the epoch if unknown.
  virtual timespec modified() const { return {}; }
};

constexpr size_t kMostFiles = 100'000;

using FolderPtr = std::shared_ptr<const Folder>;

// A folder on top of another one. It forwards everything; a subclass overrides what differs.
class ForwardingFolder : public Folder {
 public:
  std::string name() const override { return folder_->name(); }
  std::vector<std::string> List() const override { return folder_->List(); }
  ByteSourcePtr Open(const std::string& name) const override { return folder_->Open(name); }
  ByteSourcePtr OpenData(const std::string& name) const override { return folder_->OpenData(name); }
  std::vector<std::string> ListFolders() const override { return folder_->ListFolders(); }
  FolderPtr OpenFolder(const std::string& name) const override { return folder_->OpenFolder(name); }
  std::optional<EntryInfo> Find(const std::string& name) const override {
    return folder_->Find(name);
  }
  std::vector<std::string> ListLinks() const override { return folder_->ListLinks(); }
  std::optional<std::string> FindLink(const std::string& name) const override {
    return folder_->FindLink(name);
  }
  bool is_remote() const override { return folder_->is_remote(); }
  bool is_immutable() const override { return folder_->is_immutable(); }
  void ForgetListing() const override { folder_->ForgetListing(); }
  timespec modified() const override { return folder_->modified(); }

 protected:
  // `folder` is not null.
  explicit ForwardingFolder(FolderPtr folder) : folder_(std::move(folder)) {}

  const Folder& folder() const { return *folder_; }

 private:
  const FolderPtr folder_;
};

// A folder that records which of its files and folders were opened. Thread-safe, as folders are.
class WatchedFolder final : public ForwardingFolder {
 public:
  explicit WatchedFolder(FolderPtr folder) : ForwardingFolder(std::move(folder)) {}

  ByteSourcePtr Open(const std::string& name) const override;
  ByteSourcePtr OpenData(const std::string& name) const override;
  FolderPtr OpenFolder(const std::string& name) const override;

  // Returns those of `files` of this folder that were not opened and are named like checkpoints;
  // and, with a slash, the subfolders with such files. Lists no remote subfolders, and no more than
  // a hundred. Throws nothing.
  std::vector<std::string> LeftOut(std::span<const std::string> files) const;

  // The names of the files and folders that were opened.
  std::vector<std::string> Opened() const;

 private:
  void Record(const std::string& name) const;

  mutable Mutex mutex_;
  mutable std::set<std::string> opened_ GUARDED_BY(mutex_);
};

// Returns `folder`, but adds each opened file to `budget`; null if `folder` is null. `budget` must
// outlive the result.
FolderPtr MakeCountedFolder(FolderPtr folder, Budget& budget);

// Like Folder::Find, but returns nothing if access is denied, such as to the target of a link that
// is not followed.
std::optional<EntryInfo> FindAccessible(const Folder& folder, const std::string& name);

// Whether the suffix of `name` is that of a checkpoint, and it is not hidden.
bool IsCalledCheckpoint(std::string_view name);

// Whether a local folder can have a file `name`: not empty, ".", or "..", and without '/' or NUL.
bool IsLocalName(std::string_view name);

// The same for a name that a server or a file contains: without '\', too.
bool IsPlainName(std::string_view name);

// Checks the name of a member of an archive. Throws Error if it cannot be unpacked below a
// directory: EBADMSG if it is empty or absolute, or has a NUL, a backslash, or a part that is
// empty, "." or ".."; EFBIG if it is too long.
void CheckMemberName(std::string_view name);

// Returns the first of many names of files, for a message.
std::string Listed(std::span<const std::string> names);

// A file, or the error of opening it.
struct OpenedFile {
  ByteSourcePtr file;          // Null if there is an error.
  std::optional<Error> error;  // Thrown by Folder::Open.
};

// Opens the files of `folder` that have these names; several at once, if each may cost a round
// trip. Throws Error, whose message names the file, only for transient errors.
std::vector<OpenedFile> OpenFiles(const Folder& folder, std::span<const std::string> names);

// The same by Folder::OpenData, for files whose first bytes may not be needed.
std::vector<OpenedFile> OpenDataFiles(const Folder& folder, std::span<const std::string> names);

// Like OpenFiles, but throws the first error. Its message does not name the file.
std::vector<ByteSourcePtr> OpenAllFiles(const Folder& folder, std::span<const std::string> names);

// The target of a URI. A file comes with the folder that contains it and its siblings.
struct Source {
  ByteSourcePtr file;     // Null if it is a folder.
  FolderPtr folder;       // Null if files have no siblings.
  std::string file_name;  // Of `file` in `folder`.

  // The name for messages.
  std::string name() const { return file ? file->name() : folder->name(); }

  timespec modified() const { return file ? file->modified() : folder->modified(); }
};

// Bounds the files that a checkpoint opens on a server. May be used by several threads.
class FileCount {
 public:
  // Counts a file before it is opened. Throws Error(EFBIG) after kMostFiles.
  void Add() {
    if (opened_.fetch_add(1) >= kMostFiles) {
      Fail(EFBIG, "the checkpoint has more than {} files", kMostFiles);
    }
  }

 private:
  std::atomic<size_t> opened_ = 0;
};

}  // namespace ckptfs
