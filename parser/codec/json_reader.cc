// The grammar is nlohmann's, with what it is lax in made strict: it skips a byte order mark and
// takes a NUL for the end of the text. No valid text has either.

#include "parser/codec/json_reader.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <cstddef>
#include <functional>
#include <iterator>
#include <memory_resource>
#include <nlohmann/json.hpp>
#include <span>

#include "parser/error.h"

namespace ckptfs::json {
namespace {

using Parser = nlohmann::json;

// The characters of a text, fetched a block at a time.
class Characters {
 public:
  Characters(const ByteSource& source, uint64_t offset, uint64_t length)
      : source_(source), offset_(offset), length_(length) {
    Fetch();
  }

  bool is_at_end() const { return block_.empty(); }
  char current() const { return static_cast<char>(block_.front()); }

  void Advance() {
    block_ = block_.subspan(1);
    if (block_.empty()) Fetch();
  }

 private:
  void Fetch() {
    const auto length = std::min<uint64_t>(buffer_.size(), length_ - fetched_);
    if (length == 0) return;
    const std::span block(buffer_.data(), static_cast<size_t>(length));
    source_.ReadAt(offset_ + fetched_, block);
    const auto nul = std::ranges::find(block, std::byte{});
    if (nul != block.end()) {
      FailAt(fetched_ + static_cast<uint64_t>(nul - block.begin()), "a NUL");
    }
    if (fetched_ == 0 && block.front() == std::byte{0xEF}) FailAt(0, "a byte order mark");
    fetched_ += length;
    block_ = block;
  }

  [[noreturn]] static void FailAt(uint64_t place, std::string_view what) {
    Fail(EBADMSG, "no JSON at byte {}: there is {}", place, what);
  }

  const ByteSource& source_;
  uint64_t offset_;
  uint64_t length_;
  uint64_t fetched_ = 0;
  std::span<const std::byte> block_;  // What is left of it.
  std::array<std::byte, 65536> buffer_ = {};
};

// What the parser reads from. All copies are at the same place.
class Iterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = char;

  Iterator() = default;  // The end.
  explicit Iterator(Characters& characters) : characters_(&characters) {}

  char operator*() const { return characters_->current(); }
  Iterator& operator++() {
    characters_->Advance();
    return *this;
  }
  bool operator==(const Iterator& other) const { return is_at_end() == other.is_at_end(); }

 private:
  bool is_at_end() const { return characters_ == nullptr || characters_->is_at_end(); }

  Characters* characters_ = nullptr;
};

// The keys of all objects that are not at their end yet.
class Keys {
 public:
  explicit Keys(Budget& budget) : text_(&budget), keys_(&budget) {}

  void Begin() { begins_.at(depth_++) = keys_.size(); }

  void Add(std::string_view key) {
    keys_.push_back({std::hash<std::string_view>()(key), text_.size(), key.size()});
    text_ += key;
  }

  // Throws Error if the innermost object has a key twice.
  void End() {
    const auto keys = std::span(keys_).subspan(begins_.at(--depth_));
    if (keys.empty()) return;
    const size_t begin = keys.front().begin;
    std::ranges::sort(keys, [this](const Entry& a, const Entry& b) {
      return a.hash != b.hash ? a.hash < b.hash : TextOf(a) < TextOf(b);
    });
    const auto twice = std::ranges::adjacent_find(keys, [this](const Entry& a, const Entry& b) {
      return a.hash == b.hash && TextOf(a) == TextOf(b);
    });
    if (twice != keys.end()) Fail(EBADMSG, "{} occurs twice", Quoted(TextOf(*twice)));
    text_.resize(begin);
    keys_.resize(keys_.size() - keys.size());
  }

 private:
  struct Entry {
    size_t hash = 0;
    size_t begin = 0;  // In text_.
    size_t length = 0;
  };

  std::string_view TextOf(const Entry& key) const {
    return std::string_view(text_).substr(key.begin, key.length);
  }

  std::pmr::string text_;
  std::pmr::vector<Entry> keys_;
  std::array<size_t, kMaxDepth> begins_ = {};  // Of each open object, in keys_.
  size_t depth_ = 0;                           // Objects that are open.
};

// Passes on to a visitor what the parser says.
class Events final : public nlohmann::json_sax<Parser> {
 public:
  Events(uint64_t length, Budget& budget, Visitor& visitor)
      : length_(length), keys_(budget), visitor_(visitor) {}

  bool null() override { return Other("null"); }
  bool boolean(bool value) override { return Other(value ? "true" : "false"); }
  bool number_integer(number_integer_t value) override {
    return Other(value == 0 ? "-0" : std::to_string(value));
  }
  bool number_unsigned(number_unsigned_t value) override {
    visitor_.Whole(value);
    return true;
  }
  bool number_float(number_float_t /*value*/, const string_t& text) override { return Other(text); }
  bool string(string_t& value) override {
    visitor_.Text(value);
    return true;
  }
  bool binary(binary_t& /*value*/) override {
    assert(false);  // There is none in a text.
    return false;
  }

  bool start_object(size_t /*size*/) override {
    Deepen();
    keys_.Begin();
    visitor_.Begin(true);
    return true;
  }
  bool key(string_t& value) override {
    keys_.Add(value);
    visitor_.Key(value);
    return true;
  }
  bool end_object() override {
    --depth_;
    keys_.End();
    visitor_.End(true);
    return true;
  }
  bool start_array(size_t /*size*/) override {
    Deepen();
    visitor_.Begin(false);
    return true;
  }
  bool end_array() override {
    --depth_;
    visitor_.End(false);
    return true;
  }

  bool parse_error(size_t position, const std::string& token,
                   const Parser::exception& error) override {
    constexpr int kNumberTooLarge = 406;  // The number of the parser's out_of_range for that.
    if (error.id == kNumberTooLarge) {
      Fail(EBADMSG, "the number {} before byte {} is too large", Quoted(token), position);
    }
    if (position > length_) Fail(EBADMSG, "the JSON is not complete at byte {}, its end", length_);
    Fail(EBADMSG, "no JSON at byte {}, near {}", position - 1, Quoted(token));
  }

 private:
  bool Other(std::string_view json) {
    visitor_.Other(json);
    return true;
  }

  void Deepen() {
    if (depth_ == kMaxDepth) Fail(EFBIG, "is nested more than {} deep", kMaxDepth);
    ++depth_;
  }

  uint64_t length_;
  size_t depth_ = 0;
  Keys keys_;
  Visitor& visitor_;
};

}  // namespace

void Read(const ByteSource& source, uint64_t offset, uint64_t length, Budget& budget,
          Visitor& visitor) {
  Characters characters(source, offset, length);
  Events events(length, budget, visitor);
  Parser::sax_parse(Iterator(characters), Iterator(), &events);
}

}  // namespace ckptfs::json
