// How fast the elements of a tensor that is not dense are gathered, read as a mount reads them: one
// request of 128 KiB after the other, from a file that is in the page cache.
//
// The measure is TransposeInMemory: what a program needs that has the whole matrix in its memory
// and copies it to other memory, transposed.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "parser/layer/strided.h"
#include "parser/open.h"

namespace ckptfs {
namespace {

constexpr size_t kRequest = size_t{128} << 10;
constexpr uint64_t kSide = 4096;
constexpr uint64_t kSize = kSide * kSide * 4;  // 64 MiB of float32.

// A file of 64 MiB that goes when the benchmark does.
class Matrix {
 public:
  Matrix() : path_(std::filesystem::temp_directory_path() / "ckptfs-gather-XXXXXX") {
    std::string path = path_.string();
    if (::mkdtemp(path.data()) == nullptr) std::abort();
    path_ = path;
    std::vector<uint32_t> elements(kSide * kSide);
    std::ranges::generate(elements, std::mt19937(1));
    const std::filesystem::path file = path_ / "matrix";
    std::ofstream(file, std::ios::binary)
        .write(reinterpret_cast<const char*>(elements.data()), kSize);
    source_ = OpenSource(file).file;
  }
  Matrix(const Matrix&) = delete;
  Matrix& operator=(const Matrix&) = delete;
  ~Matrix() { std::filesystem::remove_all(path_); }

  ByteSourcePtr With(Dtype dtype, std::vector<uint64_t> shape, std::vector<uint64_t> stride) const {
    const View view{.dtype = dtype, .shape = std::move(shape), .stride = std::move(stride)};
    return MakeStrided({source_, 0, kSize}, view, std::make_shared<BlockCache>());
  }

 private:
  std::filesystem::path path_;
  ByteSourcePtr source_;
};

void ReadInOrder(benchmark::State& state, const ByteSource& source) {
  std::vector<std::byte> buffer(kRequest);
  for ([[maybe_unused]] auto _ : state) {
    for (uint64_t offset = 0; offset < source.size(); offset += kRequest) {
      const size_t n = std::min<uint64_t>(kRequest, source.size() - offset);
      source.ReadAt(offset, std::span(buffer).first(n));
    }
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(source.size()));
}

void Transposed(benchmark::State& state) {
  const Matrix matrix;
  ReadInOrder(state, *matrix.With(Dtype::kFloat32, {kSide, kSide}, {1, kSide}));
}

void TransposedBytes(benchmark::State& state) {
  const Matrix matrix;
  ReadInOrder(state, *matrix.With(Dtype::kUint8, {2 * kSide, 2 * kSide}, {1, 2 * kSide}));
}

void TransposedLongRows(benchmark::State& state) {
  const Matrix matrix;
  ReadInOrder(state, *matrix.With(Dtype::kFloat32, {kSide / 64, 64 * kSide}, {1, kSide / 64}));
}

void ChannelsLast(benchmark::State& state) {
  const Matrix matrix;
  ReadInOrder(state, *matrix.With(Dtype::kFloat32, {64, 256, 32, 32}, {262144, 1, 8192, 256}));
}

void HalfOfEachRow(benchmark::State& state) {
  const Matrix matrix;
  ReadInOrder(state, *matrix.With(Dtype::kFloat32, {kSide, kSide / 2}, {kSide, 1}));
}

void FourOfEachRow(benchmark::State& state) {
  const Matrix matrix;
  ReadInOrder(state, *matrix.With(Dtype::kFloat32, {kSide, 4}, {kSide, 1}));
}

void EveryThirdElement(benchmark::State& state) {
  const Matrix matrix;
  ReadInOrder(state, *matrix.With(Dtype::kFloat32, {kSide * kSide / 3}, {3}));
}

void RandomPagesOfTransposed(benchmark::State& state) {
  const Matrix matrix;
  const auto source = matrix.With(Dtype::kFloat32, {kSide, kSide}, {1, kSide});
  std::mt19937 random(1);
  std::vector<std::byte> page(4096);
  for ([[maybe_unused]] auto _ : state) {
    source->ReadAt(random() % (kSize / page.size()) * page.size(), page);
  }
}

void TransposeInMemory(benchmark::State& state) {
  constexpr uint64_t kBlock = 16;
  const std::vector<float> from(kSide * kSide, 1.0F);
  std::vector<float> to(kSide * kSide);
  for ([[maybe_unused]] auto _ : state) {
    for (uint64_t row = 0; row < kSide; row += kBlock) {
      for (uint64_t column = 0; column < kSide; column += kBlock) {
        for (uint64_t i = row; i < row + kBlock; ++i) {
          for (uint64_t j = column; j < column + kBlock; ++j)
            to[i * kSide + j] = from[j * kSide + i];
        }
      }
    }
    benchmark::DoNotOptimize(to.data());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(kSize));
}

BENCHMARK(Transposed)->Unit(benchmark::kMillisecond);
BENCHMARK(TransposeInMemory)->Unit(benchmark::kMillisecond);
BENCHMARK(TransposedBytes)->Unit(benchmark::kMillisecond);
BENCHMARK(TransposedLongRows)->Unit(benchmark::kMillisecond);
BENCHMARK(ChannelsLast)->Unit(benchmark::kMillisecond);
BENCHMARK(HalfOfEachRow)->Unit(benchmark::kMillisecond);
BENCHMARK(FourOfEachRow)->Unit(benchmark::kMillisecond);
BENCHMARK(EveryThirdElement)->Unit(benchmark::kMillisecond);
BENCHMARK(RandomPagesOfTransposed)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace ckptfs

BENCHMARK_MAIN();
