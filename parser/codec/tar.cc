// The layout of a tar archive, in blocks of 512 bytes:
//
//   (header, data, padding)... two blocks of zeros
//
// Numbers in a header are octal text, or binary (GNU) if they are too large. The checksum is the
// sum of the bytes of the header, with spaces in place of the checksum. A name or a size that does
// not fit is in a separate member before the one that it belongs to: pax writes records "LENGTH
// KEY=VALUE\n", GNU a name.

#include "parser/codec/tar.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <numeric>
#include <optional>
#include <utility>

#include "parser/base/error.h"
#include "parser/base/text.h"
#include "parser/io/folder.h"

namespace ckptfs::tar {
namespace {

constexpr size_t kBlock = 512;                   // Bytes.
constexpr uint64_t kMostExtension = 64U << 10U;  // Bytes of a member that describes another one.

using Block = std::span<const std::byte, kBlock>;

std::string_view Field(Block block, size_t offset, size_t size) {
  return {reinterpret_cast<const char*>(block.data()) + offset, size};
}

// A field of text ends with a NUL, if it is not full.
std::string_view TextField(Block block, size_t offset, size_t size) {
  const std::string_view field = Field(block, offset, size);
  return field.substr(0, field.find('\0'));
}

// Parses octal digits, maybe after spaces, before a space or a NUL. Returns nothing for other text.
std::optional<uint64_t> Octal(std::string_view field) {
  field.remove_prefix(std::min(field.find_first_not_of(' '), field.size()));
  field = field.substr(0, field.find_first_of(std::string_view(" \0", 2)));
  return ParseNumber<uint64_t>(field, 8);
}

// GNU's numbers have the most significant bit set, and are big-endian.
std::optional<uint64_t> Number(std::string_view field) {
  if (static_cast<uint8_t>(field[0]) != 0x80) return Octal(field);
  uint64_t number = 0;
  for (const char c : field.substr(1)) {
    if (number >> 56U != 0) return {};
    number = number << 8U | static_cast<uint8_t>(c);
  }
  return number;
}

bool IsZero(Block block) {
  return std::ranges::all_of(block, [](std::byte b) { return b == std::byte{}; });
}

bool HasChecksum(Block block) {
  constexpr size_t kOffset = 148;
  constexpr size_t kSize = 8;
  uint64_t sum = kSize * ' ';
  for (size_t i = 0; i < kBlock; ++i) {
    if (i < kOffset || i >= kOffset + kSize) sum += std::to_integer<uint64_t>(block[i]);
  }
  return Octal(Field(block, kOffset, kSize)) == sum;
}

struct Header {
  std::string name;
  std::optional<uint64_t> size;  // Nothing if the field is no number.
  char type = '\0';
};

Header HeaderIn(Block block) {
  Header header{.name = std::string(TextField(block, 0, 100)),
                .size = Number(Field(block, 124, 12)),
                .type = Field(block, 156, 1)[0]};
  // GNU stores times in place of ustar's beginning of a long name.
  const std::string_view prefix = TextField(block, 345, 155);
  if (Field(block, 257, 6) == std::string_view("ustar\0", 6) && !prefix.empty()) {
    header.name.insert(0, std::string(prefix) + "/");
  }
  return header;
}

bool IsFile(char type) { return type == '0' || type == '\0' || type == '7'; }

// Links, devices and directories; their size is meaningless.
bool HasNoData(char type) { return type >= '1' && type <= '6'; }

bool IsExtension(char type) { return type == 'x' || type == 'g' || type == 'L'; }

uint64_t Padded(uint64_t size) { return (size + kBlock - 1) / kBlock * kBlock; }

// The fields of extensions for the next member.
struct Extension {
  std::optional<std::string> name;
  std::optional<uint64_t> size;
};

// Applies one record of pax.
void AddRecord(std::string_view key, std::string_view value, Extension& extension) {
  if (key == "path") {
    extension.name = std::string(value);
  } else if (key == "size") {
    extension.size = ParseNumber<uint64_t>(value);
    if (!extension.size) Fail(EBADMSG, "invalid size {}", Quoted(value));
  } else if (key.starts_with("GNU.sparse.")) {
    Fail(ENOTSUP, "unsupported sparse member");
  }
}

// The records of pax in `text`.
void AddRecords(std::string_view text, Extension& extension) {
  while (!text.empty()) {
    std::string_view rest = text;
    const size_t length = TakeNumber<size_t>(rest).value_or(0);
    const size_t digits = text.size() - rest.size();
    const bool is_record = length <= text.size() && digits + 2 <= length && text[digits] == ' ' &&
                           text[length - 1] == '\n';
    if (!is_record) Fail(EBADMSG, "invalid length of a pax record");
    const std::string_view record = text.substr(digits + 1, length - digits - 2);
    const size_t equals = record.find('=');
    if (equals == std::string_view::npos) Fail(EBADMSG, "missing '=' in a pax record");
    AddRecord(record.substr(0, equals), record.substr(equals + 1), extension);
    text.remove_prefix(length);
  }
}

// Reads the archive from its beginning to its end.
class TarWalk {
 public:
  TarWalk(const ByteSource& source, Budget& budget) : source_(source), budget_(budget) {}

  std::vector<Member> Run() {
    while (Step()) {
    }
    std::ranges::sort(members_, {}, &Member::name);
    const auto twice = std::ranges::adjacent_find(members_, {}, &Member::name);
    if (twice != members_.end()) Fail(EBADMSG, "duplicate member {}", Quoted(twice->name));
    return std::move(members_);
  }

 private:
  // Reads one header and its extensions. Returns whether there was one.
  bool Step() try {
    if (position_ == source_.size()) return false;  // Some writers omit the zeros.
    std::byte block[kBlock];
    if (source_.size() - position_ < kBlock) {
      Fail(EBADMSG, "it needs {} bytes, but only {} are left", kBlock, source_.size() - position_);
    }
    source_.ReadAt(position_, block);
    if (IsZero(block)) return false;
    if (!HasChecksum(block)) Fail(EBADMSG, "checksum mismatch");
    Add(HeaderIn(block));
    return true;
  } catch (const Error& e) {
    throw WithContext(fmt::format("header at byte {}", position_), e);
  }

  void Add(Header header) {
    if (!IsExtension(header.type)) {
      if (extension_.name) header.name = *std::move(extension_.name);
      if (extension_.size) header.size = extension_.size;
      extension_ = {};
    }
    if (!header.size) Fail(EBADMSG, "its size is not a number");
    if (HasNoData(header.type)) header.size = 0;
    const uint64_t data = position_ + kBlock;
    if (*header.size > source_.size() - data) {
      Fail(EBADMSG, "{} has {} bytes from byte {} on, but the archive ends at byte {}",
           Quoted(header.name), *header.size, data, source_.size());
    }
    if (IsExtension(header.type)) {
      ReadExtension(header.type, data, *header.size);
    } else if (IsFile(header.type)) {
      AddMember(
          {.name = std::move(header.name), .offset = data, .size = *header.size, .error = ""});
    } else if (header.type == 'S') {
      Fail(ENOTSUP, "{} is sparse, which is not supported", Quoted(header.name));
    } else if (header.type != '5') {
      AddMember({.name = std::move(header.name),
                 .offset = data,
                 .size = 0,
                 .error = fmt::format("is of type {}: a link or a device, which is not supported",
                                      Quoted(std::string_view(&header.type, 1)))});
    }
    // The last one need not be padded.
    position_ = data + std::min(Padded(*header.size), source_.size() - data);
  }

  void AddMember(Member member) {
    while (member.name.starts_with("./")) member.name.erase(0, 2);
    CheckMemberName(member.name);
    // Vectors grow by doubling.
    budget_.Grow(kBlock);
    budget_.Charge(2 * sizeof(Member) + member.name.size() + member.error.size());
    members_.push_back(std::move(member));
  }

  void ReadExtension(char type, uint64_t data, uint64_t size) {
    if (size > kMostExtension) {
      Fail(EFBIG, "extension of {} bytes (maximum {})", size, kMostExtension);
    }
    std::string text(size, '\0');
    source_.ReadAt(data, std::as_writable_bytes(std::span(text)));
    if (type == 'L') {
      extension_.name = text.substr(0, text.find('\0'));
      return;
    }
    // Applies to all members, so it cannot contain the name or size of one.
    Extension global;
    AddRecords(text, type == 'x' ? extension_ : global);
    if (global.name || global.size) Fail(ENOTSUP, "unsupported global name or size");
  }

  const ByteSource& source_;
  Budget& budget_;
  uint64_t position_ = 0;
  Extension extension_;
  std::vector<Member> members_;
};

}  // namespace

std::vector<Member> ReadDirectory(const ByteSource& source, Budget& budget) {
  return TarWalk(source, budget).Run();
}

bool IsTar(std::span<const std::byte> head) {
  if (head.size() < kBlock) return false;
  const Block block = head.first<kBlock>();
  return !IsZero(block) && HasChecksum(block);
}

std::string FirstName(std::span<const std::byte> head) {
  while (head.size() >= kBlock) {
    const Block block = head.first<kBlock>();
    if (IsZero(block) || !HasChecksum(block)) return {};
    Header header = HeaderIn(block);
    if (!IsExtension(header.type)) return std::move(header.name);
    const uint64_t left = head.size() - kBlock;
    if (!header.size || *header.size > left || Padded(*header.size) > left) return {};
    head = head.subspan(kBlock + Padded(*header.size));
  }
  return {};
}

}  // namespace ckptfs::tar
