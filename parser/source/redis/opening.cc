#include "parser/source/redis/opening.h"

#include <algorithm>
#include <cerrno>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "parser/base/error.h"
#include "parser/source/http/attempts.h"
#include "parser/source/redis/answers.h"
#include "parser/source/redis/first_look.h"
#include "parser/source/redis/key_table.h"
#include "parser/source/redis/servers.h"
#include "parser/source/redis/transfer.h"

namespace ckptfs::redis {
namespace {

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

std::shared_ptr<const Object> OpenObject(Target target, const SourceOptions& options) {
  constexpr uint64_t kHeadSize = uint64_t{64} << 10U;
  const std::string name = target.name();
  const std::string key = target.key;
  const std::string header_key = HeaderKey(key);
  auto servers = std::make_unique<Servers>(std::move(target),
                                           http::Trust{.file = options.ca_file, .directory = ""});
  http::Attempts attempts(options, http::Attempts::Phase::kOpening, name, "");
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
