// Reads a mount the way programs do, and prints how many seconds each round took, one line per
// round. The benchmarks are ratios of such times, and what the measuring program itself adds would
// bring every ratio nearer to one: so this is not a script.
//
//   reader sequential    every file from its begin to its end
//   reader parallel N    the same by N threads, which share the files
//   reader random COUNT [N]
//                        COUNT reads of 4 KiB, each at any place of any file, by each of N threads
//   reader stat          one stat per file
//   reader open          open, read the first 4 KiB and close, per file
//
// The names of the files come from standard input, one per line. `--rounds N` before the kind does
// all of it N times.

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <future>
#include <iostream>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "parser/base/error.h"
#include "parser/base/fd.h"

namespace ckptfs {
namespace {

constexpr size_t kPiece = 1U << 20;  // Of a sequential read, in bytes.
constexpr size_t kPage = 4096;

using Arguments = std::span<const char* const>;
using Files = std::vector<std::string>;

Fd Open(const std::string& path) {
  Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.number() < 0) FailErrno("{}", path);
  return file;
}

uint64_t SizeOf(const std::string& path) {
  struct stat st = {};
  if (::stat(path.c_str(), &st) < 0) FailErrno("{}", path);
  return static_cast<uint64_t>(st.st_size);
}

// Returns how many bytes there were: less than `buffer` has only at the end of the file.
size_t ReadAt(const Fd& file, uint64_t offset, std::span<char> buffer) {
  const ssize_t count =
      ::pread(file.number(), buffer.data(), buffer.size(), static_cast<off_t>(offset));
  if (count < 0) FailErrno("cannot read at {}", offset);
  return static_cast<size_t>(count);
}

void ReadWhole(std::span<const std::string> files) {
  std::vector<char> buffer(kPiece);
  for (const std::string& path : files) {
    const Fd file = Open(path);
    uint64_t offset = 0;
    while (const size_t count = ReadAt(file, offset, buffer)) offset += count;
  }
}

// Thread i reads the i-th part of the files.
void ReadInParallel(size_t thread_count, const Files& files) {
  const std::span<const std::string> all = files;
  std::vector<std::future<void>> parts;
  for (size_t i = 0; i < thread_count; ++i) {
    const size_t begin = all.size() * i / thread_count;
    const size_t end = all.size() * (i + 1) / thread_count;
    parts.push_back(std::async(std::launch::async, ReadWhole, all.subspan(begin, end - begin)));
  }
  for (std::future<void>& part : parts) part.get();
}

// The same places for the same seed.
void ReadAtRandom(size_t count, size_t seed, const Files& files) {
  std::mt19937_64 random(seed);
  std::vector<Fd> open;
  std::vector<uint64_t> pages;
  for (const std::string& path : files) {
    open.push_back(Open(path));
    pages.push_back(SizeOf(path) / kPage);
  }
  std::vector<char> buffer(kPage);
  for (size_t i = 0; i < count; ++i) {
    const size_t file = random() % files.size();
    if (ReadAt(open[file], random() % pages[file] * kPage, buffer) != kPage) {
      Fail(EIO, "{}: shorter than it says", files[file]);
    }
  }
}

void ReadAtRandomInParallel(size_t count, size_t thread_count, const Files& files) {
  std::vector<std::future<void>> threads;
  for (size_t i = 1; i <= thread_count; ++i) {
    threads.push_back(std::async(std::launch::async, ReadAtRandom, count, i, std::cref(files)));
  }
  for (std::future<void>& thread : threads) thread.get();
}

void StatEach(const Files& files) {
  for (const std::string& path : files) SizeOf(path);
}

void OpenEach(const Files& files) {
  std::vector<char> buffer(kPage);
  for (const std::string& path : files) ReadAt(Open(path), 0, buffer);
}

size_t Number(std::string_view text) {
  size_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number == 0) {
    Fail(EINVAL, "{} is not a number above 0", Quoted(text));
  }
  return number;
}

// Returns the lines of standard input.
Files ReadNames() {
  Files files;
  for (std::string line; std::getline(std::cin, line);) files.push_back(line);
  if (files.empty()) Fail(EINVAL, "no files to read");
  return files;
}

std::function<void(const Files&)> KindOf(Arguments arguments) {
  const std::string_view kind = arguments[0];
  if (arguments.size() == 2 && kind == "parallel") {
    return [n = Number(arguments[1])](const Files& files) { ReadInParallel(n, files); };
  }
  if ((arguments.size() == 2 || arguments.size() == 3) && kind == "random") {
    const size_t threads = arguments.size() == 3 ? Number(arguments[2]) : 1;
    return [count = Number(arguments[1]), threads](const Files& files) {
      ReadAtRandomInParallel(count, threads, files);
    };
  }
  if (arguments.size() == 1 && kind == "sequential") return ReadWhole;
  if (arguments.size() == 1 && kind == "stat") return StatEach;
  if (arguments.size() == 1 && kind == "open") return OpenEach;
  Fail(EINVAL, "there is no kind {} with {} numbers", Quoted(kind), arguments.size() - 1);
}

int Main(Arguments arguments) {
  try {
    size_t rounds = 1;
    if (arguments.size() > 1 && arguments[0] == std::string_view("--rounds")) {
      rounds = Number(arguments[1]);
      arguments = arguments.subspan(2);
    }
    if (arguments.empty()) Fail(EINVAL, "usage: reader [--rounds N] KIND [N]");
    const std::function<void(const Files&)> run = KindOf(arguments);
    const Files files = ReadNames();
    for (size_t i = 0; i < rounds; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      run(files);
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
      fmt::print("{:.6f}\n", seconds.count());
    }
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "reader: %s\n", e.what());
    return 1;
  }
}

}  // namespace
}  // namespace ckptfs

int main(int argc, char** argv) {
  return ckptfs::Main(std::span(argv, static_cast<size_t>(argc)).subspan(1));
}
