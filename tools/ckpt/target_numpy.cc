#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "parser/base/encoding.h"
#include "parser/base/error.h"
#include "parser/base/hash.h"
#include "parser/base/text.h"
#include "parser/view/view.h"
#include "tools/ckpt/entries.h"
#include "tools/ckpt/target.h"

namespace ckptfs::ckpt {
namespace {

constexpr std::string_view kNpySuffix = ".npy";

ByteSourcePtr NpyOf(const std::string& key, const Tensor& tensor) {
  ByteSourcePtr file = MakeNpyView(tensor);
  if (file != nullptr) return file;
  FailDtype("NumPy", key, tensor);
}

// The records of a zip archive, see parser/codec/zip_records.h. Sizes and offsets from kZipLimit on
// are in an extra field, as of ZIP64.
constexpr uint64_t kZipLimit = 0xFFFFFFFF;
constexpr uint64_t kZipVersion = 45;   // That reads ZIP64.
constexpr uint64_t kUtf8 = 1U << 11U;  // A flag: the name is UTF-8.
constexpr uint64_t kDate = 0x21;       // 1980-01-01.
constexpr uint64_t kLocalSize = 30;
constexpr uint64_t kZip64 = 0x0001;  // Its extra field.
constexpr uint64_t kExtraHeader = 4;

struct ZipMember {
  std::string name;
  uint64_t offset = 0;  // Of its header.
  uint64_t size = 0;
  uint64_t crc = 0;
};

// The fields that local and central headers share, from the version on.
void AddCommon(LittleEndian& out, const ZipMember& member, uint64_t extra) {
  out.Add(kZipVersion, 2);
  out.Add(kUtf8, 2);
  out.Add(0, 2);  // Stored.
  out.Add(0, 2);
  out.Add(kDate, 2);
  out.Add(member.crc, 4);
  out.Add(std::min(member.size, kZipLimit), 4);
  out.Add(std::min(member.size, kZipLimit), 4);
  out.Add(member.name.size(), 2);
  out.Add(extra, 2);
}

uint64_t LocalExtraOf(const ZipMember& member) {
  return member.size < kZipLimit ? 0 : kExtraHeader + 2 * sizeof(uint64_t);
}

std::string LocalHeaderOf(const ZipMember& member) {
  LittleEndian out;
  const uint64_t extra = LocalExtraOf(member);
  out.Add("PK\x03\x04");
  AddCommon(out, member, extra);
  out.Add(member.name);
  if (extra > 0) {
    out.Add(kZip64, 2);
    out.Add(extra - kExtraHeader, 2);
    out.Add(member.size, 8);
    out.Add(member.size, 8);
  }
  return out.text();
}

void AddCentralHeader(LittleEndian& out, const ZipMember& member) {
  LittleEndian extra;
  if (member.size >= kZipLimit) {
    extra.Add(member.size, 8);
    extra.Add(member.size, 8);
  }
  if (member.offset >= kZipLimit) extra.Add(member.offset, 8);
  const uint64_t size = extra.text().empty() ? 0 : kExtraHeader + extra.text().size();
  out.Add("PK\x01\x02");
  out.Add(kZipVersion, 2);
  AddCommon(out, member, size);
  out.Add(0, 2 + 2 + 2);  // No comment, one disk, no attributes.
  out.Add(0, 4);
  out.Add(std::min(member.offset, kZipLimit), 4);
  out.Add(member.name);
  if (size == 0) return;
  out.Add(kZip64, 2);
  out.Add(extra.text().size(), 2);
  out.Add(extra.text());
}

std::string DirectoryOf(const std::vector<ZipMember>& members, uint64_t begin) {
  constexpr uint64_t kMostEntries = 0xFFFF;
  LittleEndian out;
  for (const ZipMember& member : members) AddCentralHeader(out, member);
  const uint64_t size = out.text().size();
  const uint64_t count = members.size();
  if (count >= kMostEntries || begin >= kZipLimit || size >= kZipLimit) {
    out.Add("PK\x06\x06");
    out.Add(44, 8);  // The bytes of the record from here on.
    out.Add(kZipVersion, 2);
    out.Add(kZipVersion, 2);
    out.Add(0, 8);  // Disks.
    out.Add(count, 8);
    out.Add(count, 8);
    out.Add(size, 8);
    out.Add(begin, 8);
    out.Add("PK\x06\x07");
    out.Add(0, 4);
    out.Add(begin + size, 8);
    out.Add(1, 4);
  }
  out.Add("PK\x05\x06");
  out.Add(0, 4);
  out.Add(std::min(count, kMostEntries), 2);
  out.Add(std::min(count, kMostEntries), 2);
  out.Add(std::min(size, kZipLimit), 4);
  out.Add(std::min(begin, kZipLimit), 4);
  out.Add(0, 2);
  return out.text();
}

std::vector<Segment> HeadersOf(std::vector<ZipMember> members, const std::vector<Segment>& data,
                               uint64_t end) {
  std::vector<Segment> headers;
  for (size_t i = 0; i < members.size(); ++i) {
    members[i].crc = data[i].crc;
    headers.push_back(SegmentOf(members[i].offset, LocalHeaderOf(members[i])));
  }
  headers.push_back(SegmentOf(end, DirectoryOf(members, end)));
  return headers;
}

// A key as a file name: '/', NUL, and what would be too long or not UTF-8 are percent-encoded.
std::string FileNameOf(const std::string& key) {
  constexpr size_t kMostName = 255;
  std::string name;
  for (const char c : key) {
    const bool is_odd = c == '/' || c == '%' || static_cast<unsigned char>(c) < ' ';
    name += is_odd ? PercentEncode(std::string_view(&c, 1)) : std::string(1, c);
  }
  name += kNpySuffix;
  if (name.size() > kMostName) {
    Fail(ENAMETOOLONG, "the key {} is too long for a file name", Quoted(key));
  }
  return name;
}

// Throws Error if there is a key "a" beside "a.npy", for which numpy.load would return the former.
void CheckNpzKeys(std::span<const NamedTensor> tensors) {
  std::unordered_set<std::string_view, SecretHash> keys;
  for (const auto& [key, tensor] : tensors) keys.insert(key);
  for (const auto& [key, tensor] : tensors) {
    if (!key.ends_with(kNpySuffix)) continue;
    const auto other = std::string_view(key).substr(0, key.size() - kNpySuffix.size());
    if (!keys.contains(other)) continue;
    Fail(ENOTSUP, "NumPy confuses the keys {} and {}; --map may help", Quoted(other), Quoted(key));
  }
}

}  // namespace

std::vector<PlannedFile> PlanNpz(const Checkpoint& checkpoint, const std::string& path) {
  constexpr size_t kMostName = std::numeric_limits<uint16_t>::max();
  PlannedFile file{.path = path, .links = {}, .segments = {}, .finish = nullptr};
  std::vector<ZipMember> members;
  const std::vector<NamedTensor> tensors = NamedTensorsOf(checkpoint);
  CheckNpzKeys(tensors);
  uint64_t end = 0;
  for (const auto& [key, tensor] : tensors) {
    if (!utf8::IsValid(key) || key.size() + kNpySuffix.size() > kMostName ||
        key.find('\0') != std::string::npos) {
      Fail(ENOTSUP, "{}: a zip archive cannot have the key {}; --map may help", path, Quoted(key));
    }
    ByteSourcePtr array = NpyOf(key, tensor);
    ZipMember member{.name = key + std::string(kNpySuffix), .offset = end, .size = array->size()};
    end += kLocalSize + member.name.size() + LocalExtraOf(member);
    file.segments.push_back({.offset = end, .source = std::move(array), .crc = 0});
    end += member.size;
    members.push_back(std::move(member));
  }
  file.finish = [members = std::move(members), end](const std::vector<Segment>& written) {
    return HeadersOf(members, written, end);
  };
  std::vector<PlannedFile> files;
  files.push_back(std::move(file));
  return files;
}

std::vector<PlannedFile> PlanNpy(const Checkpoint& checkpoint, const std::string& folder) {
  std::vector<PlannedFile> files;
  for (const auto& [key, tensor] : NamedTensorsOf(checkpoint)) {
    files.push_back({.path = folder + "/" + FileNameOf(key),
                     .links = {},
                     .segments = {{.offset = 0, .source = NpyOf(key, tensor), .crc = 0}},
                     .finish = nullptr});
  }
  return files;
}

}  // namespace ckptfs::ckpt
