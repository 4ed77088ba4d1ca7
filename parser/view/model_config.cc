#include "parser/view/model_config.h"

#include <cerrno>
#include <cstdint>

#include "parser/base/budget.h"
#include "parser/base/error.h"
#include "parser/codec/json_document.h"

namespace ckptfs {

bool IsDiffusersComponent(const Folder& folder) try {
  constexpr uint64_t kMostConfig = uint64_t{1} << 20U;  // Bytes.
  constexpr const char* kConfig = "config.json";
  const auto info = folder.Find(kConfig);
  if (!info || info->is_folder || info->size > kMostConfig) return false;
  const ByteSourcePtr file = folder.Open(kConfig);
  if (file->size() > kMostConfig) return false;
  Budget budget = Budget::ForFile(file->size());
  const auto config = json::Document::Of({file, 0, file->size()}, budget);
  return config.root().Find("_class_name").has_value();
} catch (const Error& e) {
  if (IsTransient(e.code()) || e.code() == EINTR) throw;
  return false;
}

}  // namespace ckptfs
