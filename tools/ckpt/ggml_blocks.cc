// Source: https://github.com/ggml-org/ggml, src/ggml-common.h and ggml-quants.c. The elements have
// the same bits as those of gguf.quants in the package gguf for Python: products are rounded before
// sums.

#include "tools/ckpt/ggml_blocks.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include "tools/ckpt/elements.h"

namespace ckptfs::ckpt {
namespace {

constexpr size_t kSuper = 256;  // Elements of a super-block: of the types with K, TQ and IQ4_XS.

unsigned ByteAt(const std::byte* bytes, size_t i) { return std::to_integer<unsigned>(bytes[i]); }
float HalfAt(const std::byte* bytes, size_t i) { return Float16::Load(bytes + i); }
float SignedAt(const std::byte* bytes, size_t i) {
  return static_cast<float>(std::bit_cast<int8_t>(bytes[i]));
}

// Element i of those with `bits` bits in groups of `width` bytes: the lowest bits of all bytes of a
// group come first.
unsigned BitsAt(const std::byte* bytes, size_t i, size_t width, unsigned bits) {
  const size_t parts = 8 / bits;
  const size_t group = i / (width * parts);
  const size_t part = i / width % parts;
  return ByteAt(bytes, group * width + i % width) >> (part * bits) & ((1U << bits) - 1);
}

// Q4_0 and Q5_0: scale, [fifth bits], 4 bits. Q4_1 and Q5_1 have the least value behind the scale.
template <bool kHasFifth, bool kHasLeast>
struct Simple {
  static constexpr size_t kElements = 32;
  static constexpr size_t kFifth = kHasLeast ? 4 : 2;
  static constexpr size_t kCodes = kFifth + (kHasFifth ? 4 : 0);
  static constexpr size_t kBytes = kCodes + 16;

  static void Decode(const std::byte* block, float* elements) {
    const float scale = HalfAt(block, 0);
    const float least = kHasLeast ? HalfAt(block, 2) : 0;
    const uint32_t fifth = kHasFifth ? Native<uint32_t>::Load(block + kFifth) : 0;
    for (size_t i = 0; i < kElements; ++i) {
      unsigned code = BitsAt(block + kCodes, i, 16, 4);
      if (kHasFifth) code |= (fifth >> i & 1U) << 4U;
      const auto value = static_cast<float>(code);
      const float middle = kHasFifth ? 16 : 8;
      elements[i] = kHasLeast ? scale * value + least : scale * (value - middle);
    }
  }
};

struct Q80 {
  static constexpr size_t kElements = 32;
  static constexpr size_t kBytes = 34;

  static void Decode(const std::byte* block, float* elements) {
    const float scale = HalfAt(block, 0);
    for (size_t i = 0; i < kElements; ++i) elements[i] = scale * SignedAt(block, 2 + i);
  }
};

struct Q2K {
  static constexpr size_t kElements = kSuper;
  static constexpr size_t kBytes = 84;

  static void Decode(const std::byte* block, float* elements) {
    const float scale = HalfAt(block, 80), least = HalfAt(block, 82);
    for (size_t i = 0; i < kElements; ++i) {
      const unsigned scales = ByteAt(block, i / 16);
      const float product = scale * static_cast<float>(scales & 15U) *
                            static_cast<float>(BitsAt(block + 16, i, 32, 2));
      elements[i] = product - least * static_cast<float>(scales >> 4U);
    }
  }
};

struct Q3K {
  static constexpr size_t kElements = kSuper;
  static constexpr size_t kBytes = 110;

  static void Decode(const std::byte* block, float* elements) {
    const std::byte* const scales = block + 96;
    std::array<float, 16> factors{};
    for (size_t i = 0; i < factors.size(); ++i) {
      const unsigned code = BitsAt(scales, i, 8, 4) | BitsAt(scales + 8, i, 4, 2) << 4U;
      factors[i] = HalfAt(block, 108) * (static_cast<float>(code) - 32);
    }
    for (size_t i = 0; i < kElements; ++i) {
      const float third = BitsAt(block, i, 32, 1) != 0 ? 0 : 4;
      elements[i] = factors[i / 16] * (static_cast<float>(BitsAt(block + 32, i, 32, 2)) - third);
    }
  }
};

// Q4_K and Q5_K: two scales of 6 bits for each 32 elements.
template <bool kHasFifth>
struct Q45K {
  static constexpr size_t kElements = kSuper;
  static constexpr size_t kCodes = kHasFifth ? 48 : 16;
  static constexpr size_t kBytes = kCodes + 128;

  static void Decode(const std::byte* block, float* elements) {
    const std::byte* const packed = block + 4;
    for (size_t part = 0; part < 8; ++part) {
      const size_t i = part % 4;
      const unsigned low = ByteAt(packed, i), high = ByteAt(packed, 4 + i);
      const unsigned both = ByteAt(packed, 8 + i);
      const unsigned factor = part < 4 ? low & 63U : (both & 15U) | (low >> 2U & 48U);
      const unsigned offset = part < 4 ? high & 63U : both >> 4U | (high >> 2U & 48U);
      const float scale = HalfAt(block, 0) * static_cast<float>(factor);
      const float least = HalfAt(block, 2) * static_cast<float>(offset);
      for (size_t k = part * 32; k < part * 32 + 32; ++k) {
        unsigned code = BitsAt(block + kCodes, k, 32, 4);
        if (kHasFifth) code |= BitsAt(block + 16, k, 32, 1) << 4U;
        elements[k] = scale * static_cast<float>(code) - least;
      }
    }
  }
};

struct Q6K {
  static constexpr size_t kElements = kSuper;
  static constexpr size_t kBytes = 210;

  static void Decode(const std::byte* block, float* elements) {
    const float scale = HalfAt(block, 208);
    for (size_t i = 0; i < kElements; ++i) {
      const unsigned code = BitsAt(block, i, 64, 4) | BitsAt(block + 128, i, 32, 2) << 4U;
      elements[i] = scale * SignedAt(block, 192 + i / 16) * (static_cast<float>(code) - 32);
    }
  }
};

// -1, 0 and 1. Five of them are a fraction of 256: times 3, the whole part is the first of them.
struct Tq10 {
  static constexpr size_t kElements = kSuper;
  static constexpr size_t kBytes = 54;

  static void Decode(const std::byte* block, float* elements) {
    struct Range {
      size_t begin, width, powers;
    };
    const float scale = HalfAt(block, 52);
    for (const auto& [begin, width, powers] :
         {Range{0, 32, 5}, Range{32, 16, 5}, Range{48, 4, 4}}) {
      for (unsigned power = 0, factor = 1; power < powers; ++power, factor *= 3) {
        for (size_t i = 0; i < width; ++i) {
          const unsigned fraction = ByteAt(block, begin + i) * factor & 255U;
          *elements++ = scale * (static_cast<float>(fraction * 3 >> 8U) - 1);
        }
      }
    }
  }
};

struct Tq20 {
  static constexpr size_t kElements = kSuper;
  static constexpr size_t kBytes = 66;

  static void Decode(const std::byte* block, float* elements) {
    const float scale = HalfAt(block, 64);
    for (size_t i = 0; i < kElements; ++i) {
      elements[i] = scale * (static_cast<float>(BitsAt(block, i, 32, 2)) - 1);
    }
  }
};

// Of float4_e2m1fn, twice the value.
constexpr std::array<float, 16> kFloat4 = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

struct Mxfp4 {
  static constexpr size_t kElements = 32;
  static constexpr size_t kBytes = 17;

  static void Decode(const std::byte* block, float* elements) {
    // Half a power of two, because of kFloat4. The two smallest are denormals.
    const unsigned code = ByteAt(block, 0);
    const auto scale = std::bit_cast<float>(code < 2 ? 0x00200000U << code : (code - 1) << 23U);
    for (size_t i = 0; i < kElements; ++i) {
      elements[i] = scale * kFloat4[BitsAt(block + 1, i, 16, 4)];
    }
  }
};

// Four scales for 16 elements each: float8_e4m3fn, whose sign counts for nothing, and 0 for NaN.
struct Nvfp4 {
  static constexpr size_t kElements = 64;
  static constexpr size_t kBytes = 36;

  static void Decode(const std::byte* block, float* elements) {
    for (size_t part = 0; part < 4; ++part) {
      const unsigned code = ByteAt(block, part);
      const float scale = code == 127 ? 0 : SmallFloat<4, 3, 7, Specials::kNone>(code & 127U) / 2;
      for (size_t i = 0; i < 16; ++i) {
        *elements++ = scale * kFloat4[BitsAt(block + 4 + part * 8, i, 8, 4)];
      }
    }
  }
};

constexpr std::array<float, 16> kIq4 = {-127, -104, -83, -65, -49, -35, -22, -10,
                                        1,    13,   25,  38,  53,  69,  89,  113};

struct Iq4Nl {
  static constexpr size_t kElements = 32;
  static constexpr size_t kBytes = 18;

  static void Decode(const std::byte* block, float* elements) {
    const float scale = HalfAt(block, 0);
    for (size_t i = 0; i < kElements; ++i) {
      elements[i] = scale * kIq4[BitsAt(block + 2, i, 16, 4)];
    }
  }
};

struct Iq4Xs {
  static constexpr size_t kElements = kSuper;
  static constexpr size_t kBytes = 136;

  static void Decode(const std::byte* block, float* elements) {
    const unsigned high = Native<uint16_t>::Load(block + 2);
    for (size_t part = 0; part < 8; ++part) {
      const unsigned low = ByteAt(block, 4 + part / 2) >> (part % 2 * 4) & 15U;
      const unsigned code = low | (high >> (2 * part) & 3U) << 4U;
      const float scale = HalfAt(block, 0) * (static_cast<float>(code) - 32);
      for (size_t i = 0; i < 32; ++i) {
        elements[part * 32 + i] = scale * kIq4[BitsAt(block + 8 + part * 16, i, 16, 4)];
      }
    }
  }
};

struct Float4Pair {
  static constexpr size_t kElements = 2;
  static constexpr size_t kBytes = 1;

  static void Decode(const std::byte* block, float* elements) {
    elements[0] = SmallFloat<2, 1, 1, Specials::kNone>(ByteAt(block, 0) & 15U);
    elements[1] = SmallFloat<2, 1, 1, Specials::kNone>(ByteAt(block, 0) >> 4U);
  }
};

template <typename Block>
void DecodeAll(const std::byte* blocks, size_t count, float* elements) {
  for (; count > 0; --count, blocks += Block::kBytes, elements += Block::kElements) {
    Block::Decode(blocks, elements);
  }
}

template <typename Block>
constexpr BlockType Row(std::string_view name) {
  static_assert(Block::kElements <= kMaxBlockElements);
  return {name, Block::kBytes, Block::kElements, DecodeAll<Block>};
}

constexpr BlockType kTypes[] = {
    Row<Simple<false, false>>("Q4_0"),
    Row<Simple<false, true>>("Q4_1"),
    Row<Simple<true, false>>("Q5_0"),
    Row<Simple<true, true>>("Q5_1"),
    Row<Q80>("Q8_0"),
    Row<Q2K>("Q2_K"),
    Row<Q3K>("Q3_K"),
    Row<Q45K<false>>("Q4_K"),
    Row<Q45K<true>>("Q5_K"),
    Row<Q6K>("Q6_K"),
    Row<Iq4Nl>("IQ4_NL"),
    Row<Iq4Xs>("IQ4_XS"),
    Row<Tq10>("TQ1_0"),
    Row<Tq20>("TQ2_0"),
    Row<Mxfp4>("MXFP4"),
    Row<Nvfp4>("NVFP4"),
};

}  // namespace

const BlockType* BlockTypeNamed(std::string_view name) {
  const auto* found = std::ranges::find(kTypes, name, &BlockType::name);
  return found == std::end(kTypes) ? nullptr : found;
}

const BlockType kFloat4Pairs = Row<Float4Pair>("float4_e2m1fn_x2");

}  // namespace ckptfs::ckpt
