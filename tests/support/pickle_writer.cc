#include "tests/support/pickle_writer.h"

#include <algorithm>
#include <bit>
#include <stdexcept>

#include "tests/support/sources.h"
#include "tests/support/zip_writer.h"

namespace ckptfs {
namespace {

template <typename T>
std::string Bytes(T number) {
  return {reinterpret_cast<const char*>(&number), sizeof number};
}

}  // namespace

PickleWriter& PickleWriter::Raw(std::string_view opcodes) {
  text_ += opcodes;
  return *this;
}

PickleWriter& PickleWriter::Text(std::string_view text) {
  text_ += "X" + Bytes(static_cast<uint32_t>(text.size()));
  return Raw(text);
}

PickleWriter& PickleWriter::Int(int64_t number) { return Raw("\x8a\x08" + Bytes(number)); }

PickleWriter& PickleWriter::Float(double number) {
  std::string bytes = Bytes(number);
  std::ranges::reverse(bytes);
  return Raw("G" + bytes);
}

PickleWriter& PickleWriter::Global(std::string_view module, std::string_view name) {
  return Raw("c").Raw(module).Raw("\n").Raw(name).Raw("\n");
}

PickleWriter& PickleWriter::Ints(std::span<const int64_t> numbers) {
  Mark();
  for (const int64_t number : numbers) Int(number);
  return Tuple();
}

PickleWriter& PickleWriter::Storage(std::string_view type, std::string_view key, int64_t size) {
  Mark().Text("storage").Global("torch", std::string(type) + "Storage");
  return Text(key).Text("cpu").Int(size).Tuple().Raw("Q");
}

PickleWriter& PickleWriter::Tensor(std::string_view type, std::string_view key, int64_t size,
                                   const View& view) {
  Global("torch._utils", "_rebuild_tensor_v2").Mark().Storage(type, key, size);
  Int(view.offset).Ints(view.shape).Ints(view.stride).Bool(view.requires_grad);
  return Global("collections", "OrderedDict").Raw(")R").Tuple().Reduce();
}

ByteSourcePtr TorchArchive(std::string_view pickle, std::span<const std::string> storages) {
  ZipWriter zip;
  zip.Add("archive/data.pkl", pickle).Add("archive/byteorder", "little");
  for (size_t i = 0; i < storages.size(); ++i) {
    zip.Add("archive/data/" + std::to_string(i), storages[i]);
  }
  return zip.Add("archive/version", "3\n").Source();
}

const Member& At(const Group& root, std::string_view path) {
  const std::string_view first = path.substr(0, path.find('/'));
  const auto found = std::ranges::find_if(
      root.members, [&](const Member& member) { return member.key.text == first; });
  if (found == root.members.end()) throw std::out_of_range(std::string(path));
  if (first.size() == path.size()) return *found;
  return At(*std::get<std::unique_ptr<Group>>(found->content), path.substr(first.size() + 1));
}

const Tensor& TensorAt(const Checkpoint& checkpoint, std::string_view path) {
  return std::get<Tensor>(At(checkpoint.root, path).content);
}

const Value& ValueAt(const Checkpoint& checkpoint, std::string_view path) {
  return std::get<Value>(At(checkpoint.root, path).content);
}

std::string TextOf(const Checkpoint& checkpoint, std::string_view path) {
  return ReadString(TensorAt(checkpoint, path).data);
}

}  // namespace ckptfs
