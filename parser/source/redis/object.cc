#include "parser/source/redis/object.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "parser/base/error.h"
#include "parser/source/http/attempts.h"

namespace ckptfs::redis {
namespace {

using Phase = http::Attempts::Phase;

// The cache keeps its objects, which must not keep the cache.
SourceOptions WithoutCache(SourceOptions options) {
  options.cached = nullptr;
  return options;
}

}  // namespace

Object::Object(std::string name, std::unique_ptr<Servers> servers, KeyTable table,
               std::vector<std::byte> head, const SourceOptions& options)
    : name_(std::move(name)),
      options_(WithoutCache(options)),
      table_(std::move(table)),
      head_(std::move(head)),
      losses_(table_.parts().size()),
      servers_(std::move(servers)),
      size_(table_.parts().back().end()) {}

std::span<const std::byte> Object::head() const { return head_.empty() ? table_.header() : head_; }

bool Object::has_losses() const {
  return std::ranges::any_of(losses_, [](const auto& code) { return code != 0; });
}

void Object::CheckLengths() {
  LengthCheck check(table_, losses_);
  http::Attempts attempts(options_, Phase::kOpening, name_, "");
  servers_->Run(check, attempts, std::stop_token());
  const auto parts = table_.parts();
  size_t lost = 0;
  size_t first = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (losses_[i] == 0) {
      size_ = parts[i].end();
    } else if (lost++ == 0) {
      first = i;
    }
  }
  if (lost == 0 || !options_.warn) return;
  options_.warn(fmt::format("{}: {} of {} keys {} not there or not as the index says: {}{}", name_,
                            lost, parts.size(), lost == 1 ? "is" : "are",
                            Quoted(table_.KeyOf(parts[first])), lost == 1 ? "" : ", ..."));
}

void Object::Fetch(uint64_t offset, uint64_t length, Delivery& delivery,
                   const std::stop_token& stop) const {
  http::Attempts attempts(options_, Phase::kReading, name_,
                          fmt::format("bytes {} to {}", offset, offset + length - 1));
  Transfer transfer(table_, losses_, attempts, delivery);
  const auto parts = table_.parts();
  size_t i = table_.Find(offset);
  for (; length > 0 && i < parts.size() && parts[i].offset <= offset && losses_[i] == 0; ++i) {
    const uint64_t count = std::min(length, parts[i].end() - offset);
    transfer.Add(i, offset - parts[i].offset, count);
    offset += count;
    length -= count;
  }
  servers_->Run(transfer, attempts, stop);
  if (length == 0) return;
  if (i < parts.size() && parts[i].offset <= offset) {
    FailForLoss(losses_[i], table_.KeyOf(parts[i]));
  }
  Fail(EIO, "no key has the bytes from byte {} on", offset);
}

}  // namespace ckptfs::redis
