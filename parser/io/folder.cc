#include "parser/io/folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <exception>
#include <memory>
#include <new>
#include <system_error>
#include <thread>
#include <utility>

#include "parser/base/budget.h"
#include "parser/base/error.h"

namespace ckptfs {

bool IsLocalName(std::string_view name) {
  using std::string_view_literals::operator""sv;
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of("/\0"sv) == std::string_view::npos;
}

bool IsPlainName(std::string_view name) {
  return IsLocalName(name) && name.find('\\') == std::string_view::npos;
}

void CheckMemberName(std::string_view name) {
  constexpr size_t kMost = 4096;  // PATH_MAX: a longer one could not be unpacked anywhere.
  const auto check = [&](bool is_good, std::string_view why) {
    if (!is_good) Fail(EBADMSG, "name {} {}", Quoted(name), why);
  };
  if (name.size() > kMost) {
    Fail(EFBIG, "name of {} bytes (maximum {})", name.size(), kMost);
  }
  check(!name.empty(), "is empty");
  check(name.find('\0') == std::string_view::npos, "contains a NUL");
  check(name.find('\\') == std::string_view::npos, "contains a backslash");
  check(!name.starts_with('/'), "begins with a slash");
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('/', begin), name.size());
    const std::string_view part = name.substr(begin, end - begin);
    check(!part.empty(), "has an empty part");
    check(part != "." && part != "..", "has a part that is '.' or '..'");
    begin = end + 1;
  }
}

std::string Listed(std::span<const std::string> names) {
  constexpr size_t kMost = 5;
  std::string list;
  for (const std::string& name : names.first(std::min(names.size(), kMost))) {
    list += fmt::format("{}{}", list.empty() ? "" : ", ", Quoted(name));
  }
  if (names.size() > kMost) list += fmt::format(" and {} more", names.size() - kMost);
  return list;
}

bool IsCalledCheckpoint(std::string_view name) {
  constexpr std::string_view kEndings[] = {".safetensors", ".bin", ".pt",  ".pth",    ".ckpt",
                                           ".gguf",        ".npz", ".npy", ".tensors"};
  return !name.starts_with('.') && std::ranges::any_of(kEndings, [&](std::string_view ending) {
    return name.ends_with(ending);
  });
}

namespace {

constexpr size_t kMostFolders = 100;

bool HasCheckpoint(const Folder& folder) {
  return std::ranges::any_of(folder.List(),
                             [](const std::string& name) { return IsCalledCheckpoint(name); });
}

}  // namespace

std::optional<EntryInfo> FindAccessible(const Folder& folder, const std::string& name) try {
  return folder.Find(name);
} catch (const Error& e) {
  if (e.code() != EACCES) throw;
  return std::nullopt;
}

ByteSourcePtr WatchedFolder::Open(const std::string& name) const {
  Record(name);
  return ForwardingFolder::Open(name);
}

ByteSourcePtr WatchedFolder::OpenData(const std::string& name) const {
  Record(name);
  return ForwardingFolder::OpenData(name);
}

FolderPtr WatchedFolder::OpenFolder(const std::string& name) const {
  Record(name);
  return ForwardingFolder::OpenFolder(name);
}

void WatchedFolder::Record(const std::string& name) const {
  const MutexLock lock(mutex_);
  opened_.insert(name);
}

std::vector<std::string> WatchedFolder::Opened() const {
  const MutexLock lock(mutex_);
  return {opened_.begin(), opened_.end()};
}

std::vector<std::string> WatchedFolder::LeftOut(std::span<const std::string> files) const {
  std::vector<std::string> left_out;
  const MutexLock lock(mutex_);
  for (const std::string& name : files) {
    if (IsCalledCheckpoint(name) && !opened_.contains(name)) left_out.push_back(name);
  }
  if (is_remote()) return left_out;
  try {
    const std::vector<std::string> names = ListFolders();
    for (const std::string& name : std::span(names).first(std::min(names.size(), kMostFolders))) {
      if (opened_.contains(name) || name.starts_with('.')) continue;
      const FolderPtr below = folder().OpenFolder(name);
      if (below != nullptr && HasCheckpoint(*below)) left_out.push_back(name + '/');
    }
  } catch (const Error&) {  // NOLINT(bugprone-empty-catch): the warning is optional.
  }
  return left_out;
}

namespace {

class CountedFolder final : public ForwardingFolder {
 public:
  CountedFolder(FolderPtr folder, Budget& budget)
      : ForwardingFolder(std::move(folder)), budget_(budget) {}

  ByteSourcePtr Open(const std::string& name) const override {
    return Counted(ForwardingFolder::Open(name));
  }
  ByteSourcePtr OpenData(const std::string& name) const override {
    return Counted(ForwardingFolder::OpenData(name));
  }

  FolderPtr OpenFolder(const std::string& name) const override {
    return MakeCountedFolder(ForwardingFolder::OpenFolder(name), budget_);
  }

 private:
  ByteSourcePtr Counted(ByteSourcePtr file) const {
    budget_.AddFile(StoredSize(*file), file->is_remote());
    return file;
  }

  Budget& budget_;
};

}  // namespace

FolderPtr MakeCountedFolder(FolderPtr folder, Budget& budget) {
  if (folder == nullptr) return nullptr;
  return std::make_shared<CountedFolder>(std::move(folder), budget);
}

namespace {

constexpr size_t kAtOnce = 8;

using OpenFunction = ByteSourcePtr (Folder::*)(const std::string& name) const;

OpenedFile Open(const Folder& folder, OpenFunction open, const std::string& name) noexcept try {
  return {.file = (folder.*open)(name), .error = {}};
} catch (const Error& e) {
  return {.file = nullptr, .error = e};
} catch (const std::exception& e) {
  return {.file = nullptr, .error = Error(ENOMEM, e.what())};
}

std::vector<OpenedFile> OpenEach(const Folder& folder, OpenFunction open,
                                 std::span<const std::string> names) {
  std::vector<OpenedFile> files(names.size());
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < names.size(); i = next++) files[i] = Open(folder, open, names[i]);
  };
  {
    std::vector<std::jthread> threads;
    const size_t wanted = folder.is_remote() ? std::min(kAtOnce, names.size()) : 0;
    try {
      while (threads.size() + 1 < wanted) threads.emplace_back(work);
    } catch (const std::system_error&) {
      // The existing threads suffice.
    }
    work();
  }
  for (size_t i = 0; i < files.size(); ++i) {
    const auto& error = files[i].error;
    if (error && IsTransient(error->code())) throw WithContext(names[i], *error);
  }
  return files;
}

}  // namespace

std::vector<OpenedFile> OpenFiles(const Folder& folder, std::span<const std::string> names) {
  return OpenEach(folder, &Folder::Open, names);
}

std::vector<OpenedFile> OpenDataFiles(const Folder& folder, std::span<const std::string> names) {
  return OpenEach(folder, &Folder::OpenData, names);
}

std::vector<ByteSourcePtr> OpenAllFiles(const Folder& folder, std::span<const std::string> names) {
  std::vector<ByteSourcePtr> all;
  for (OpenedFile& opened : OpenFiles(folder, names)) {
    if (opened.error) throw Error(*opened.error);
    all.push_back(std::move(opened.file));
  }
  return all;
}

}  // namespace ckptfs
