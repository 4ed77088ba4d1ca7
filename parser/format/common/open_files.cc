#include "parser/format/common/open_files.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <exception>
#include <new>
#include <system_error>
#include <thread>
#include <utility>

namespace ckptfs {
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
