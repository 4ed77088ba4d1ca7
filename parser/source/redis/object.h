// The values under the keys of a table, as one object.
//
// Redis has no versions of values. A value is pinned by its length, which every reply contains
// before the bytes: a key that is deleted, or whose value has another length, is missing from then
// on, even if it returns. A change of the same length is not detected, which a warning reports.

#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "parser/base/mutex.h"
#include "parser/io/remote_object.h"
#include "parser/io/source_options.h"
#include "parser/source/redis/cluster_client.h"
#include "parser/source/redis/key_table.h"
#include "parser/source/retry_policy.h"

namespace ckptfs::redis {

// The error code of each missing part of a table; 0 while the part is available. A missing part
// remains so. Thread-safe.
using Losses = std::vector<std::atomic<int>>;

// Fetches bytes of values, in the order in which they are added.
class ValueFetch final : public Pipeline {
 public:
  // All must outlive this.
  ValueFetch(const KeyTable& table, Losses& losses, RetryPolicy& retry, Delivery& delivery)
      : table_(table), losses_(losses), retry_(retry), delivery_(delivery) {}

  // Adds `length` bytes from byte `offset` on of the value of part `part`.
  void Add(size_t part, uint64_t offset, uint64_t length);

  size_t size() const override { return pieces_.size(); }
  Command At(size_t i) const override;
  void OnReply(size_t i, size_t n, const resp::Head& head, Connection& connection) override;

 private:
  struct Piece {
    size_t part = 0;
    uint64_t offset = 0;  // In the value.
    uint64_t length = 0;
  };

  // Returns the length in the reply to STRLEN, or marks the part as missing.
  uint64_t ParseLengthOrLose(const resp::Head& head, const Piece& piece);

  // Marks the part as missing and throws its Error.
  [[noreturn]] void Lose(const Piece& piece, int code);

  const KeyTable& table_;
  Losses& losses_;
  RetryPolicy& retry_;
  Delivery& delivery_;
  std::vector<Piece> pieces_;
  uint64_t received_ = 0;
};

class Object final : public RemoteObject, public std::enable_shared_from_this<Object> {
 public:
  // `table` has at least one part; `head` is the beginning of the first one.
  Object(std::string name, std::unique_ptr<ClusterClient> client, KeyTable table,
         std::vector<std::byte> head, const SourceOptions& options);

  // Looks for missing keys, and warns of them. Must be called before all other
  // methods.
  void CheckLengths();

  std::string name() const override { return name_; }
  uint64_t size() const override { return size_; }
  std::string identity() const override { return ""; }
  Head head() const override { return {.length = head_length_}; }
  void ForgetHead() const override { TakeHead(); }

  // Delivers the bytes before the first missing part, then throws.
  void Fetch(uint64_t offset, uint64_t length, Delivery& delivery,
             const std::stop_token& stop) const override;

  bool has_parts() const override { return table_.parts().size() > 1; }
  bool has_lost_parts() const override;
  Part FindPart(uint64_t offset) const override;

 private:
  std::vector<std::byte> TakeHead() const;

  const std::string name_;
  const SourceOptions options_;
  const KeyTable table_;
  const uint64_t head_length_;
  mutable Mutex mutex_;
  mutable std::vector<std::byte> head_ GUARDED_BY(mutex_);  // Empty once it is taken.
  mutable Losses losses_;                                   // One for each part.
  const std::unique_ptr<ClusterClient> client_;
  uint64_t size_;
};

}  // namespace ckptfs::redis
