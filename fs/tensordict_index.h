// tensors.jsonl: the location of the bytes of each tensor.
//
//   {"key":"h.0.weight","dtype":"torch.float32","shape":[4,3],"stride":null,
//    "path":"h/0/weight.memmap","bytes":48,"file":null,"member":"archive/data/3",
//    "file_offset":1234,"storage_offset":null,"error":null}
//
// A line for each tensor and each table (whose dtype and shape are null), in the order of the
// checkpoint. Other names of the same bytes have lines of their own. Properties of bytes are here
// and in extended attributes, and not in meta.json, which depends on the content of the
// checkpoint alone.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fs/tensordict_meta.h"
#include "parser/checkpoint.h"
#include "parser/io/byte_source.h"

namespace ckptfs {

// Collects the contents of the lines in some 60 bytes each. The text is formatted only when it is
// read.
class TensorIndex {
 public:
  static constexpr uint32_t kRoot = 0;  // The root of the mount.

  // The maximum size of a key in a line; longer keys are truncated. Longer paths, which no system
  // call accepts, are null.
  static constexpr size_t kMostText = 4095;

  TensorIndex() { directories_.emplace_back(); }

  // Reserves space for about so many lines. Unused space costs addresses, not memory.
  void Reserve(size_t lines);

  // Adds a directory below `parent`. `key` is its part of the keys of its tensors.
  uint32_t AddDirectory(uint32_t parent, std::string_view key, std::string_view file_name);

  // Makes places in the order of lines for the table and the members of a group. Returns the first
  // one, which is that of the table; that of member i is by i + 1 greater. `place` is that of the
  // group in its parent; ignored for the first group, the root.
  size_t AddGroup(size_t place, size_t members);

  // Adds a line. `place` counts from the result of AddGroup.
  void Add(uint32_t directory, size_t place, std::string_view key, std::string_view file_name,
           const Tensor& tensor);
  void Add(uint32_t directory, size_t place, std::string_view key, std::string_view file_name,
           const Table& table);

  // Returns the text; consumes the index.
  ByteSourcePtr Finish() &&;

 private:
  class Source;

  // The text before the keys and the paths of lines.
  struct Directory {
    uint64_t texts = 0;  // Where its key and its name are in records_.
    uint32_t parent = 0;
    uint16_t key_bytes = 0;   // Of the key, as it is, with a dot behind.
    uint16_t path_bytes = 0;  // Of the path, with a slash behind; more than kMostText if too long.
    uint32_t key_size = 0;    // Both as they are in JSON.
    uint32_t path_size = 0;
  };

  struct Line;

  void Append(const Line& line);
  Line Parse(uint64_t begin) const;
  void AppendNumber(uint64_t number);
  void AppendText(std::string_view text);
  uint64_t ReadNumber(uint64_t& at) const;
  std::string_view ReadText(uint64_t& at) const;
  template <typename Out>
  void Write(const Line& line, Out& out) const;
  void SetOrder(size_t group, std::vector<uint64_t>& order) const;

  std::string records_;
  std::vector<Directory> directories_;
  std::vector<uint64_t> places_;                       // In the order of lines; see kNothing.
  std::vector<std::pair<uint64_t, uint64_t>> groups_;  // The first of its places, and their number.
};

}  // namespace ckptfs
