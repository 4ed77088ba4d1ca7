// Writes pickles as Python does, opcode by opcode, and PyTorch's archives around them.

#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "parser/checkpoint.h"
#include "parser/io/byte_source.h"

namespace ckptfs {

// Each method appends; Finish adds STOP. The pickle is valid if the calls are in the order in which
// Python pushes.
class PickleWriter {
 public:
  PickleWriter() { text_ = "\x80\x02"; }

  PickleWriter& Raw(std::string_view opcodes);
  PickleWriter& Text(std::string_view text);
  PickleWriter& Int(int64_t number);
  PickleWriter& Float(double number);
  PickleWriter& None() { return Raw("N"); }
  PickleWriter& Bool(bool value) { return Raw(value ? "\x88" : "\x89"); }
  PickleWriter& Global(std::string_view module, std::string_view name);
  PickleWriter& Mark() { return Raw("("); }
  PickleWriter& Tuple() { return Raw("t"); }  // Of the values above the mark.
  PickleWriter& Reduce() { return Raw("R"); }
  PickleWriter& Build() { return Raw("b"); }
  PickleWriter& EmptyDict() { return Raw("}"); }
  PickleWriter& EmptyList() { return Raw("]"); }
  PickleWriter& SetItem() { return Raw("s"); }
  PickleWriter& Append() { return Raw("a"); }
  PickleWriter& Ints(std::span<const int64_t> numbers);  // A tuple of them.

  // A storage of `size` elements of the class torch.<type>Storage.
  PickleWriter& Storage(std::string_view type, std::string_view key, int64_t size);

  // A call of _rebuild_tensor_v2 on such a storage.
  struct View {
    int64_t offset = 0;
    std::vector<int64_t> shape;
    std::vector<int64_t> stride;
    bool requires_grad = false;
  };
  PickleWriter& Tensor(std::string_view type, std::string_view key, int64_t size, const View& view);

  std::string Finish() const { return text_ + "."; }

 private:
  std::string text_;
};

// An archive as torch.save writes it, with the storages "0", "1", ...
ByteSourcePtr TorchArchive(std::string_view pickle, std::span<const std::string> storages);

// Returns the member at `path`, keys joined by slashes. Fails the test if it does not exist.
const Member& At(const Group& root, std::string_view path);
const Tensor& TensorAt(const Checkpoint& checkpoint, std::string_view path);
const Value& ValueAt(const Checkpoint& checkpoint, std::string_view path);

// The bytes of the tensor at `path`.
std::string TextOf(const Checkpoint& checkpoint, std::string_view path);

}  // namespace ckptfs
