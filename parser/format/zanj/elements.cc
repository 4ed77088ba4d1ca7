#include "parser/format/zanj/elements.h"

#include <algorithm>
#include <cerrno>
#include <span>

#include "parser/base/error.h"
#include "parser/format/zanj/element.h"
#include "parser/format/zanj/tag.h"

namespace ckptfs::zanj {
namespace {

class Lists {
 public:
  Lists(Dtype dtype, Externals& externals) : dtype_(dtype), externals_(externals) {}

  // Appends what is in `node`, which has the dimensions `shape`.
  void Append(json::Node node, std::span<const uint64_t> shape) {
    if (shape.empty()) return AppendElement(elements_, dtype_, node);
    if (TagOf(node).kind == Tag::Kind::kExternalTable) {
      const Record record = externals_.Open(ReferenceOf(node));
      const json::Document rows = externals_.ReadRows(record);
      return AppendItems(rows.root(), shape);
    }
    if (!node.is_list()) Fail(EBADMSG, "its data have fewer dimensions than its shape");
    AppendItems(node, shape);
  }

  std::string Take() { return std::move(elements_); }

 private:
  void AppendItems(json::Node list, std::span<const uint64_t> shape) {
    if (list.count() != shape[0]) {
      Fail(EBADMSG, "a list of its data has {} items, but its shape needs {}", list.count(),
           shape[0]);
    }
    if (shape.size() == 1) externals_.budget().Charge(list.count() * ItemSize(dtype_));
    json::Items items(list);
    while (const auto item = items.Next()) Append(*item, shape.subspan(1));
  }

  Dtype dtype_;
  Externals& externals_;
  std::string elements_;
};

// The value of a digit; 64 if it is none.
unsigned HexDigit(char c) {
  if (c >= '0' && c <= '9') return static_cast<unsigned>(c - '0');
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? static_cast<unsigned>(lower - 'a' + 10) : 64;
}

unsigned Base64Digit(char c) {
  if (c >= 'A' && c <= 'Z') return static_cast<unsigned>(c - 'A');
  if (c >= 'a' && c <= 'z') return static_cast<unsigned>(c - 'a' + 26);
  if (c >= '0' && c <= '9') return static_cast<unsigned>(c - '0' + 52);
  return c == '+' ? 62 : c == '/' ? 63 : 64;
}

}  // namespace

std::string ElementsOfLists(json::Node data, Dtype dtype, const std::vector<uint64_t>& shape,
                            Externals& externals) {
  // What has no elements may be written with fewer dimensions: "[]" for 0 x 3.
  if (std::ranges::count(shape, uint64_t{0}) != 0) return "";
  Lists lists(dtype, externals);
  lists.Append(data, shape);
  return lists.Take();
}

std::string BytesOfHex(std::string_view text, Budget& budget) {
  if (text.size() % 2 != 0)
    Fail(EBADMSG, "its data have {} hex digits, an odd number", text.size());
  budget.Charge(text.size() / 2);
  std::string bytes;
  bytes.reserve(text.size() / 2);
  for (size_t i = 0; i < text.size(); i += 2) {
    const unsigned high = HexDigit(text[i]);
    const unsigned low = HexDigit(text[i + 1]);
    if (high > 15 || low > 15) {
      Fail(EBADMSG, "its data have {} at character {}, but must be hex", Quoted(text.substr(i, 2)),
           i);
    }
    bytes += static_cast<char>(high * 16 + low);
  }
  return bytes;
}

std::string BytesOfBase64(std::string_view text, Budget& budget) {
  constexpr size_t kGroup = 4;
  if (text.size() % kGroup != 0) {
    Fail(EBADMSG, "its data have {} characters, but base64 comes in groups of {}", text.size(),
         kGroup);
  }
  budget.Charge(text.size() / kGroup * 3);
  std::string bytes;
  bytes.reserve(text.size() / kGroup * 3);
  const size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  const size_t digits = text.size() - padding;
  for (size_t i = 0; i < text.size(); i += kGroup) {
    unsigned group = 0;
    for (size_t j = i; j < i + kGroup; ++j) {
      const unsigned digit = j < digits ? Base64Digit(text[j]) : 0;
      if (digit > 63) {
        Fail(EBADMSG, "its data have {} at character {}, but must be base64",
             Quoted(text.substr(j, 1)), j);
      }
      group = group << 6U | digit;
    }
    bytes += static_cast<char>(group >> 16U);
    bytes += static_cast<char>(group >> 8U);
    bytes += static_cast<char>(group);
  }
  bytes.erase(bytes.size() - padding);
  return bytes;
}

}  // namespace ckptfs::zanj
