#include "parser/format/gguf/metadata.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <functional>
#include <iterator>
#include <memory_resource>
#include <string_view>
#include <type_traits>
#include <unordered_set>
#include <utility>

#include "parser/base/encoding.h"
#include "parser/base/error.h"
#include "parser/base/hash.h"
#include "parser/base/json.h"
#include "parser/base/text.h"

namespace ckptfs::gguf {
namespace {

enum Type : uint32_t { kUint32 = 4, kBool = 7, kString = 8, kArray = 9 };

constexpr std::array<std::string_view, 13> kTypeNames = {
    "u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "string", "array", "u64", "i64", "f64"};

// Sizes in bytes; for texts and arrays the minimum without their counts.
constexpr std::array<uint64_t, 13> kTypeSizes = {1, 1, 2, 2, 4, 4, 4, 1, 0, 4, 8, 8, 8};

constexpr uint64_t kLongestKey = 65'535;               // Bytes.
constexpr uint64_t kLongestText = uint64_t{1} << 30U;  // Bytes, and elements of an array.
constexpr size_t kDeepest = 4;                         // Arrays in one another.

// JSON is in memory so often at the same time, on its way into meta.json.
constexpr uint64_t kCopies = 4;

constexpr std::string_view kBytes = "$bytes";

// A key is a text also where it is no UTF-8: "$bytes:" and its bytes in hex. So are those that
// begin like that, and no two keys look alike.
void AppendKey(std::string& out, std::string_view key) {
  if (utf8::IsValid(key) && !key.starts_with(kBytes)) return json::AppendString(out, key);
  out.append("\"").append(kBytes) += ':';
  AppendHex(out, key);
  out += '"';
}

void AppendText(std::string& out, std::string_view text) {
  if (utf8::IsValid(text)) return json::AppendString(out, text);
  out.append("{\"").append(kBytes).append("\":\"");
  AppendHex(out, text);
  out += "\"}";
}

class MetadataReader {
 public:
  MetadataReader(HeaderReader& reader, Budget& budget)
      : reader_(reader), budget_(budget), keys_(&budget) {}

  Metadata Read(uint64_t count) {
    metadata_.values = metadata_.types = "{";
    for (uint64_t i = 0; i < count; ++i) {
      const std::string& key = ReadKey();
      try {
        ReadPair(key);
      } catch (const Error& e) {
        throw WithContext("metadata " + Quoted(key), e);
      }
    }
    Close(metadata_.values);
    Close(metadata_.types);
    return std::move(metadata_);
  }

 private:
  const std::string& ReadKey() {
    const uint64_t place = reader_.position();
    reader_.ReadText("key", kLongestKey, text_);
    if (text_.empty()) Fail(EBADMSG, "header at byte {}: a key is empty", place);
    const auto [key, is_new] = keys_.insert(text_);
    if (!is_new) Fail(EBADMSG, "metadata {}: occurs twice", Quoted(*key));
    budget_.Charge(key->size());
    return *key;
  }

  void ReadPair(const std::string& key) {
    const uint32_t type = ReadType("type of a value");
    AppendKey(metadata_.values, key);
    metadata_.values += ':';
    const bool is_in_json = type == kString || type == kBool;
    if (!is_in_json) {
      AppendKey(metadata_.types, key);
      metadata_.types += ":\"";
    }
    whole_.reset();
    ReadValue(type, 0);
    metadata_.values += ',';
    if (!is_in_json) metadata_.types += "\",";
    Charge();
    Keep(key, type);
  }

  uint32_t ReadType(std::string_view field) {
    const uint64_t place = reader_.position();
    const auto type = reader_.Read<uint32_t>(field);
    if (type >= kTypeNames.size()) {
      Fail(EBADMSG, "header at byte {}: {} is {}, but 0 to {} are known", place, field, type,
           kTypeNames.size() - 1);
    }
    return type;
  }

  // Appends the value, and its type unless JSON expresses it.
  void ReadValue(uint32_t type, size_t depth) {
    if (type == kArray) return ReadArray(depth);
    AppendValue(type);
    if (type != kString && type != kBool) metadata_.types += kTypeNames.at(type);
  }

  void ReadArray(size_t depth) {
    if (depth == kDeepest) Fail(EBADMSG, "has arrays more than {} deep", kDeepest);
    const uint32_t type = ReadType("type of elements");
    const uint64_t count = reader_.ReadCount("number of elements");
    if (count > kLongestText) Fail(EBADMSG, "has {} elements (maximum {})", count, kLongestText);
    const bool has_count = type == kString || type == kArray;
    reader_.CheckCount(count, kTypeSizes.at(type) + (has_count ? reader_.count_size() : 0),
                       "elements");
    metadata_.values += '[';
    metadata_.types += '[';
    for (uint64_t i = 0; i < count; ++i) {
      if (i > 0) metadata_.values += ',';
      if (type != kArray) {
        AppendValue(type);
      } else {
        if (i > 0) metadata_.types += ',';
        ReadArray(depth + 1);
      }
      Charge();
    }
    if (type != kArray || count == 0) metadata_.types += kTypeNames.at(type);
    metadata_.values += ']';
    metadata_.types += ']';
  }

  // Appends a value that is no array.
  void AppendValue(uint32_t type) {
    switch (type) {
      case 0:
        return AppendWhole<uint8_t>();
      case 1:
        return AppendWhole<int8_t>();
      case 2:
        return AppendWhole<uint16_t>();
      case 3:
        return AppendWhole<int16_t>();
      case kUint32:
        return AppendWhole<uint32_t>();
      case 5:
        return AppendWhole<int32_t>();
      case 6:
        return AppendFloat<float, uint32_t>();
      case kBool:
        metadata_.values += reader_.Read<uint8_t>("bool") != 0 ? "true" : "false";
        return;
      case kString:
        reader_.ReadText("text", kLongestText, text_);
        return AppendText(metadata_.values, text_);
      case 10:
        return AppendWhole<uint64_t>();
      case 11:
        return AppendWhole<int64_t>();
      default:
        return AppendFloat<double, uint64_t>();
    }
  }

  template <typename T>
  void AppendWhole() {
    const T number = reader_.Read<T>("number");
    const fmt::format_int text(number);
    metadata_.values.append(text.data(), text.size());
    if (!std::is_signed_v<T> || number >= 0) whole_ = static_cast<uint64_t>(number);
  }

  // As a double, which has all numbers that a float has.
  template <typename T, typename Bits>
  void AppendFloat() {
    json::AppendDouble(metadata_.values,
                       static_cast<double>(std::bit_cast<T>(reader_.Read<Bits>("number"))));
  }

  // Charges for the JSON appended since the last call.
  void Charge() {
    const uint64_t size = metadata_.values.size() + metadata_.types.size();
    budget_.Charge(kCopies * (size - charged_));
    charged_ = size;
  }

  // Keeps values that determine how the file is read.
  void Keep(std::string_view key, uint32_t type) {
    if (key == "general.alignment") KeepAlignment(type);
    if (type == kArray) return;
    if (key == "split.no") metadata_.split.number = whole_;
    if (key == "split.count") metadata_.split.count = whole_;
    if (key == "split.tensors.count") metadata_.split.tensors = whole_;
  }

  void KeepAlignment(uint32_t type) {
    constexpr uint64_t kMost = uint64_t{1} << 30U;
    if (type != kUint32) {
      Fail(EBADMSG, "is of type {}, but must be u32", kTypeNames.at(type));
    }
    if (!std::has_single_bit(*whole_) || *whole_ > kMost) {
      Fail(EBADMSG, "is {}, but must be a power of two, {} at most", *whole_, kMost);
    }
    metadata_.alignment = static_cast<uint32_t>(*whole_);
  }

  // Ends an object whose members are all followed by a comma.
  static void Close(std::string& object) {
    if (object.size() == 1) {
      object += '}';
    } else {
      object.back() = '}';
    }
  }

  HeaderReader& reader_;
  Budget& budget_;
  Metadata metadata_;
  std::pmr::unordered_set<std::string, SecretHash, std::equal_to<>> keys_;
  std::string text_;               // The last text that was read.
  std::optional<uint64_t> whole_;  // The last number of the value, if it is one of these.
  uint64_t charged_ = 0;           // Bytes of JSON.
};

}  // namespace

Metadata ReadMetadata(HeaderReader& reader, uint64_t count, Budget& budget) {
  return MetadataReader(reader, budget).Read(count);
}

void HeaderReader::Fetch() {
  const std::span block(buffer_.data(),
                        static_cast<size_t>(std::min<uint64_t>(buffer_.size(), remaining())));
  budget_.Grow(block.size());
  budget_.Work(block.size());
  prefetcher_.Reach(position_ + block.size() - 1);
  file_.ReadAt(position_, block);
  block_ = block;
}

void HeaderReader::Fill(std::span<std::byte> bytes, std::string_view field) {
  if (bytes.size() > remaining()) {
    Fail(EBADMSG, "header at byte {}: {} needs {} bytes, but only {} are left", position_, field,
         bytes.size(), remaining());
  }
  if (position_ + bytes.size() > kMostBytes) {
    Fail(EFBIG, "the header has more than {} bytes", kMostBytes);
  }
  while (!bytes.empty()) {
    if (block_.empty()) Fetch();
    const auto piece = block_.first(std::min(block_.size(), bytes.size()));
    std::ranges::copy(piece, bytes.begin());
    bytes = bytes.subspan(piece.size());
    block_ = block_.subspan(piece.size());
    position_ += piece.size();
  }
}

void HeaderReader::ReadText(std::string_view field, uint64_t most, std::string& text) {
  const uint64_t place = position_;
  const uint64_t length = ReadCount(field);
  if (length > most) {
    Fail(EBADMSG, "header at byte {}: {} has {} bytes (maximum {})", place, field, length, most);
  }
  if (length > remaining()) {
    Fail(EBADMSG, "header at byte {}: {} needs {} bytes, but only {} are left", position_, field,
         length, remaining());
  }
  // Before the memory is taken.
  if (length > kMostBytes) {
    Fail(EFBIG, "the header has more than {} bytes", kMostBytes);
  }
  text.resize(static_cast<size_t>(length));
  Fill(std::as_writable_bytes(std::span(text)), field);
}

void HeaderReader::CheckCount(uint64_t count, uint64_t least, std::string_view things) const {
  if (const uint64_t room = remaining() / least; count > room) {
    Fail(EBADMSG, "header at byte {}: has {} {}, but the {} bytes that are left have room for {}",
         position_, count, things, remaining(), room);
  }
  if (count > kMostBytes / least) {
    Fail(EFBIG, "header at byte {}: has {} {} (maximum {})", position_, count, things,
         kMostBytes / least);
  }
}

}  // namespace ckptfs::gguf
