// Values in a Redis server or cluster: redis/connection.h describes the URIs,
// redis/key_table.h the keys.

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "parser/base/error.h"
#include "parser/io/prefetch.h"
#include "parser/scheme.h"
#include "parser/source/redis/cluster_client.h"
#include "parser/source/redis/connection.h"
#include "parser/source/redis/key_table.h"
#include "parser/source/redis/object.h"
#include "parser/source/retry_policy.h"

namespace ckptfs::redis {
namespace {

// Fetches the lengths and the first bytes of values under keys that may exist.
class KeyProbe final : public Pipeline {
 public:
  struct Key {
    std::string key;
    uint64_t head_size = 0;  // Bytes to fetch.
  };

  struct Result {
    uint64_t length = 0;           // Of the value; 0 if there is none.
    std::vector<std::byte> head;   // As many bytes as requested, or the value if it is shorter.
    std::optional<Error> refused;  // The error reply of the server.
  };

  explicit KeyProbe(std::vector<Key> keys) : keys_(std::move(keys)), results_(keys_.size()) {}

  const Result& result(size_t i) const { return results_[i]; }

  size_t size() const override { return keys_.size(); }

  Command At(size_t i) const override {
    const auto& [key, head_size] = keys_[i];
    return {.key = key,
            .requests = {EncodeStrlen(key), EncodeGetRange(key, 0, head_size)},
            .reply_size = head_size};
  }

  void OnReply(size_t i, size_t n, const resp::Head& head, Connection& connection) override {
    Result& result = results_[i];
    if (n == 0) result = {};
    try {
      ThrowIfError(head);
    } catch (const Error& e) {
      result.refused = e;
      return;
    }
    if (n == 0) {
      result.length = ParseLengthReply(head);
      return;
    }
    result.head = ReadValue(head, keys_[i].head_size, connection);
    // Memory is reserved by these lengths, so they must agree.
    const uint64_t expected = std::min(result.length, keys_[i].head_size);
    if (!result.refused && result.head.size() != expected) {
      Fail(EPROTO, "key {}: inconsistent lengths: value of {} bytes (found {}, expected {})",
           Quoted(keys_[i].key), result.length, result.head.size(), expected);
    }
  }

 private:
  static std::vector<std::byte> ReadValue(const resp::Head& head, uint64_t most,
                                          Connection& connection) {
    std::vector<std::byte> bytes(static_cast<size_t>(ParseRangeReply(head, most)));
    for (std::span<std::byte> room = bytes; !room.empty();) {
      room = room.subspan(connection.Read(room));
    }
    connection.ReadEnd();
    return bytes;
  }

  const std::vector<Key> keys_;
  std::vector<Result> results_;
};

// Delivers into a buffer.
class BufferDelivery final : public Delivery {
 public:
  explicit BufferDelivery(std::span<std::byte> buffer) : buffer_(buffer) {}
  std::span<std::byte> room() override { return buffer_; }
  void Written(size_t count) override { buffer_ = buffer_.subspan(count); }

 private:
  std::span<std::byte> buffer_;
};

// Reads the header of a model, whose first bytes are in `probed`.
std::vector<std::byte> ReadHeader(const std::string& key, const KeyProbe::Result& probed,
                                  ClusterClient& client, RetryPolicy& retry) {
  if (probed.length > kLargestHeader) {
    Fail(EFBIG, "key {}: header too large (found {} bytes, expected at most {})", Quoted(key),
         probed.length, kLargestHeader);
  }
  std::vector<std::byte> header = probed.head;
  const size_t present = header.size();
  header.resize(static_cast<size_t>(probed.length));
  const KeyTable table(key, probed.length);
  Losses losses(1);
  BufferDelivery rest{std::span<std::byte>(header).subspan(present)};
  ValueFetch fetch(table, losses, retry, rest);
  fetch.Add(0, present, probed.length - present);
  client.Run(fetch, retry, std::stop_token());
  return header;
}

// Opens the value or the model of `target`: one round trip for a value; for a model, also the
// length of every value. Throws Error: ENOENT, EACCES, EINVAL if the value is not a string, or as
// RemoteObject::Fetch does.
RemoteObjectPtr OpenObject(Target target, const SourceOptions& options) {
  const std::string name = target.name();
  const std::string key = target.key;
  const std::string header_key = HeaderKey(key);
  auto client = std::make_unique<ClusterClient>(
      std::move(target), TrustedCertificates{.file = options.ca_file, .directory = ""});
  RetryPolicy retry(options, RetryPolicy::Phase::kOpening, name, "");
  KeyProbe probe({{header_key, kLargestRange}, {key, kPrefetchedHead}});
  client->Run(probe, retry, std::stop_token());

  const KeyProbe::Result& model = probe.result(0);
  const KeyProbe::Result& value = probe.result(1);
  std::shared_ptr<Object> object;
  if (model.length != 0 && !model.refused) {
    std::vector<std::byte> header = ReadHeader(header_key, model, *client, retry);
    try {
      object = std::make_shared<Object>(name, std::move(client), KeyTable(key, std::move(header)),
                                        std::vector<std::byte>(), options);
    } catch (const Error& e) {
      throw WithContext("key " + Quoted(header_key), e);
    }
    object->CheckLengths();
  } else if (value.length != 0 && !value.refused) {
    object = std::make_shared<Object>(name, std::move(client), KeyTable(key, value.length),
                                      value.head, options);
  } else if (value.refused) {
    throw WithContext("key " + Quoted(key), *value.refused);
  } else if (model.refused) {
    throw WithContext("key " + Quoted(header_key), *model.refused);
  } else {
    Fail(ENOENT, "key {}: not found, nor a model of tensorizer ({})", Quoted(key),
         Quoted(header_key));
  }
  if (options.warn) {
    options.warn(name +
                 ": Redis has no versions: changes of a value that keep its length are not "
                 "detected");
  }
  return object;
}

SchemeSource OpenRedis(const Location& location, const SourceOptions& options) {
  Target target = ParseUri(location);
  FillFromEnvironment(target);
  return RemoteSource{
      .object = OpenObject(std::move(target), options), .folder = nullptr, .file_name = ""};
}

constexpr std::string_view kRedisNames[] = {"redis", "rediss"};

}  // namespace
}  // namespace ckptfs::redis

namespace ckptfs {

extern const Scheme redis_scheme{.names = redis::kRedisNames, .open = redis::OpenRedis};

}  // namespace ckptfs
