// Writes distributed checkpoints as PyTorch does.

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace ckptfs {

// The files of a checkpoint. Items are written immediately; the metadata are the last file.
class DcpWriter {
 public:
  // The module of PyTorch's classes: since 2.0, and before.
  static constexpr std::string_view kModule = "torch.distributed.checkpoint";
  static constexpr std::string_view kOldModule = "torch.distributed._shard.checkpoint";

  explicit DcpWriter(std::string_view module = kModule) : module_(module) {}

  struct Chunk {
    std::string file;
    std::vector<int64_t> offsets;
    std::vector<int64_t> sizes;
    std::string data;             // As many bytes as elements.
    std::vector<int64_t> stride;  // None if it is dense.
    bool is_stored = true;        // Else it is in the metadata only.
    std::string transform;        // The name of its transform, such as a compression.
  };

  struct Tensor {
    std::vector<int64_t> shape;
    std::vector<Chunk> chunks;
    std::string dtype = "uint8";
    bool requires_grad = false;
    std::string path;  // Opcodes of a tuple; none if only its name is written.
  };

  DcpWriter& Add(const std::string& name, const Tensor& tensor);

  // A value: the pickle of an object.
  DcpWriter& AddValue(const std::string& name, const std::string& file, std::string_view pickle);

  // A location without anything else.
  DcpWriter& AddPlace(const std::string& name, const std::vector<int64_t>* offset,
                      const std::string& file, int64_t place, int64_t length,
                      const std::string& transform = "");

  // Something else in state_dict_metadata: opcodes.
  DcpWriter& AddOther(const std::string& name, const std::string& opcodes);

  // The pickle of the metadata. `more` are opcodes of other attributes of it.
  std::string Metadata(std::string_view more = "") const;

  // All files, the metadata as `index`.
  std::map<std::string, std::string> Files(const std::string& index = ".metadata") const;

 private:
  std::string Record(std::string_view name, std::string_view attributes) const;

  std::string module_;
  std::map<std::string, std::string> files_;
  std::string items_;  // Opcodes of pairs, as are these:
  std::string places_;
  std::string paths_;
};

}  // namespace ckptfs
