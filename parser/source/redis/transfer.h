// Bringing bytes of values, and finding out which are lost.

#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "parser/io/remote_object.h"
#include "parser/source/http/attempts.h"
#include "parser/source/redis/key_table.h"
#include "parser/source/redis/servers.h"

namespace ckptfs::redis {

// Which parts of a table are lost, and why: the code of the error, 0 while a part is there. A part
// that is lost stays so. Thread-safe.
using Losses = std::vector<std::atomic<int>>;

// Throws the Error that tells why `key` is lost.
[[noreturn]] void FailForLoss(int code, const std::string& key);

// Compares the length of every value with the table.
class LengthCheck final : public Dialogue {
 public:
  // Both must outlive this.
  LengthCheck(const KeyTable& table, Losses& losses) : table_(table), losses_(losses) {}

  size_t size() const override { return table_.parts().size(); }
  Question At(size_t i) const override;
  void Take(size_t i, size_t n, const resp::Head& head, Connection& connection) override;

 private:
  const KeyTable& table_;
  Losses& losses_;
};

// Brings bytes, in the order in which they are added.
class Transfer final : public Dialogue {
 public:
  // All must outlive this.
  Transfer(const KeyTable& table, Losses& losses, http::Attempts& attempts, Delivery& delivery)
      : table_(table), losses_(losses), attempts_(attempts), delivery_(delivery) {}

  // Adds `length` bytes from byte `offset` on of the value of part `part`.
  void Add(size_t part, uint64_t offset, uint64_t length);

  size_t size() const override { return pieces_.size(); }
  Question At(size_t i) const override;
  void Take(size_t i, size_t n, const resp::Head& head, Connection& connection) override;

 private:
  struct Piece {
    size_t part = 0;
    uint64_t offset = 0;  // In the value.
    uint64_t length = 0;
  };

  uint64_t NumberOrLoss(const resp::Head& head, const Piece& piece);
  [[noreturn]] void Lose(const Piece& piece, int code);

  const KeyTable& table_;
  Losses& losses_;
  http::Attempts& attempts_;
  Delivery& delivery_;
  std::vector<Piece> pieces_;
  uint64_t received_ = 0;
};

}  // namespace ckptfs::redis
