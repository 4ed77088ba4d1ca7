// PyTorch's zip container, what torch.save writes since 1.6 (and could write since 1.4): an archive
// in which each name begins with one folder.
//
//   folder/data.pkl    the object, one pickle, in which storages have persistent ids
//   folder/data/KEY    the bytes of the storage KEY
//   folder/byteorder   "little" or "big"; little where it is missing
//   folder/version     a number that says nothing about the layout
//
// TorchScript, torch.package and torch.export write archives of the same kind with other records.

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <string_view>
#include <vector>

#include "parser/budget.h"
#include "parser/codec/pickle.h"
#include "parser/codec/zip.h"
#include "parser/error.h"
#include "parser/format.h"
#include "parser/format/torch/context.h"
#include "parser/format/torch/objects.h"
#include "parser/json.h"
#include "parser/layer/inflated.h"

namespace ckptfs {
namespace {

using torch::Record;

bool Matches(const Probe& probe) {
  constexpr std::string_view kLocalHeader = "PK\3\4";
  const std::string_view head(reinterpret_cast<const char*>(probe.head.data()), probe.head.size());
  return head.starts_with(kLocalHeader) || zip::HasEndRecord(probe.tail);
}

// The members of one archive, by what PyTorch calls them.
class Archive {
 public:
  Archive(ByteSourcePtr source, Budget& budget);

  // "folder/"
  const std::string& prefix() const { return prefix_; }

  // Returns null if there is no such record.
  const zip::Member* Find(std::string_view record) const {
    return directory_.Find(prefix_ + std::string(record));
  }

  // Where the bytes of a record are. Does not throw.
  Record Open(const std::string& record) const;

  // The bytes of a record that is read whole. Throws Error.
  std::vector<std::byte> Read(const std::string& record, Budget& budget) const;

  // Members that are in no folder of PyTorch's.
  size_t strangers() const {
    return static_cast<size_t>(std::ranges::count_if(
        directory_.members(),
        [&](const zip::Member& member) { return !member.name.starts_with(prefix_); }));
  }

 private:
  void FindPrefix();

  ByteSourcePtr source_;
  zip::Directory directory_;
  std::string prefix_;
};

zip::Directory ReadDirectory(const ByteSource& source, Budget& budget) try {
  return zip::ReadDirectory(source, budget);
} catch (const Error& e) {
  throw WithContext("zip", e);
}

Archive::Archive(ByteSourcePtr source, Budget& budget)
    : source_(std::move(source)), directory_(ReadDirectory(*source_, budget)) {
  FindPrefix();
}

// The folder is what precedes data.pkl. PyTorch takes that of the first member; where that is
// another one, it could not read the file.
void Archive::FindPrefix() {
  constexpr std::string_view kPickle = "/data.pkl";
  const auto is_pickle = [&](const zip::Member& member) {
    return member.name.ends_with(kPickle) &&
           member.name.find('/') == member.name.size() - kPickle.size();
  };
  const auto members = directory_.members();
  const auto pickles = std::ranges::count_if(members, is_pickle);
  if (pickles > 1) {
    Fail(EBADMSG, "has {} members data.pkl in different folders, so it is not clear which is meant",
         pickles);
  }
  if (pickles == 1) {
    const auto found = std::ranges::find_if(members, is_pickle);
    prefix_ = found->name.substr(0, found->name.find('/') + 1);
    return;
  }
  const auto has = [&](std::string_view ending) {
    return std::ranges::any_of(
        members, [&](const zip::Member& member) { return member.name.ends_with(ending); });
  };
  if (has("/archive_format")) {
    Fail(ENOTSUP, "is an archive of torch.export (.pt2), which is not supported yet");
  }
  if (has("/.data/extern_modules")) {
    Fail(ENOTSUP, "is an archive of torch.package, which is not supported yet");
  }
  if (has("/version") && members.size() <= 4) {
    Fail(EBADMSG, "has a version, but no data.pkl: the torch.save that wrote it failed");
  }
  Fail(ENOTSUP, "is a zip archive with {} members, but without data.pkl: no checkpoint of PyTorch",
       members.size());
}

Record Archive::Open(const std::string& record) const {
  Record opened{.data = {}, .member = record, .is_in_file = false, .error = ""};
  const zip::Member* member = Find(record);
  if (member == nullptr) {
    opened.error = fmt::format("the archive has no member {}", Quoted(prefix_ + record));
  } else if (!member->error.empty()) {
    opened.error = fmt::format("{}: {}", record, member->error);
  } else if (member->method == zip::Method::kStored) {
    opened.data = {source_, member->data_offset, member->size};
    opened.is_in_file = true;
  } else {
    const Extent deflated = {source_, member->data_offset, member->compressed_size};
    opened.data = {MakeInflated(deflated, member->size, member->crc), 0, member->size};
  }
  return opened;
}

std::vector<std::byte> Archive::Read(const std::string& record, Budget& budget) const {
  const Record opened = Open(record);
  if (!opened.error.empty()) throw Error(EBADMSG, opened.error);
  try {
    budget.Charge(opened.data.length);
    std::vector<std::byte> bytes(opened.data.length);
    if (!bytes.empty()) opened.data.source->ReadAt(opened.data.offset, bytes);
    return bytes;
  } catch (const Error& e) {
    throw WithContext(record, e);
  }
}

// Whether the storages are big-endian.
bool ReadByteOrder(const Archive& archive, Budget& budget) {
  const zip::Member* member = archive.Find("byteorder");
  if (member == nullptr) return false;
  constexpr size_t kMost = 16;  // The two texts that are right have 6 and 3 bytes.
  const auto bytes =
      member->size > kMost ? std::vector<std::byte>() : archive.Read("byteorder", budget);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text != "little" && text != "big") {
    Fail(EBADMSG, "byteorder is {}, but must be 'little' or 'big'", Quoted(text));
  }
  return text == "big";
}

void AddPickle(const std::vector<std::byte>& bytes, torch::Context& context,
               Checkpoint& checkpoint) try {
  const pickle::Graph graph = pickle::Load(bytes, context.budget);
  torch::AddObjects(graph.root(), context, checkpoint);
  if (const size_t strays = graph.stray_states().size() / 2; strays > 0) {
    checkpoint.warnings.push_back(fmt::format(
        "data.pkl: {} values that are no objects are given a state, which is left out", strays));
  }
} catch (const Error& e) {
  throw WithContext("data.pkl", e);
}

Checkpoint Parse(const ByteSourcePtr& source) {
  Budget budget = Budget::ForFile(source->size());
  const Archive archive(source, budget);
  if (archive.Find("constants.pkl") != nullptr) {
    Fail(ENOTSUP, "is a TorchScript archive, which is not supported yet");
  }
  const bool is_big_endian = ReadByteOrder(archive, budget);
  const std::vector<std::byte> bytes = archive.Read("data.pkl", budget);
  torch::Storages storages(
      [&](std::string_view key) { return archive.Open(fmt::format("data/{}", key)); });
  torch::Context context{.budget = budget,
                         .storages = storages,
                         .is_big_endian = is_big_endian,
                         .pickle = bytes,
                         .pickle_record = archive.Open("data.pkl"),
                         .panels = std::make_shared<PanelCache>(),
                         .gathered = {}};
  Checkpoint checkpoint;
  checkpoint.notes.emplace_back("byteorder", is_big_endian ? "\"big\"" : "\"little\"");
  checkpoint.notes.emplace_back(
      "folder",
      json::String(std::string_view(archive.prefix()).substr(0, archive.prefix().size() - 1)));
  if (const size_t strangers = archive.strangers(); strangers > 0) {
    checkpoint.warnings.push_back(
        fmt::format("zip: {} members are not in the folder {} and left out", strangers,
                    Quoted(archive.prefix())));
  }
  AddPickle(bytes, context, checkpoint);
  return checkpoint;
}

}  // namespace

extern const Format torch_zip_format{.name = "torch", .matches = Matches, .parse = Parse};

}  // namespace ckptfs
