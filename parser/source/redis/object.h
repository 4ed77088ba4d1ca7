// The values under the keys of a table, as one object.
//
// Redis has no versions of values. What pins them is their length alone, which comes before the
// bytes with every answer: a key that is gone, or whose value has another length, is lost from then
// on, even if it comes back. A change to one of the same length goes unnoticed, and the user is
// told so.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "parser/io/remote_object.h"
#include "parser/io/source_options.h"
#include "parser/source/redis/key_table.h"
#include "parser/source/redis/servers.h"
#include "parser/source/redis/transfer.h"

namespace ckptfs::redis {

class Object final : public RemoteObject {
 public:
  // `table` has at least one part; `head` is the beginning of the first one.
  Object(std::string name, std::unique_ptr<Servers> servers, KeyTable table,
         std::vector<std::byte> head, const SourceOptions& options);

  // Looks for keys that are lost already, and tells the user. To be called before all else.
  void CheckLengths();

  std::string name() const override { return name_; }
  uint64_t size() const override { return size_; }
  std::string identity() const override { return ""; }
  std::span<const std::byte> head() const override;
  void ForgetHead() const override { std::vector<std::byte>().swap(head_); }

  // Brings all that is before the first part that is lost.
  void Fetch(uint64_t offset, uint64_t length, Delivery& delivery,
             const std::stop_token& stop) const override;

  const KeyTable& table() const { return table_; }

  // Whether a part is known to be lost.
  bool has_losses() const;

 private:
  const std::string name_;
  const SourceOptions options_;
  const KeyTable table_;
  mutable std::vector<std::byte> head_;
  mutable Losses losses_;  // One for each part.
  const std::unique_ptr<Servers> servers_;
  uint64_t size_;
};

}  // namespace ckptfs::redis
