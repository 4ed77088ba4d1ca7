// The text is a Python literal. ckptfs accepts exactly what NumPy writes. That includes texts of
// more than 10,000 characters, for structures of many fields, which NumPy writes but does not read.

#include "parser/codec/npy.h"

#include <algorithm>
#include <cerrno>
#include <optional>
#include <string_view>

#include "parser/base/byte_reader.h"
#include "parser/base/error.h"
#include "parser/base/text.h"

namespace ckptfs::npy {
namespace {

using std::string_view_literals::operator""sv;

constexpr std::string_view kMagic = "\x93NUMPY";
static_assert(kMagic.size() == kMagicSize);
constexpr size_t kMostText = size_t{1} << 20;  // Bytes.

// The two bytes of the version, as a number.
constexpr unsigned kVersion1 = 0x0100;
constexpr unsigned kVersion2 = 0x0200;
constexpr unsigned kVersion3 = 0x0300;

std::string_view TextOf(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// A charge that ends with the scope.
class TemporaryCharge {
 public:
  TemporaryCharge(Budget& budget, uint64_t bytes) : budget_(budget), bytes_(bytes) {
    budget_.Charge(bytes_);
  }
  TemporaryCharge(const TemporaryCharge&) = delete;
  TemporaryCharge& operator=(const TemporaryCharge&) = delete;
  ~TemporaryCharge() { budget_.Refund(bytes_); }

 private:
  Budget& budget_;
  const uint64_t bytes_;
};

// Parses the dict.
ArrayHeader TakeHeader(Literal& literal) {
  ArrayHeader header;
  bool has_order = false;
  bool has_shape = false;
  literal.Open('{');
  do {
    const std::string key = literal.Text();
    literal.Take(':');
    if (key == "descr"sv && header.descr.empty()) {
      header.type = TakeType(literal, header.descr);
    } else if (key == "fortran_order"sv && !has_order) {
      header.is_fortran = literal.Bool();
      has_order = true;
    } else if (key == "shape"sv && !has_shape) {
      header.shape = literal.Sizes();
      has_shape = true;
    } else {
      const bool is_known = key == "descr" || key == "fortran_order" || key == "shape";
      Fail(EBADMSG, "header: {} key {}", is_known ? "duplicate" : "unexpected", Quoted(key));
    }
  } while (literal.HasMore('}'));
  literal.End();
  const std::string_view missing = header.descr.empty() ? "descr"sv
                                   : !has_order         ? "fortran_order"sv
                                   : !has_shape         ? "shape"sv
                                                        : ""sv;
  if (!missing.empty()) Fail(EBADMSG, "header: the key '{}' is missing", missing);
  return header;
}

}  // namespace

bool IsNpy(std::span<const std::byte> head) { return TextOf(head).starts_with(kMagic); }

ArrayHeader ReadHeader(const ByteSource& source, uint64_t offset, uint64_t length, Budget& budget) {
  const auto read_head = [&](size_t most) {
    std::vector<std::byte> bytes(static_cast<size_t>(std::min<uint64_t>(most, length)));
    if (!bytes.empty()) source.ReadAt(offset, bytes);
    return bytes;
  };
  return ReadHeader(read_head, length, budget);
}

ArrayHeader ReadHeader(const ReadHead& read_head, uint64_t length, Budget& budget) {
  std::vector<std::byte> bytes = read_head(kHead);
  if (!IsNpy(bytes)) Fail(EBADMSG, "bad magic of an .npy file");

  ByteReader reader("header", bytes);
  reader.Take(kMagicSize, "magic");
  const auto major = reader.Read<uint8_t>("version");
  const auto minor = reader.Read<uint8_t>("version");
  const unsigned version = (unsigned{major} << 8U) | minor;
  if (version != kVersion1 && version != kVersion2 && version != kVersion3) {
    Fail(ENOTSUP, "header: unsupported version {}.{} (expected 1.0, 2.0 or 3.0)", major, minor);
  }
  const uint64_t text_length = version == kVersion1 ? reader.Read<uint16_t>("length of the text")
                                                    : reader.Read<uint32_t>("length of the text");
  const size_t begin = reader.offset();
  if (text_length > length - begin) {
    Fail(EBADMSG, "header at byte {}: the text needs {} bytes, but only {} are left", begin,
         text_length, length - begin);
  }
  if (text_length > kMostText) {
    Fail(EOVERFLOW, "header: the text has {} bytes (maximum {})", text_length, kMostText);
  }
  budget.Grow(text_length);
  budget.Charge(text_length);      // Else a small archive could contain many long ones.
  constexpr uint64_t kCopies = 8;  // The text itself, names, and all of it in JSON.
  const TemporaryCharge charge(budget, kCopies * text_length);
  const size_t end = begin + static_cast<size_t>(text_length);
  if (end > bytes.size()) {
    // The views of `reader` are not used any more.
    bytes = read_head(end);
  }
  const std::string_view text = TextOf(bytes).substr(begin, end - begin);
  const Literal::Dialect dialect{.is_utf8 = version == kVersion3,
                                 .has_long_ints = version != kVersion3};
  if (dialect.is_utf8 && !utf8::IsValid(text)) Fail(EBADMSG, "header: the text is not UTF-8");
  Literal literal(text, begin, dialect);
  ArrayHeader header = TakeHeader(literal);
  header.data_offset = end;
  budget.Charge(header.descr.size() + header.type.name.size() +
                header.shape.size() * sizeof(uint64_t));
  return header;
}

}  // namespace ckptfs::npy
