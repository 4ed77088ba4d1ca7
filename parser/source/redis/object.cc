// Redis has no versions of values. What pins them is their length alone, which comes before the
// bytes with every answer: a key that is gone, or whose value has another length, is lost from then
// on, even if it comes back. A change to one of the same length goes unnoticed, and the user is
// told so.

#include "parser/source/redis/object.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "parser/error.h"
#include "parser/source/redis/key_table.h"
#include "parser/source/redis/servers.h"

namespace ckptfs::redis {
namespace {

using Kind = resp::Head::Kind;
using Phase = http::Attempts::Phase;

std::string Command(std::initializer_list<std::string_view> words) {
  std::string command;
  resp::AppendCommand(words, command);
  return command;
}

std::string Strlen(std::string_view key) { return Command({"STRLEN", key}); }

// `length` bytes, at least one, of the value of `key`.
std::string GetRange(std::string_view key, uint64_t offset, uint64_t length) {
  return Command({"GETRANGE", key, std::to_string(offset), std::to_string(offset + length - 1)});
}

[[noreturn]] void FailOddly() { Fail(EPROTO, "the server answers something else than was asked"); }

uint64_t NumberOf(const resp::Head& head) {
  RequireNoError(head);
  if (head.kind != Kind::kNumber || head.number < 0) FailOddly();
  return static_cast<uint64_t>(head.number);
}

// Of a value, whose bytes follow, how many there are.
uint64_t SizeOf(const resp::Head& head, uint64_t most) {
  RequireNoError(head);
  if (head.kind != Kind::kValue || static_cast<uint64_t>(head.number) > most) FailOddly();
  return static_cast<uint64_t>(head.number);
}

std::vector<std::byte> ReadValue(const resp::Head& head, uint64_t most, Connection& connection) {
  std::vector<std::byte> bytes(static_cast<size_t>(SizeOf(head, most)));
  for (std::span<std::byte> room = bytes; !room.empty();) {
    room = room.subspan(connection.Read(room));
  }
  connection.ReadEnd();
  return bytes;
}

// Looks at keys that may be there, and at their first bytes.
class FirstLook final : public Dialogue {
 public:
  struct Found {
    uint64_t length = 0;  // Of the value; 0 if there is none.
    std::vector<std::byte> head;
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

  Question At(size_t i) const override {
    const auto& [key, head_size] = wanted_[i];
    return {.key = key,
            .commands = {Strlen(key), GetRange(key, 0, head_size)},
            .answer_size = head_size};
  }

  void Take(size_t i, size_t n, const resp::Head& head, Connection& connection) override {
    if (n == 0) found_[i] = {};
    try {
      RequireNoError(head);
    } catch (const Error& e) {
      found_[i].refused = e;
      return;
    }
    if (n == 0) {
      found_[i].length = NumberOf(head);
    } else {
      found_[i].head = ReadValue(head, wanted_[i].head_size, connection);
    }
  }

 private:
  const std::vector<Wanted> wanted_;
  std::vector<Found> found_;
};

// What is known to be lost, and why: the code of the error, 0 while it is there. Thread-safe.
using Losses = std::vector<std::atomic<int>>;

// The code for a value that has `now` bytes instead of those it had.
int CodeOfLoss(uint64_t now) { return now == 0 ? EIO : ESTALE; }

[[noreturn]] void FailForLoss(int code, const std::string& key) {
  if (code == EINVAL) Fail(EIO, "the key {} is no string any more", Quoted(key));
  if (code == ESTALE) Fail(code, "the value of the key {} has changed", Quoted(key));
  Fail(code, "the key {} is gone: it was deleted or evicted, or has expired", Quoted(key));
}

// Compares the length of every value with the index.
class LengthCheck final : public Dialogue {
 public:
  LengthCheck(const KeyTable& table, Losses& losses) : table_(table), losses_(losses) {}

  size_t size() const override { return table_.parts().size(); }

  Question At(size_t i) const override {
    const std::string key = table_.KeyOf(table_.parts()[i]);
    return {.key = key, .commands = {Strlen(key)}, .answer_size = 0};
  }

  void Take(size_t i, size_t /*n*/, const resp::Head& head, Connection& /*connection*/) override {
    int code = 0;
    try {
      const uint64_t length = NumberOf(head);
      if (length != table_.parts()[i].length) code = CodeOfLoss(length);
    } catch (const Error& e) {
      if (e.code() != EINVAL) throw;
      code = EINVAL;
    }
    losses_[i] = code;
  }

 private:
  const KeyTable& table_;
  Losses& losses_;
};

// Brings bytes of the file.
class Transfer final : public Dialogue {
 public:
  // All must outlive this.
  Transfer(const KeyTable& table, Losses& losses, http::Attempts& attempts, Delivery& delivery)
      : table_(table), losses_(losses), attempts_(attempts), delivery_(delivery) {}

  // Adds `length` bytes from byte `offset` on of the value of part `part`.
  void Add(size_t part, uint64_t offset, uint64_t length) {
    while (length > 0) {
      const uint64_t count = std::min(length, kLargestRange);
      pieces_.push_back({.part = part, .offset = offset, .length = count});
      offset += count;
      length -= count;
    }
  }

  size_t size() const override { return pieces_.size(); }

  Question At(size_t i) const override {
    const Piece& piece = pieces_[i];
    const std::string key = table_.KeyOf(table_.parts()[piece.part]);
    return {.key = key,
            .commands = {Strlen(key), GetRange(key, piece.offset, piece.length)},
            .answer_size = piece.length};
  }

  void Take(size_t i, size_t n, const resp::Head& head, Connection& connection) override {
    Piece& piece = pieces_[i];
    const uint64_t wanted = table_.parts()[piece.part].length;
    if (n == 0) {
      const uint64_t length = NumberOrLoss(head, piece);
      if (length != wanted) Lose(piece, CodeOfLoss(length));
      return;
    }
    const uint64_t size = SizeOf(head, piece.length);
    if (size < piece.length) Lose(piece, CodeOfLoss(size));
    while (piece.length > 0) {
      const std::span<std::byte> room = delivery_.room();
      const size_t count = connection.Read(
          room.first(static_cast<size_t>(std::min<uint64_t>(room.size(), piece.length))));
      // After a fault it goes on here.
      piece.offset += count;
      piece.length -= count;
      received_ += count;
      delivery_.Arrived(count);
    }
    connection.ReadEnd();
    attempts_.Received(received_);
  }

 private:
  struct Piece {
    size_t part = 0;
    uint64_t offset = 0;  // In the value.
    uint64_t length = 0;
  };

  uint64_t NumberOrLoss(const resp::Head& head, const Piece& piece) {
    try {
      return NumberOf(head);
    } catch (const Error& e) {
      if (e.code() == EINVAL) Lose(piece, EINVAL);
      throw;
    }
  }

  [[noreturn]] void Lose(const Piece& piece, int code) {
    losses_[piece.part] = code;
    FailForLoss(code, table_.KeyOf(table_.parts()[piece.part]));
  }

  const KeyTable& table_;
  Losses& losses_;
  http::Attempts& attempts_;
  Delivery& delivery_;
  std::vector<Piece> pieces_;
  uint64_t received_ = 0;
};

class Object final : public RemoteObject {
 public:
  Object(std::string name, std::unique_ptr<Servers> servers, KeyTable table,
         std::vector<std::byte> head, const SourceOptions& options)
      : name_(std::move(name)),
        options_(options),
        table_(std::move(table)),
        head_(std::move(head)),
        losses_(table_.parts().size()),
        servers_(std::move(servers)),
        size_(table_.parts().back().end()) {}

  // Looks for keys of a model that are lost already.
  void CheckLengths() {
    LengthCheck check(table_, losses_);
    http::Attempts attempts(options_, Phase::kOpening, name_, "");
    servers_->Run(check, attempts, std::stop_token());
    size_t lost = 0;
    size_t first = 0;
    for (size_t i = losses_.size(); i-- > 0;) {
      if (losses_[i] == 0) continue;
      ++lost;
      first = i;
    }
    for (size_t i = 0; i < losses_.size(); ++i) {
      if (losses_[i] == 0) size_ = table_.parts()[i].end();
    }
    if (lost != 0 && options_.warn) {
      options_.warn(fmt::format(
          "{}: {} of {} keys {} not there or not as the index says; the {} {}", name_, lost,
          losses_.size(), lost == 1 ? "is" : "are", lost == 1 ? "key is" : "first one is",
          Quoted(table_.KeyOf(table_.parts()[first]))));
    }
  }

  std::string name() const override { return name_; }
  uint64_t size() const override { return size_; }
  std::string identity() const override { return ""; }
  std::span<const std::byte> head() const override {
    return head_.empty() ? table_.header() : head_;
  }

  void Fetch(uint64_t offset, uint64_t length, Delivery& delivery,
             const std::stop_token& stop) const override {
    http::Attempts attempts(options_, Phase::kReading, name_,
                            fmt::format("bytes {} to {}", offset, offset + length - 1));
    Transfer transfer(table_, losses_, attempts, delivery);
    const auto parts = table_.parts();
    size_t i = table_.Find(offset);
    // Up to where there are keys; what is behind a gap cannot be fetched in order.
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

 private:
  const std::string name_;
  const SourceOptions options_;
  const KeyTable table_;
  const std::vector<std::byte> head_;  // Of a value.
  mutable Losses losses_;              // One for each part.
  const std::unique_ptr<Servers> servers_;
  uint64_t size_;
};

// Reads the header of a model, the beginning of which is there.
std::vector<std::byte> ReadHeader(const std::string& key, const FirstLook::Found& found,
                                  Servers& servers, http::Attempts& attempts) {
  class Rest final : public Delivery {
   public:
    explicit Rest(std::span<std::byte> bytes) : bytes_(bytes) {}
    std::span<std::byte> room() override { return bytes_; }
    void Arrived(size_t count) override { bytes_ = bytes_.subspan(count); }

   private:
    std::span<std::byte> bytes_;
  };

  if (found.length > kLargestHeader) {
    Fail(EFBIG, "the key {} has {} bytes, but {} is the most", Quoted(key), found.length,
         kLargestHeader);
  }
  std::vector<std::byte> header = found.head;
  const size_t there = header.size();
  header.resize(static_cast<size_t>(found.length));
  const KeyTable table(key, found.length);
  Losses losses(1);
  Rest rest{std::span(header).subspan(there)};
  Transfer transfer(table, losses, attempts, rest);
  transfer.Add(0, there, found.length - there);
  servers.Run(transfer, attempts, std::stop_token());
  return header;
}

}  // namespace

RemoteObjectPtr OpenObject(Target target, const SourceOptions& options) {
  constexpr uint64_t kHeadSize = uint64_t{64} << 10U;
  const std::string name = target.name();
  const std::string key = target.key;
  const std::string header_key = HeaderKey(key);
  auto servers = std::make_unique<Servers>(std::move(target),
                                           http::Trust{.file = options.ca_file, .directory = ""});
  http::Attempts attempts(options, Phase::kOpening, name, "");
  FirstLook look({{header_key, kLargestRange}, {key, kHeadSize}});
  servers->Run(look, attempts, std::stop_token());

  const FirstLook::Found& model = look.found(0);
  const FirstLook::Found& value = look.found(1);
  std::shared_ptr<Object> object;
  if (model.length != 0 && !model.refused) {
    std::vector<std::byte> header = ReadHeader(header_key, model, *servers, attempts);
    try {
      object = std::make_shared<Object>(name, std::move(servers), KeyTable(key, std::move(header)),
                                        std::vector<std::byte>(), options);
    } catch (const Error& e) {
      throw WithContext("the key " + Quoted(header_key), e);
    }
    object->CheckLengths();
  } else if (value.length != 0 && !value.refused) {
    object = std::make_shared<Object>(name, std::move(servers), KeyTable(key, value.length),
                                      value.head, options);
  } else if (value.refused) {
    throw WithContext("the key " + Quoted(key), *value.refused);
  } else if (model.refused) {
    throw WithContext("the key " + Quoted(header_key), *model.refused);
  } else {
    Fail(ENOENT, "there is neither a value under the key {} nor a model of tensorizer ({})",
         Quoted(key), Quoted(header_key));
  }
  if (options.warn) {
    options.warn(name +
                 ": Redis has no versions: a value that is replaced by one of the same "
                 "length goes unnoticed");
  }
  return object;
}

}  // namespace ckptfs::redis
