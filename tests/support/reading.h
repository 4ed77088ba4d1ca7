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

using Files = std::map<std::string, std::string>;  // What is in a folder, by name.

inline Checkpoint Read(Files files) { return ReadCheckpoint(FolderOf(std::move(files))); }

// Returns what is wrong with a checkpoint.
inline std::string ErrorOf(const Source& source) try {
  ReadCheckpoint(source);
  return "no error";
} catch (const Error& e) {
  return e.what();
}

inline std::string ErrorOf(Files files) { return ErrorOf(FolderOf(std::move(files))); }

// Reads the beginning and the end of `data`; what cannot be read is left alone.
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
    if (const auto* child = std::get_if<std::unique_ptr<Group>>(&member.content)) {
      const auto& table = (*child)->table;
      if (table != nullptr && table->error.empty()) ReadEnds(table->data);
      ReadTensors(**child);
    } else if (const auto* tensor = std::get_if<Tensor>(&member.content)) {
      if (tensor->error.empty()) ReadEnds(tensor->data);
    } else if (const auto* lines = std::get_if<Table>(&member.content)) {
      if (lines->error.empty()) ReadEnds(lines->data);
    }
  }
}

}  // namespace ckptfs
