// Checkpoints in a Redis server, or a cluster of them: see redis/uri.h for what a URI names, and
// redis/key_table.h for what is stored.

#include <memory>
#include <utility>

#include "parser/scheme.h"
#include "parser/source/redis/object.h"
#include "parser/source/redis/opening.h"
#include "parser/source/redis/parts_source.h"
#include "parser/source/redis/uri.h"

namespace ckptfs {
namespace {

Source Open(const std::string& uri, const SourceOptions& options) {
  redis::Target target = redis::ReadUri(uri);
  redis::FillFromEnvironment(target);
  auto object = redis::OpenObject(std::move(target), options);
  const bool is_one_value = object->table().parts().size() == 1;
  return {.file = is_one_value ? options.cached(std::move(object))
                               : redis::MakePartsSource(std::move(object), options.cached),
          .folder = nullptr,
          .file_name = ""};
}

constexpr std::string_view kNames[] = {"redis", "rediss"};

}  // namespace

extern const Scheme redis_scheme{.names = kNames, .open = Open};

}  // namespace ckptfs
