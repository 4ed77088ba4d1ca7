// JSON documents in memory.
//
// A tree of nodes would take many times the memory of the text. A document is a byte string similar
// to the text, in which each value begins with its kind, and lists and objects contain their end,
// so that they can be skipped: a number takes nine bytes, a text its own length.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "parser/base/budget.h"
#include "parser/codec/json_reader.h"
#include "parser/io/byte_source.h"

namespace ckptfs::json {

// A value in a document, which must outlive it. Cheap to copy.
class Node {
 public:
  enum class Kind : uint8_t {
    kNull,
    kFalse,
    kTrue,
    kWhole,     // 0 to 2^64 - 1.
    kNegative,  // Down to -2^63.
    kBig,       // An integer beyond these; `text` has its digits.
    kDouble,    // Also NaN and infinities.
    kText,
    kList,
    kObject,
  };

  // The value at `begin` of a document.
  Node(const char* document, size_t begin) : document_(document), begin_(begin) {}

  Kind kind() const { return static_cast<Kind>(document_[begin_]); }
  bool is_object() const { return kind() == Kind::kObject; }
  bool is_list() const { return kind() == Kind::kList; }
  bool is_text() const { return kind() == Kind::kText; }

  // The value of a node. Precondition: its kind is the one with that name.
  uint64_t whole() const;
  int64_t negative() const;
  double number() const;
  std::string_view text() const;  // Of kText and kBig. UTF-8, but for lone surrogates.
  size_t count() const;           // Items of a list or members of an object.

  // Returns the last member with that key, as in Python; nothing if it is missing or if this is not
  // an object.
  std::optional<Node> Find(std::string_view key) const;

  // The range of the value in the document; `end` is exclusive.
  size_t begin() const { return begin_; }
  size_t end() const;

 private:
  friend class Items;
  friend class Members;

  const char* document_;
  size_t begin_;
};

// Iterates over the items of a list.
class Items {
 public:
  explicit Items(Node list);

  // Returns the next one; nothing at the end.
  std::optional<Node> Next();

 private:
  Node next_;
  size_t end_;
};

// Iterates over the members of an object. Keys may be repeated.
class Members {
 public:
  struct Member {
    std::string_view key;
    Node value;
  };

  explicit Members(Node object);

  // Returns the next one; nothing at the end.
  std::optional<Member> Next();

 private:
  Node next_;
  size_t end_;
};

// Returns the members of `object` with unique keys, as in Python's dict: a repeated key is at its
// first position, with its last value. Throws Error(EFBIG).
std::pmr::vector<Members::Member> UniqueMembers(Node object, Budget& budget);

// Appends a scalar as strict JSON: NaN, infinities and integers beyond 64 bits become strings.
// Returns the type in Python of such a string, "int" or "float"; else an empty text.
std::string_view AppendLeaf(std::string& out, Node leaf);

// Appends `list`; `append(index, item)` appends each item.
template <typename Append>
void AppendList(std::string& out, Node list, const Append& append) {
  out += '[';
  Items items(list);
  for (size_t index = 0; const auto item = items.Next(); ++index) {
    if (index > 0) out += ',';
    append(index, *item);
  }
  out += ']';
}

// A visitor that builds a document. Its memory is charged to the budget.
class Document final : public Visitor {
 public:
  explicit Document(Budget& budget) : bytes_(&budget), open_(&budget) {}

  // Parses `extent` as one value in Python's dialect. Throws Error as json::Read does.
  static Document Of(const Extent& extent, Budget& budget);

  // Parses JSON lines as one list.
  static Document OfLines(const Extent& extent, Budget& budget);

  // The value. Invalidated when the visitor receives more.
  Node root() const { return {bytes_.data(), 0}; }

  void Begin(bool is_object) override;
  void End(bool is_object) override;
  void Key(std::string& key) override;
  void Text(std::string& text) override;
  void Whole(uint64_t number) override;
  void Other(std::string_view json) override;

 private:
  void Add(Node::Kind kind);
  void AddNumber(Node::Kind kind, uint64_t bits);
  void AddText(std::string_view text);
  void AddBits(uint64_t bits);

  std::pmr::string bytes_;
  std::pmr::vector<size_t> open_;  // The begins of open lists and objects.
};

// A visitor that writes strict JSON in ASCII, without white space.
class Copy final : public Visitor {
 public:
  void Begin(bool is_object) override;
  void End(bool is_object) override;
  void Key(std::string& key) override;
  void Text(std::string& text) override;
  void Whole(uint64_t number) override;
  void Other(std::string_view json) override;

  // The JSON received so far.
  const std::string& json() const { return json_; }

 private:
  // Appends a comma unless this is the first value.
  void Separate();

  std::string json_;
};

}  // namespace ckptfs::json
