// What there is under keys that may be there.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "parser/base/error.h"
#include "parser/source/redis/servers.h"

namespace ckptfs::redis {

// Looks at keys that may be there, and at their first bytes.
class FirstLook final : public Dialogue {
 public:
  struct Found {
    uint64_t length = 0;           // Of the value; 0 if there is none.
    std::vector<std::byte> head;   // Of the size that was asked for, or the value if that is less.
    std::optional<Error> refused;  // Why the server does not tell.
  };

  // Wants `head_size` bytes of a value.
  struct Wanted {
    std::string key;
    uint64_t head_size = 0;
  };

  explicit FirstLook(std::vector<Wanted> wanted)
      : wanted_(std::move(wanted)), found_(wanted_.size()) {}

  const Found& found(size_t i) const { return found_[i]; }

  size_t size() const override { return wanted_.size(); }

  Question At(size_t i) const override;
  void Take(size_t i, size_t n, const resp::Head& head, Connection& connection) override;

 private:
  const std::vector<Wanted> wanted_;
  std::vector<Found> found_;
};

}  // namespace ckptfs::redis
