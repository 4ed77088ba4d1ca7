// The machine that runs a pickle, and the table of its opcodes.

#pragma once

#include <algorithm>
#include <bit>
#include <cerrno>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory_resource>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "parser/base/error.h"
#include "parser/codec/pickle.h"
#include "parser/codec/pickle/builder.h"
#include "parser/codec/pickle/text.h"
#include "parser/io/byte_source.h"

namespace ckptfs::pickle {

static_assert(std::endian::native == std::endian::little, "port OpcodeReader::Read");

// The maximum length of a line with a name or a number. A text may be as long as the pickle.
constexpr size_t kMaxLine = size_t{64} << 10U;

// Reads opcodes and their arguments, forward through a pickle. Every read is bounds-checked. Errors
// name the item; the machine adds opcode and position.
class OpcodeReader {
 public:
  // `pickle`, or a part of one before which there are `before` bytes, must outlive the reader.
  explicit OpcodeReader(std::span<const std::byte> pickle, size_t before = 0)
      : pickle_(reinterpret_cast<const char*>(pickle.data()), pickle.size()), before_(before) {}

  // The position in the pickle.
  size_t position() const { return before_ + position_; }
  size_t remaining() const { return pickle_.size() - position_; }

  // Reads an integer, least significant byte first.
  template <std::integral T>
  T Read(std::string_view what) {
    T value;
    std::memcpy(&value, Take(sizeof(T), what).data(), sizeof(T));
    return value;
  }

  // Reads a length that is stored as T, then as many bytes. The view points into the pickle.
  template <std::integral T>
  std::string_view ReadCounted(std::string_view what) {
    const T length = Read<T>("length");
    if (std::signed_integral<T> && length < 0) Fail(EBADMSG, "negative length {}", length);
    return Take(static_cast<uint64_t>(length), what);
  }

  // Reads up to the next newline, which is not part of the result. Fails with EFBIG if there are
  // more than `limit` bytes before it.
  std::string_view ReadLine(std::string_view what, size_t limit = kMaxLine) {
    const std::string_view rest = pickle_.substr(position_);
    const size_t length = rest.substr(0, limit < rest.size() ? limit + 1 : limit).find('\n');
    if (length == std::string_view::npos) {
      if (rest.size() > limit) Fail(EFBIG, "{} is longer than {} bytes", what, limit);
      Fail(EBADMSG, "{} does not end with a newline", what);
    }
    position_ += length + 1;
    return rest.substr(0, length);
  }

  // Reads a line that is an index of the memo.
  uint64_t ReadMemoIndex() { return ParseMemoIndex(ReadLine("memo index")); }

  // Fails if fewer than `length` bytes are left.
  void CheckRemaining(uint64_t length, std::string_view what) const {
    if (length > remaining()) {
      Fail(EBADMSG, "{} needs {} bytes, but only {} are left", what, length, remaining());
    }
  }

 private:
  std::string_view Take(uint64_t length, std::string_view what) {
    CheckRemaining(length, what);
    const std::string_view taken = pickle_.substr(position_, length);
    position_ += length;
    return taken;
  }

  std::string_view pickle_;
  size_t before_;
  size_t position_ = 0;
};

class Machine;

struct Opcode {
  uint8_t byte;
  std::string_view name;  // Its name in pickletools: "BINPUT".
  void (*run)(Machine&);  // Null if there is no such opcode.
};

// Returns the opcode `byte`.
const Opcode& OpcodeOf(uint8_t byte);

// Stack, memo, and the operations of the opcodes on them. The Errors of all functions lack opcode
// and position, which Run adds.
class Machine {
 public:
  // `resolve` may be empty. It, the bytes of `pickle` and `budget` must outlive the machine.
  Machine(std::span<const std::byte> pickle, Budget& budget, const Resolve& resolve)
      : in_(pickle),
        budget_(budget),
        resolve_(resolve),
        graph_(budget),
        builder_(*graph_.arena_),
        stack_(&budget),
        marks_(&budget),
        memo_(&budget),
        scratch_(&budget) {}

  // Makes the graph list the calls from now on.
  void KeepCalls() { keeps_calls_ = true; }

  // Runs the pickle. Call once.
  Graph Run() &&;

  // Runs `part`, which begins at byte `position` of the pickle, and ends with an opcode. The
  // machine keeps a copy.
  void RunPart(const Extent& part, uint64_t position);

  // The topmost value of the stack. Throws Error(EBADMSG) if there is none.
  const Value& top() const { return Top(1).front(); }
  void ReplaceTop(const Value& value) { Replace(1, value); }

  // Returns the result of the parts; without a root unless the last one has ended with STOP. Call
  // once.
  Graph TakeGraph() &&;

  // The source of the arguments of opcodes.
  OpcodeReader& in() { return in_; }

  // Reads the length of the following opcodes, which must be complete unless the pickle is run in
  // parts.
  void ReadFrame();

  // Control.
  void SetProtocol();
  void Stop();
  [[noreturn]] static void Refuse();

  // The stack. Only opcodes that pop the latest mark access values below it.
  void Push(const Value& value) { stack_.push_back(value); }
  void PushMark();
  void Pop();
  void PopMark();
  void Duplicate();

  // The memo.
  void Put(uint64_t index);
  void Memoize() { Put(memo_count_); }
  void Get(uint64_t index);

  // Literals. Those without a parameter read it, all but PushDouble and PushByteArray as a line.
  void PushInteger(int64_t integer) { Push(OfInteger(Kind::kInt, integer)); }
  void PushInt();
  void PushLong();
  void PushFloat();
  void PushDouble();
  void PushText(std::string_view text);
  void PushUnicode();
  void PushBytes(std::string_view bytes) { Push(OfText(Kind::kBytes, bytes)); }
  void PushString();
  void PushByteString(std::string_view bytes);
  void PushByteArray();

  // Containers: empty, of the topmost values, or of those above the mark.
  void PushEmpty(Kind kind) { Push(builder_.MakeNode(kind, {})); }
  void Gather(Kind kind, size_t count);
  void GatherMarked(Kind kind);

  // Filling them: the items are topmost or above the mark, and the receiver is below them.
  void Append();
  void AppendMarked();
  void AddMarked();
  void Set();
  void SetMarked();

  // Names and objects.
  void PushGlobal();
  void StackGlobal();
  void PushPersistent();
  void MakePersistent();
  void Construct(Kind kind);
  void ConstructWithKeywords();
  void Instantiate();
  void InstantiateMarked();
  void Build();

 private:
  void Step();

  // Returns the topmost values without popping them.
  std::span<const Value> Top(size_t count) const;

  // Removes the latest mark and returns the values above it, without popping them.
  std::span<const Value> TakeMark();

  // The value under `values`, which are the topmost.
  const Value& Under(std::span<const Value> values) const;

  void Drop(size_t count) { stack_.resize(stack_.size() - count); }
  void Replace(size_t count, Value value);

  std::string_view ReadName(std::string_view what);
  Value MakeGlobal(GlobalNames names);
  Value Resolved(const Value& id);
  Value MakeObject(Kind kind, const Value& target, const Value& arguments);
  Value MakeInstance(const Value& target, std::span<const Value> arguments);
  void PushParsed(Kind kind, std::string_view text);
  void AppendTo(const Value& receiver, std::span<const Value> items, Kind kind);
  void SetOn(const Value& receiver, std::span<const Value> pairs);

  OpcodeReader in_;
  Budget& budget_;
  const Resolve& resolve_;
  Graph graph_;
  Builder builder_;
  std::pmr::vector<Value> stack_;
  std::pmr::vector<uint32_t> marks_;  // The depth of the stack at each mark.
  std::pmr::vector<Value> memo_;
  size_t memo_count_ = 0;     // Entries that have been set.
  std::pmr::string scratch_;  // For literals with escapes.
  uint8_t protocol_ = 0;
  bool has_stopped_ = false;
  bool is_in_parts_ = false;
  bool keeps_calls_ = false;
};

}  // namespace ckptfs::pickle
