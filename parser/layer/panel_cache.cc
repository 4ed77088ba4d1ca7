#include "parser/layer/panel_cache.h"

#include <sys/mman.h>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <new>

namespace ckptfs {
namespace {

constexpr size_t kMostPanels = 64;  // They are searched one by one.
constexpr size_t kHugePage = size_t{2} << 20;

// In huge pages if there are any: to be given 2,000 small ones takes as long as filling them.
Pages Map(size_t size) {
  const size_t length = size < kHugePage ? size : size + kHugePage;
  void* const begin =
      ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (begin == MAP_FAILED) throw std::bad_alloc();
  void* aligned = begin;
  if (size >= kHugePage) {
    size_t space = length;
    std::align(kHugePage, size, aligned, space);
    ::madvise(aligned, size, MADV_HUGEPAGE);
  }
  return {static_cast<std::byte*>(aligned), {.begin = begin, .length = length}};
}

}  // namespace

void Unmap::operator()(std::byte* /*bytes*/) const noexcept { ::munmap(begin, length); }

uint64_t PanelCache::NewOwner() {
  const std::scoped_lock lock(mutex_);
  return ++owners_;
}

size_t PanelCache::used() const {
  const std::scoped_lock lock(mutex_);
  return used_;
}

bool PanelCache::Read(const Key& key, size_t size, size_t offset, std::span<std::byte> buffer,
                      const Fill& fill) {
  assert(offset <= size && buffer.size() <= size - offset);
  Panel* const panel = Acquire(key, size, fill != nullptr);
  if (panel == nullptr) return false;
  const std::byte* bytes = nullptr;
  try {
    bytes = BytesOf(*panel, fill);
  } catch (...) {
    Release(*panel, 0);
    throw;
  }
  if (bytes != nullptr) std::memcpy(buffer.data(), bytes + offset, buffer.size());
  Release(*panel, bytes != nullptr ? buffer.size() : 0);
  return bytes != nullptr;
}

PanelCache::Panel* PanelCache::Acquire(const Key& key, size_t size, bool may_make) {
  std::list<Panel> evicted;  // Outlives the lock: to free megabytes takes a while.
  const std::scoped_lock lock(mutex_);
  const auto found = std::ranges::find(panels_, key, &Panel::key);
  if (found != panels_.end()) {
    panels_.splice(panels_.begin(), panels_, found);
  } else {
    if (!may_make || !MakeRoom(size, evicted)) return nullptr;
    panels_.emplace_front(key, size);
    used_ += size;
  }
  ++panels_.front().users;
  return &panels_.front();
}

bool PanelCache::MakeRoom(size_t size, std::list<Panel>& evicted) {
  for (auto panel = panels_.end(); panel != panels_.begin();) {
    if (size <= capacity_ - used_ && panels_.size() < kMostPanels) break;
    --panel;
    if (panel->users > 0) continue;
    used_ -= panel->size;
    const auto oldest = panel++;
    evicted.splice(evicted.end(), panels_, oldest);
  }
  return size <= capacity_ - used_ && panels_.size() < kMostPanels;
}

const std::byte* PanelCache::BytesOf(Panel& panel, const Fill& fill) {
  const std::scoped_lock lock(panel.mutex);
  if (panel.bytes == nullptr && fill != nullptr) {
    Pages bytes = Map(panel.size);
    fill({bytes.get(), panel.size});
    panel.bytes = std::move(bytes);
  }
  return panel.bytes.get();
}

void PanelCache::Release(Panel& panel, size_t given) noexcept {
  std::list<Panel> read_out;  // Outlives the lock.
  const std::scoped_lock lock(mutex_);
  panel.given += given;
  if (--panel.users > 0) return;
  if (panel.given < panel.size && panel.bytes != nullptr) return;
  used_ -= panel.size;
  const auto place = std::ranges::find(panels_, &panel, [](Panel& p) { return &p; });
  read_out.splice(read_out.end(), panels_, place);
}

}  // namespace ckptfs
