#include "parser/layer/range_cache/load_plan.h"

#include <algorithm>
#include <thread>
#include <utility>

namespace ckptfs {
namespace {

constexpr uint64_t kLeastLead = uint64_t{1} << 20U;
constexpr uint64_t kFirstLeadPerByte = 2;  // As long as one file was read.
constexpr uint64_t kLeadPerByte = 4;
constexpr unsigned kMostDoublings = 4;  // Of kLeastLead, one for each file that was read.

// Files that programs with several threads read at the same time.
constexpr unsigned kMostUnfinished = 8;
constexpr unsigned kMostRepeated = 8;

constexpr unsigned kMostMisses = 16;

// Bytes of a file at which a program looks. One that reads more of it reads on, and its stream is
// enough.
constexpr uint64_t kMostLook = uint64_t{1} << 20U;

// As many as the threads of a program that copies a file in parallel.
size_t MostStrays() {
  static const size_t most = std::max(8U, std::thread::hardware_concurrency());
  return most;
}

// Between files that are fetched by one request.
constexpr uint64_t kMostGap = uint64_t{32} << 10U;

}  // namespace

void LoadPlan::Update() {
  const size_t count = files_.count();
  if (version_ == files_.version()) return;
  version_ = files_.version();
  // Files of an object that was opened during the reads come behind all others.
  const size_t known = states_.empty() ? 0 : states_.size() - 1;
  const bool is_longer = known > 0 && known < count && files_.file(known - 1) == last_;
  if (!is_longer) {
    states_.clear();
    Refute();
  }
  for (size_t i = states_.size(); i <= count; ++i) states_.emplace_back().next = i;
  if (count > 0) last_ = files_.file(count - 1);
}

void LoadPlan::Refute() {
  ++round_;
  is_active_ = false;
  whole_files_ = unfinished_ = repeated_ = misses_ = 0;
  strays_ = 0;
  stray_file_.reset();
  whole_bytes_ = 0;
}

bool LoadPlan::IsBegun(size_t file) const {
  return file < files_.count() && states_[file].round == round_;
}

// Whether a read in the middle of a file may be that of a thread which reads a part of the file.
bool LoadPlan::IsTolerated(size_t file) {
  if (++strays_ > MostStrays()) return false;
  if (whole_files_ == 0 || IsBegun(file)) return true;
  if (!stray_file_) stray_file_ = file;
  return stray_file_ == file;
}

bool LoadPlan::ExpectsRestOf(uint32_t object, uint64_t offset) {
  Update();
  const size_t file = files_.Find(object, offset);
  return whole_files_ > 0 && IsBegun(file) && !IsWhole(file) &&
         files_.file(file).object == object && files_.file(file).range.offset <= offset;
}

// The state of a file in this pass.
LoadPlan::State& LoadPlan::StateOf(size_t file) {
  State& state = states_[file];
  if (state.pass != pass_) {
    state.pass = pass_;
    state.read = 0;
  }
  return state;
}

void LoadPlan::Activate() {
  is_active_ = true;
  // Files that were read before a refuted prediction are not fetched again.
  FetchAllBut([&](size_t file) { return IsBegun(file) || IsWhole(file); });
}

// The rest of a file that was begun is fetched by the stream of its reader, but not if it first
// looks at the beginning of each file.
void LoadPlan::RecordGap() {
  misses_ = std::min(misses_ + 1, kMostMisses);
  if (!std::exchange(is_done_, false)) return;
  FetchAllBut([&](size_t file) { return ReadOf(file) > std::min(kMostLook, LengthOfWhole(file)); });
}

void LoadPlan::FetchAllBut(const std::function<bool(size_t file)>& is_excluded) {
  is_done_ = false;
  for (size_t i = 0; i < files_.count(); ++i) {
    states_[i].fetched = 0;
    states_[i].next = is_excluded(i) ? i + 1 : i;
  }
}

// How many bytes of a file were read in this pass.
uint64_t LoadPlan::ReadOf(size_t file) const {
  return states_[file].pass == pass_ ? states_[file].read : 0;
}

// How many bytes of a file are read at most before all of it counts as read. A file of an archive
// includes its header, of which not all is read.
uint64_t LoadPlan::LengthOfWhole(size_t file) const {
  constexpr uint64_t kHeader = 4096;
  const uint64_t length = files_.file(file).range.length;
  return length - std::min(length, kHeader);
}

// Whether all of a file was read in this pass.
bool LoadPlan::IsWhole(size_t file) const {
  return ReadOf(file) > std::max(LengthOfWhole(file), files_.file(file).range.length / 2);
}

void LoadPlan::Begin(size_t file, bool is_fetched) {
  // Each thread that reads a part of a file may begin with its header.
  const bool is_repeated = IsWhole(file);
  if (is_repeated) ++repeated_;
  if (is_repeated || !IsBegun(file)) ++unfinished_;
  const bool is_next_pass = repeated_ > (whole_files_ > 0 ? kMostRepeated : 0);
  if (is_next_pass) ++pass_;
  // Or a pass over the headers of the files.
  if (is_next_pass || unfinished_ > kMostUnfinished) Refute();
  State& state = StateOf(file);
  state.round = round_;
  if (is_repeated) state.read = 0;
  if (stray_file_ == file) stray_file_.reset();
  cursor_ = file + 1;
  if (!is_active_) {
    if (whole_files_ > 0) Activate();
    return;
  }
  MarkFetched(file);  // By the stream of its reader.
  if (!is_fetched) misses_ = std::min(misses_ + 1, kMostMisses);
}

void LoadPlan::RecordRead(uint32_t object, ByteRange read, Kind kind, bool is_fetched) {
  Update();
  size_t file = files_.Find(object, read.offset);
  // Of a file that is read again, the page cache of the kernel lacks some pages, which says
  // nothing.
  const bool is_again = file < files_.count() && IsWhole(file);
  if (kind == Kind::kScattered && !is_again && !IsTolerated(file)) Refute();
  const bool is_begin = kind == Kind::kBegin || (kind == Kind::kEnd && !IsBegun(file));
  if (is_active_ && !is_fetched && !is_begin && !is_again) RecordGap();
  if (is_begin && file < files_.count()) Begin(file, is_fetched);
  const uint64_t end = read.offset + read.length;
  for (; file < files_.count(); ++file) {
    const FileMap::File& read_file = files_.file(file);
    if (read_file.object != object || read_file.range.offset >= end) return;
    const uint64_t length = read_file.range.length;
    State& state = StateOf(file);
    const uint64_t before = state.read;
    state.read += std::min(end, read_file.end()) - std::max(read.offset, read_file.range.offset);
    const uint64_t whole = LengthOfWhole(file);
    if (before <= kMostLook && state.read > kMostLook) MarkFetched(file);
    if (before > whole || state.read <= whole) continue;
    ++whole_files_;
    whole_bytes_ += length;
    unfinished_ = 0;
    strays_ = 0;
    stray_file_.reset();
  }
}

uint64_t LoadPlan::Lead(uint64_t target, uint64_t most) const {
  if (!is_active_) return 0;
  const uint64_t per_byte = whole_files_ == 1 ? kFirstLeadPerByte : kLeadPerByte;
  const uint64_t least = kLeastLead << std::min(whole_files_ - 1, kMostDoublings);
  const uint64_t wanted = std::max(per_byte * whole_bytes_, least);
  return std::min(std::min(wanted, target) << misses_, most);
}

size_t LoadPlan::NextUnfetched(size_t file) {
  size_t found = file;
  while (states_[found].next != found) found = states_[found].next;
  while (states_[file].next != file) {  // Makes the next search short.
    const size_t next = states_[file].next;
    states_[file].next = found;
    file = next;
  }
  return found;
}

std::optional<LoadPlan::Piece> LoadPlan::Next(uint64_t length, const PresentUpTo& present_up_to) {
  Update();
  if (!is_active_) return {};
  const size_t count = files_.count();
  while (true) {
    size_t file = NextUnfetched(std::min(cursor_, count));
    if (file == count) file = NextUnfetched(0);
    if (file == count) {
      is_done_ = true;
      return {};
    }
    const FileMap::File first = files_.file(file);
    const uint64_t begin =
        present_up_to(first.object, std::max(first.range.offset, states_[file].fetched));
    if (begin >= first.end()) {
      MarkFetched(file);
      continue;
    }
    uint64_t end = std::min(first.end(), begin + length);
    while (end - begin < length && end == files_.file(file).end()) {
      if (++file == count || NextUnfetched(file) != file) break;
      const FileMap::File& next = files_.file(file);
      if (next.object != first.object || next.range.offset - end > kMostGap) break;
      end = std::max(end, std::min(next.end(), begin + length));
    }
    return Piece{first.object, {begin, end - begin}};
  }
}

void LoadPlan::RecordFetched(const Piece& piece) {
  const uint64_t end = piece.range.offset + piece.range.length;
  for (size_t file = files_.Find(piece.object, piece.range.offset); file < files_.count(); ++file) {
    const FileMap::File& fetched = files_.file(file);
    if (fetched.object != piece.object || fetched.range.offset >= end) return;
    if (fetched.end() <= end) {
      MarkFetched(file);
    } else {
      states_[file].fetched = end;
    }
  }
}

}  // namespace ckptfs
