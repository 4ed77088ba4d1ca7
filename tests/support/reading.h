// Reads checkpoints for tests.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "parser/base/error.h"
#include "parser/checkpoint.h"
#include "parser/detect.h"
#include "tests/support/memory_folder.h"

namespace ckptfs {

using Files = std::map<std::string, std::string>;  // The contents of a folder's files, by name.

inline Checkpoint Read(Files files) { return ReadCheckpoint(FolderOf(std::move(files))); }

// Returns the error of a checkpoint.
inline std::string ErrorOf(const Source& source) try {
  ReadCheckpoint(source);
  return "no error";
} catch (const Error& e) {
  return e.what();
}

inline std::string ErrorOf(Files files) { return ErrorOf(FolderOf(std::move(files))); }

// Reads the beginning and the end of `data`, and ignores errors.
inline void ReadEnds(const Extent& data) try {
  constexpr uint64_t kMost = 4096;  // Bytes.
  std::vector<std::byte> buffer(std::min(kMost, data.length));
  if (buffer.empty()) return;
  data.source->ReadAt(data.offset, buffer);
  data.source->ReadAt(data.offset + data.length - buffer.size(), buffer);
} catch (const Error&) {  // NOLINT(bugprone-empty-catch): that is what was to be found out.
}

// Reads the ends of each tensor and table in `group` that has no error.
inline void ReadTensors(const Group& group) {
  for (const Member& member : group.members) {
    std::visit(Overloaded{[](const std::unique_ptr<Group>& child) {
                            const auto& table = child->table;
                            if (table != nullptr && !table->error) ReadEnds(table->data);
                            ReadTensors(*child);
                          },
                          [](const Value& /*value*/) {},
                          [](const auto& file) {
                            if (!file.error) ReadEnds(file.data);
                          }},
               member.content);
  }
}

}  // namespace ckptfs
