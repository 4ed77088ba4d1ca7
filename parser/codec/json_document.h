// A text in JSON as a tree that can be looked at again and again.
//
// A tree of usual nodes takes many times the memory of its text. This one is a string of bytes much
// like the text, in which each value tells what it is and each list and object where it ends, so
// that one can step over it: a number takes nine bytes, a text its own length.

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
    kBig,       // An integer beyond these; `text` is how it is written.
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

  // What kinds have that are named so. Precondition: it is one.
  uint64_t whole() const;
  int64_t negative() const;
  double number() const;
  std::string_view text() const;  // Of kText and kBig. UTF-8, but for lone surrogates.
  size_t count() const;           // Items of a list or members of an object.

  // The last member with that key, as Python has it; nothing if there is none or if this is no
  // object.
  std::optional<Node> Find(std::string_view key) const;

  // Where the value is in the document, from `begin` to before `end`: what is inside of it is in
  // between.
  size_t begin() const { return begin_; }
  size_t end() const;

 private:
  friend class Items;
  friend class Members;

  const char* document_;
  size_t begin_;
};

// The items of a list, one after another.
class Items {
 public:
  explicit Items(Node list);

  // Returns the next one; nothing at the end.
  std::optional<Node> Next();

 private:
  Node next_;
  size_t end_;
};

// The members of an object, one after another. A key may come twice.
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

// The members of `object` as Python's dict has them, each key once: in the place of the first one,
// with the value of the last one. Throws Error(EFBIG).
std::pmr::vector<Members::Member> UniqueMembers(Node object, Budget& budget);

// Appends a value that has no others in it as strict JSON: NaN, infinities and integers beyond 64
// bits as texts. Returns the type in Python of what is a text for that reason, "int" or "float";
// else nothing.
std::string_view AppendLeaf(std::string& out, Node leaf);

// Keeps what it is told of. Its memory is the budget's.
class Document final : public Visitor {
 public:
  explicit Document(Budget& budget) : bytes_(&budget), open_(&budget) {}

  // Reads the value that `extent` is, in Python's dialect. Throws Error as json::Read does.
  static Document Of(const Extent& extent, Budget& budget);

  // Reads the values that `extent` is one after another, as one list.
  static Document OfLines(const Extent& extent, Budget& budget);

  // The value. Is good until the document is told more.
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
  std::pmr::vector<size_t> open_;  // Where lists and objects begin that are not at their end.
};

}  // namespace ckptfs::json
