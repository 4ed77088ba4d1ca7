// Objects and folders on servers, and the blocks that caches divide objects into.

#pragma once

#include <sys/types.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

namespace ckptfs {

// Receives fetched bytes. Belongs to the thread that fetches.
class Delivery {
 public:
  virtual ~Delivery() = default;

  // Called when there is a connection for the request.
  virtual void Connected() {}

  // Called for a response of the server, before its first byte, and after an error that is retried.
  virtual void Answered() {}

  // The buffer for the next bytes. Empty only when all have arrived.
  virtual std::span<std::byte> room() = 0;

  // Called after the first `count` bytes of room() were written.
  virtual void Written(size_t count) = 0;

  // Called when no more bytes are at hand: readers may read what was written from then on.
  virtual void Flush() {}

  // Both at once.
  void Arrived(size_t count) {
    Written(count);
    Flush();
  }

  // Writes bytes that are in memory.
  void Take(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const std::span<std::byte> free = room();
      const size_t count = std::min(free.size(), bytes.size());
      std::memcpy(free.data(), bytes.data(), count);
      Written(count);
      bytes = bytes.subspan(count);
    }
  }
};

// One version of an object on a server, pinned: its bytes never change. All methods may be called
// by several threads at once.
class RemoteObject {
 public:
  virtual ~RemoteObject() = default;

  // The name for messages: "s3://bucket/model.pth". Never contains a secret.
  virtual std::string name() const = 0;

  // Length in bytes.
  virtual uint64_t size() const = 0;

  // The time of the last change; the epoch if unknown.
  virtual timespec modified() const { return {}; }

  // Identifies these bytes among all versions of all objects: the location of the object and its
  // version. Empty if the version is unknown. Never contains a secret.
  virtual std::string identity() const = 0;

  // The SHA-256 of all bytes, if a listing contains it.
  virtual std::optional<std::array<std::byte, 32>> sha256() const { return {}; }

  // The first bytes, if opening requested them.
  struct Head {
    uint64_t length = 0;
    std::chrono::steady_clock::duration round_trip{0};  // To the server; 0 if not known.
    std::chrono::steady_clock::duration latency{0};     // Of the response; 0 if not known.
  };

  // The first Fetch at offset 0 delivers these bytes as they arrive, without a request.
  virtual Head head() const { return {}; }

  // Frees the bytes of the head, 64 KiB for each of possibly many objects. Call it if they are not
  // fetched soon.
  virtual void ForgetHead() const {}

  // Fetches `length` bytes, which lie within the object, from `offset` on, in order. Retries after
  // transient errors until the timeout; bytes that have arrived are not fetched again. Throws
  // Error: ESTALE if the version has changed, ECANCELED soon after `stop` is requested, ETIMEDOUT,
  // EREMOTEIO, EACCES or ENOENT.
  virtual void Fetch(uint64_t offset, uint64_t length, Delivery& delivery,
                     const std::stop_token& stop) const = 0;

  // Closes the connections that no request uses, also those of other objects on the server.
  virtual void CloseIdle() const {}

  // A part that is stored separately: it remains available while others are missing.
  struct Part {
    std::shared_ptr<const RemoteObject> object;
    uint64_t offset = 0;  // Of its first byte in the whole.
  };

  // Whether the object consists of such parts.
  virtual bool has_parts() const { return false; }

  // Whether a part is known to be missing.
  virtual bool has_lost_parts() const { return false; }

  // Returns the part that contains the byte at `offset`. Call it only if has_parts(). Throws
  // Error(EIO) if no part contains it.
  virtual Part FindPart(uint64_t /*offset*/) const { return {}; }
};

using RemoteObjectPtr = std::shared_ptr<const RemoteObject>;

// The properties of a file or folder that its folder knows without opening it.
struct EntryInfo {
  bool is_folder = false;
  uint64_t size = 0;    // Of a file, in bytes.
  timespec modified{};  // When it was last changed; the epoch if that is not known.
  std::string version;  // Differs between versions of it. Empty if the version is unknown.

  // The permissions to read, as bits of r--r--r--, and the group that the bits in the middle are
  // for.
  mode_t permissions = 0444;
  std::optional<gid_t> group;  // Nothing: it has no group.
};

// A folder on a server. Its methods are those of Folder, but the files are objects, which are not
// cached. All methods may be called by several threads at once.
class RemoteFolder {
 public:
  virtual ~RemoteFolder() = default;

  virtual std::string name() const = 0;
  virtual std::vector<std::string> List() const = 0;
  virtual RemoteObjectPtr Open(const std::string& name) const = 0;
  virtual RemoteObjectPtr OpenData(const std::string& name) const { return Open(name); }
  virtual std::vector<std::string> ListFolders() const = 0;
  virtual std::shared_ptr<const RemoteFolder> OpenFolder(const std::string& name) const = 0;
  virtual std::optional<EntryInfo> Find(const std::string& name) const = 0;
  virtual bool is_immutable() const { return false; }
  virtual void ForgetListing() const {}
};

using RemoteFolderPtr = std::shared_ptr<const RemoteFolder>;

// In bytes. A read of 4 KiB costs one block, two if it lies across their border.
constexpr size_t kBlockSize = size_t{32} << 10;

// Returns the number of blocks of an object of `size` bytes; the last one may be shorter.
constexpr uint64_t BlockCount(uint64_t size) {
  return size / kBlockSize + (size % kBlockSize != 0 ? 1 : 0);
}

// Returns the length in bytes of block `block` of an object of `size` bytes.
constexpr size_t BlockLength(uint64_t size, uint64_t block) {
  return static_cast<size_t>(std::min<uint64_t>(kBlockSize, size - block * kBlockSize));
}

}  // namespace ckptfs
