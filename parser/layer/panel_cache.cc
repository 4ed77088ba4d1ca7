#include "parser/layer/panel_cache.h"

#include <sys/mman.h>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <exception>
#include <new>
#include <utility>

#include "parser/base/interruption.h"

namespace ckptfs {
namespace {

constexpr size_t kMostPanels = 64;  // They are searched one by one.
constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kMostSpares = 3;
constexpr size_t kMostOfSpare = size_t{2} << 20;  // Bytes.

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

void PanelCache::ReadAlone(size_t size, size_t offset, std::span<std::byte> buffer,
                           const Fill& fill) {
  assert(offset <= size && buffer.size() <= size - offset);
  {
    std::unique_lock lock(mutex_);
    Interruption::Wait(lock, changed_, [&] { return !is_alone_; });
    is_alone_ = true;
  }
  const auto end = [&] {
    {
      const std::scoped_lock lock(mutex_);
      is_alone_ = false;
    }
    changed_.notify_all();
  };
  try {
    const Pages bytes = Map(size);
    fill({bytes.get(), size});
    std::memcpy(buffer.data(), bytes.get() + offset, buffer.size());
  } catch (...) {
    end();
    throw;
  }
  end();
}

void PanelCache::Prepare(const Key& key, size_t size, const Fill& fill,
                         const std::function<bool()>& is_wanted) {
  std::list<Panel> evicted;  // Outlives the lock: to free megabytes takes a while.
  Panel* panel = nullptr;
  {
    const std::scoped_lock lock(mutex_);
    // Under the lock, so that who reads the panel from now on finds it.
    if (std::ranges::count(panels_, key, &Panel::key) != 0 || !is_wanted()) return;
    panel = Add(key, size, true, evicted);
  }
  if (panel == nullptr) return;
  try {
    BytesOf(*panel, fill);
  } catch (const std::exception&) {  // No read wants it yet.
  }
  Release(*panel, 0);
}

void PanelCache::PrepareSoon(const Key& key, size_t size, Fill fill,
                             std::function<bool()> is_wanted) {
  background_.Do(key.owner, [=, this, fill = std::move(fill), is_wanted = std::move(is_wanted)] {
    Prepare(key, size, fill, is_wanted);
  });
}

PanelCache::Panel* PanelCache::Add(const Key& key, size_t size, bool spare_unread,
                                   std::list<Panel>& evicted) {
  if (!MakeRoom(size, spare_unread, evicted)) return nullptr;
  Panel& panel = panels_.emplace_front(key, size);
  used_ += size;
  panel.users = 1;
  if (const auto spare = std::ranges::find(spares_, size, &Spare::size); spare != spares_.end()) {
    panel.bytes = std::move(spare->bytes);
    spares_.erase(spare);
  }
  return &panel;
}

PanelCache::Panel* PanelCache::Acquire(const Key& key, size_t size, bool may_make) {
  std::list<Panel> evicted;  // Outlives the lock: to free megabytes takes a while.
  const std::scoped_lock lock(mutex_);
  const auto found = std::ranges::find(panels_, key, &Panel::key);
  if (found == panels_.end()) return may_make ? Add(key, size, false, evicted) : nullptr;
  panels_.splice(panels_.begin(), panels_, found);
  ++found->users;
  return &*found;
}

bool PanelCache::MakeRoom(size_t size, bool spare_unread, std::list<Panel>& evicted) {
  for (auto panel = panels_.end(); panel != panels_.begin();) {
    if (size <= capacity_ - used_ && panels_.size() < kMostPanels) break;
    --panel;
    if (panel->users > 0 || (spare_unread && panel->given == 0)) continue;
    used_ -= panel->size;
    const auto oldest = panel++;
    evicted.splice(evicted.end(), panels_, oldest);
  }
  return size <= capacity_ - used_ && panels_.size() < kMostPanels;
}

const std::byte* PanelCache::BytesOf(Panel& panel, const Fill& fill) {
  {
    std::unique_lock lock(mutex_);
    Interruption::Wait(lock, changed_, [&] { return !panel.is_filling; });
    if (panel.is_filled || fill == nullptr) return panel.is_filled ? panel.bytes.get() : nullptr;
    panel.is_filling = true;
  }
  const auto end = [&](bool is_filled) {
    {
      const std::scoped_lock lock(mutex_);
      panel.is_filling = false;
      panel.is_filled = is_filled;
    }
    changed_.notify_all();
  };
  try {
    if (panel.bytes == nullptr) panel.bytes = Map(panel.size);
    fill({panel.bytes.get(), panel.size});
  } catch (...) {
    end(false);
    throw;
  }
  end(true);
  return panel.bytes.get();
}

void PanelCache::Release(Panel& panel, size_t given) noexcept {
  std::list<Panel> read_out;  // Outlives the lock.
  const std::scoped_lock lock(mutex_);
  panel.given += given;
  if (--panel.users > 0) return;
  if (panel.given < panel.size && panel.is_filled) return;
  used_ -= panel.size;
  if (panel.size <= kMostOfSpare && panel.bytes != nullptr) {
    if (spares_.size() == kMostSpares) spares_.erase(spares_.begin());
    spares_.push_back({.bytes = std::move(panel.bytes), .size = panel.size});
  }
  const auto place = std::ranges::find(panels_, &panel, [](Panel& p) { return &p; });
  read_out.splice(read_out.end(), panels_, place);
}

}  // namespace ckptfs
