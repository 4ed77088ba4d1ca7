// Inflates the deflated members of a zip archive with zlib alone, one after another on one
// processor, and prints how many seconds that took: what no program that uses it can be faster
// than. To read the members does not count.
//
//   inflater FILE

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <span>
#include <vector>

#include "parser/base/budget.h"
#include "parser/base/error.h"
#include "parser/codec/zip.h"
#include "parser/open.h"

namespace ckptfs {
namespace {

using Clock = std::chrono::steady_clock;

// Returns how long a member took.
Clock::duration Inflate(const ByteSource& file, const zip::Member& member) {
  constexpr int kRawWithLargestWindow = -15;
  z_stream stream = {};
  if (::inflateInit2(&stream, kRawWithLargestWindow) != Z_OK) Fail(ENOMEM, "no memory");
  std::vector<std::byte> input(size_t{1} << 20);
  std::vector<std::byte> output(size_t{1} << 20);
  Clock::duration spent{};
  int result = Z_OK;
  for (uint64_t taken = 0; result == Z_OK && taken < member.compressed_size;) {
    const auto piece =
        std::span(input).first(std::min<uint64_t>(input.size(), member.compressed_size - taken));
    file.ReadAt(member.data_offset + taken, piece);
    taken += piece.size();
    const auto begin = Clock::now();
    stream.next_in = reinterpret_cast<Bytef*>(piece.data());
    stream.avail_in = static_cast<uInt>(piece.size());
    do {
      stream.next_out = reinterpret_cast<Bytef*>(output.data());
      stream.avail_out = static_cast<uInt>(output.size());
      result = ::inflate(&stream, Z_NO_FLUSH);
    } while (result == Z_OK && stream.avail_out == 0);
    if (result == Z_BUF_ERROR) result = Z_OK;  // It wants more input.
    spent += Clock::now() - begin;
  }
  ::inflateEnd(&stream);
  if (result != Z_STREAM_END) Fail(EIO, "{}: is damaged", Quoted(member.name));
  return spent;
}

void Run(const char* path) {
  const ByteSourcePtr file = OpenSource(path).file;
  Budget budget = Budget::ForFile(file->size());
  const zip::Directory directory = zip::ReadDirectory(*file, budget);
  Clock::duration spent{};
  for (const zip::Member& member : directory.members()) {
    if (member.method == zip::Method::kDeflated) spent += Inflate(*file, member);
  }
  fmt::print("{:.6f}\n", std::chrono::duration<double>(spent).count());
}

}  // namespace
}  // namespace ckptfs

int main(int argc, char** argv) {
  if (argc != 2) {
    fmt::print(stderr, "usage: inflater FILE\n");
    return EXIT_FAILURE;
  }
  try {
    ckptfs::Run(argv[1]);
  } catch (const std::exception& e) {
    fmt::print(stderr, "inflater: {}\n", e.what());
    return EXIT_FAILURE;
  }
}
