// Checkpoints in a Redis server, or a cluster of them: see redis/uri.h for what a URI names, and
// redis/key_table.h for what is stored.

#include "parser/scheme.h"
#include "parser/source/redis/object.h"
#include "parser/source/redis/uri.h"

namespace ckptfs {
namespace {

Source Open(const std::string& uri, const SourceOptions& options) {
  redis::Target target = redis::ReadUri(uri);
  redis::FillFromEnvironment(target);
  return {.file = options.cached(redis::OpenObject(std::move(target), options)),
          .folder = nullptr,
          .file_name = ""};
}

constexpr std::string_view kNames[] = {"redis", "rediss"};

}  // namespace

extern const Scheme redis_scheme{.names = kNames, .open = Open};

}  // namespace ckptfs
