#include "tests/support/dcp_writer.h"

#include <span>

#include "tests/support/pickle_writer.h"
#include "tests/support/sources.h"

namespace ckptfs {
namespace {

// The opcodes that `writer` has written, without the frame of a pickle.
std::string Opcodes(const PickleWriter& writer) {
  const std::string text = writer.Finish();
  return text.substr(2, text.size() - 3);
}

std::string Text(std::string_view text) { return Opcodes(PickleWriter().Text(text)); }
std::string Int(int64_t number) { return Opcodes(PickleWriter().Int(number)); }

std::string Size(const std::vector<int64_t>& numbers) {
  return Opcodes(PickleWriter().Global("torch", "Size").Raw("(").Ints(numbers).Tuple().Reduce());
}

// A torch.save of the object that `pickle` is, with one storage.
std::string Saved(std::string_view pickle, const std::string& storage) {
  const ByteSourcePtr archive = TorchArchive(pickle, std::span(&storage, 1));
  return ReadString(*archive, 0, archive->size());
}

std::string SavedTensor(const DcpWriter::Chunk& chunk) {
  std::vector<int64_t> stride = chunk.stride;
  if (stride.empty()) {
    stride.resize(chunk.sizes.size(), 1);
    for (size_t i = stride.size(); i-- > 1;) stride[i - 1] = stride[i] * chunk.sizes[i];
  }
  const auto size = static_cast<int64_t>(chunk.data.size());
  return Saved(PickleWriter()
                   .Tensor("Byte", "0", size,
                           {.offset = 0, .shape = chunk.sizes, .stride = std::move(stride)})
                   .Finish(),
               chunk.data);
}

}  // namespace

std::string DcpWriter::Record(std::string_view name, std::string_view attributes) const {
  const std::string_view file = name == "_StorageInfo" ? ".filesystem" : ".metadata";
  std::string record = Opcodes(PickleWriter().Global(module_ + std::string(file), name));
  record += ")\x81";
  if (!attributes.empty()) record.append("}(").append(attributes).append("ub");
  return record;
}

DcpWriter& DcpWriter::Add(const std::string& name, const Tensor& tensor) {
  std::string chunks;
  for (const Chunk& chunk : tensor.chunks) {
    chunks += Record("ChunkStorageMetadata",
                     Text("offsets") + Size(chunk.offsets) + Text("sizes") + Size(chunk.sizes));
    if (!chunk.is_stored) continue;
    std::string& file = files_[chunk.file];
    const std::string saved = SavedTensor(chunk);
    AddPlace(name, &chunk.offsets, chunk.file, static_cast<int64_t>(file.size()),
             static_cast<int64_t>(saved.size()), chunk.transform);
    file += saved;
  }
  const std::string properties =
      Opcodes(PickleWriter().Global(module_ + ".metadata", "TensorProperties")) + ")\x81(" +
      Opcodes(PickleWriter().Global("torch", tensor.dtype).None().Bool(tensor.requires_grad)) +
      "N\x89tb";
  if (!tensor.path.empty()) paths_ += Text(name) + tensor.path;
  return AddOther(name, Record("TensorStorageMetadata", Text("properties") + properties +
                                                            Text("size") + Size(tensor.shape) +
                                                            Text("chunks") + "](" + chunks + "e"));
}

DcpWriter& DcpWriter::AddValue(const std::string& name, const std::string& file,
                               std::string_view pickle) {
  const std::string saved = Saved(pickle, "storage!");
  AddPlace(name, nullptr, file, static_cast<int64_t>(files_[file].size()),
           static_cast<int64_t>(saved.size()));
  files_[file] += saved;
  return AddOther(name, Record("BytesStorageMetadata", ""));
}

DcpWriter& DcpWriter::AddPlace(const std::string& name, const std::vector<int64_t>* offset,
                               const std::string& file, int64_t place, int64_t length,
                               const std::string& transform) {
  const std::string index =
      Text("fqn") + Text(name) + (offset == nullptr ? "" : Text("offset") + Size(*offset));
  std::string info = Text("relative_path") + Text(file) + Text("offset") + Int(place) +
                     Text("length") + Int(length);
  if (!transform.empty()) info += Text("transform_descriptors") + "](" + Text(transform) + "e";
  places_ += Record("MetadataIndex", index) + Record("_StorageInfo", info);
  return *this;
}

DcpWriter& DcpWriter::AddOther(const std::string& name, const std::string& opcodes) {
  items_ += Text(name) + opcodes;
  return *this;
}

std::string DcpWriter::Metadata(std::string_view more) const {
  std::string attributes = Text("state_dict_metadata") + "}(" + items_ + "u" +
                           Text("storage_data") + "}(" + places_ + "u";
  if (!paths_.empty()) attributes += Text("planner_data") + "}(" + paths_ + "u";
  attributes += more;
  return "\x80\x02" + Record("Metadata", attributes) + ".";
}

std::map<std::string, std::string> DcpWriter::Files(const std::string& index) const {
  auto files = files_;
  files[index] = Metadata();
  return files;
}

}  // namespace ckptfs
