// The JSON is that of Python, whose texts may have lone surrogates.

#include "parser/format/tensorizer/name.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <limits>
#include <utility>

#include "parser/base/budget.h"
#include "parser/base/error.h"
#include "parser/base/utf8.h"
#include "parser/codec/json_reader.h"
#include "parser/io/simple_sources.h"

namespace ckptfs::tensorizer {
namespace {

constexpr char kArrayMark = '\x1E';

// The keys in the list of a name.
class NameVisitor final : public json::Visitor {
 public:
  void Begin(bool is_object) override {
    if (is_object || std::exchange(is_in_list_, true)) Refuse();
  }

  void Text(std::string& text) override { Add(std::move(text), ckptfs::Key::Kind::kText); }

  void Whole(uint64_t number) override {
    if (number > uint64_t{std::numeric_limits<int64_t>::max()}) Refuse();
    Add(std::to_string(number), ckptfs::Key::Kind::kNumber);
  }

  void Other(std::string_view /*json*/) override { Refuse(); }

  std::vector<ckptfs::Key> Take() {
    if (keys_.empty()) Refuse();
    return std::move(keys_);
  }

 private:
  [[noreturn]] static void Refuse() { Fail(EBADMSG, "it is no list of texts and whole numbers"); }

  void Add(std::string text, ckptfs::Key::Kind kind) {
    if (!is_in_list_) Refuse();
    if (keys_.size() == kMaxDepth) Fail(EBADMSG, "it has more than {} keys in it", kMaxDepth);
    keys_.push_back({std::move(text), kind});
  }

  bool is_in_list_ = false;
  std::vector<ckptfs::Key> keys_;
};

// tensorizer takes no ends of lines, not even as white space, and nothing around the list.
bool IsOneLine(std::string_view list) {
  return list.starts_with('[') && list.ends_with(']') &&
         list.find_first_of("\r\n") == std::string_view::npos;
}

}  // namespace

std::vector<Key> ReadName(std::string_view stored) try {
  if (!stored.starts_with(kArrayMark)) {
    if (!utf8::IsValid(stored)) Fail(EBADMSG, "it is no UTF-8");
    return {Key{std::string(stored)}};
  }
  const std::string_view list = stored.substr(1);
  if (!IsOneLine(list)) Fail(EBADMSG, "it is no list in one line");
  Budget budget = Budget::ForFile(list.size());
  NameVisitor keys;
  json::Read(MemorySource(std::string(list)), 0, list.size(), budget, keys, json::Dialect::kPython);
  return keys.Take();
} catch (const Error& e) {
  throw WithContext("name " + Quoted(stored), e);
}

std::string ShownName(std::string_view stored) {
  std::string shown;
  for (const Key& key : ReadName(stored)) {
    if (!shown.empty()) shown += '.';
    shown += key.text;
  }
  return shown;
}

}  // namespace ckptfs::tensorizer
