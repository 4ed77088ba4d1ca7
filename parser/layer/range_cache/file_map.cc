#include "parser/layer/range_cache/file_map.h"

#include <algorithm>
#include <tuple>

namespace ckptfs {

namespace {

// The length of the header before a file is an estimate, by which it may reach into the next one.
constexpr uint64_t kMostOverlap = uint64_t{68} << 10U;

}  // namespace

void FileMap::AddFile(uint32_t object, ByteRange range) {
  if (range.length == 0) return;
  has_files_.resize(sizes_.size());
  has_files_[object] = true;
  files_.push_back({.object = object, .range = range});
  is_sorted_ = false;
  ++version_;
}

void FileMap::Sort() {
  if (is_sorted_) return;
  is_sorted_ = true;
  std::ranges::sort(files_, {},
                    [](const File& file) { return std::tuple(file.object, file.range.offset); });
  size_t count = 1;
  for (const File& file : files_) {
    File& last = files_[count - 1];
    const bool overlaps = file.object == last.object && file.range.offset < last.end();
    if (overlaps && file.range.offset > last.range.offset && file.end() > last.end() &&
        last.end() - file.range.offset <= kMostOverlap) {
      last.range.length = file.range.offset - last.range.offset;
      files_[count++] = file;
    } else if (overlaps) {
      last.range.length = std::max(last.end(), file.end()) - last.range.offset;
    } else {
      files_[count++] = file;
    }
  }
  files_.resize(count);
}

size_t FileMap::count() {
  Sort();
  return files_.size();
}

size_t FileMap::Find(uint32_t object, uint64_t offset) {
  Sort();
  const auto found = std::ranges::partition_point(files_, [&](const File& file) {
    return std::tuple(file.object, file.end()) <= std::tuple(object, offset);
  });
  return static_cast<size_t>(found - files_.begin());
}

uint64_t FileMap::EndAt(uint32_t object, uint64_t offset) {
  const size_t found = Find(object, offset);
  if (found == files_.size() || files_[found].object != object) return sizes_[object];
  const File& file = files_[found];
  return file.range.offset <= offset ? file.end() : file.range.offset;
}

uint64_t FileMap::BeginAt(uint32_t object, uint64_t end) {
  if (end == 0) return 0;
  const size_t found = Find(object, end - 1);
  if (found < files_.size() && files_[found].object == object && files_[found].range.offset < end) {
    return files_[found].range.offset;
  }
  return found > 0 && files_[found - 1].object == object ? files_[found - 1].end() : 0;
}

bool FileMap::IsEnd(uint32_t object, uint64_t offset) {
  if (offset == 0) return false;
  const size_t found = Find(object, offset - 1);
  return found < files_.size() && files_[found].object == object && files_[found].end() == offset;
}

bool FileMap::IsBegin(uint32_t object, uint64_t offset) {
  constexpr uint64_t kMostHeader = 4096;
  const size_t found = Find(object, offset);
  if (found == files_.size() || files_[found].object != object) return false;
  const uint64_t begin = files_[found].range.offset;
  return begin >= offset && begin - offset <= kMostHeader;
}

}  // namespace ckptfs
