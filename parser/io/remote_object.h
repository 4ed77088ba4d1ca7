// Where bytes come from that are not on this machine.

#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <memory>
#include <span>
#include <stop_token>
#include <string>

namespace ckptfs {

// Who takes the bytes that are fetched. Belongs to the thread that fetches.
class Delivery {
 public:
  virtual ~Delivery() = default;

  // Where the next bytes go. Empty only when all have arrived.
  virtual std::span<std::byte> room() = 0;

  // Says that the first `count` bytes of room() are there. They are read by others from then on.
  virtual void Arrived(size_t count) = 0;
};

// One version of an object on a server, pinned: its bytes never change. All methods may be called
// by several threads at once.
class RemoteObject {
 public:
  virtual ~RemoteObject() = default;

  // What this is, for messages: "s3://bucket/model.pth". Never contains a secret.
  virtual std::string name() const = 0;

  // Length in bytes.
  virtual uint64_t size() const = 0;

  // When it was last changed; the epoch if that is not known.
  virtual timespec modified() const { return {}; }

  // What tells these bytes from all others that there are and will be: where the object is, and its
  // version. Empty if no such version is known. Never contains a secret.
  virtual std::string identity() const = 0;

  // The first bytes of it, as far as opening has brought them.
  virtual std::span<const std::byte> head() const { return {}; }

  // Frees what head() returns, which may be 64 KiB of each of very many objects. Called before all
  // else, or not at all.
  virtual void ForgetHead() const {}

  // Fetches `length` bytes, which lie within the object, from `offset` on, in order. Goes on after
  // faults that may pass, for as long as the user wants to wait; what has arrived is not fetched
  // again. Throws Error: ESTALE if there is another version now, ECANCELED soon after `stop` wants
  // it, ETIMEDOUT, EREMOTEIO, EACCES or ENOENT.
  virtual void Fetch(uint64_t offset, uint64_t length, Delivery& delivery,
                     const std::stop_token& stop) const = 0;
};

using RemoteObjectPtr = std::shared_ptr<const RemoteObject>;

}  // namespace ckptfs
