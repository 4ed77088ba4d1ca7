// A pickle is a program for a machine with a stack, a memo and some seventy opcodes of one byte,
// whose arguments follow them. Some push a literal; others pop values and push the result:
//
//   80 02           PROTO 2
//   7d              EMPTY_DICT               {}
//   58 01000000 61  BINUNICODE 'a'           {} 'a'
//   28              MARK                     {} 'a' (
//   4b 01           BININT1 1                {} 'a' ( 1
//   4b 02           BININT1 2                {} 'a' ( 1 2
//   74              TUPLE                    {} 'a' (1, 2)
//   71 00           BINPUT 0                 and now memo[0] is the same tuple
//   73              SETITEM                  {'a': (1, 2)}
//   2e              STOP
//
// A mark is a position of the stack; opcodes with any number of operands pop those above the latest
// mark. BINGET pushes an entry of the memo, so that one object can be in two places, or in itself.
// GLOBAL pushes a class or a function by its name, REDUCE calls it, BUILD sets the state of an
// object: there a real unpickler runs code chosen by the author of the pickle, and this one records
// the call. Python's pickletools documents each opcode.
//
// The values in the stack and the memo point to nodes in the arena of the graph. Nothing recurses,
// however deep the result is, and nodes are not freed one by one.

#include "parser/codec/pickle/machine.h"

#include <bit>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <limits>

#include "parser/base/error.h"
#include "parser/codec/pickle/text.h"

namespace ckptfs::pickle {
namespace {

constexpr uint8_t kLatestProtocol = 5;
constexpr uint8_t kLatestProtocolOfPython2 = 2;

constexpr size_t kNoLimit = std::numeric_limits<size_t>::max();

constexpr Kind kUnset{0xff};  // Of the entries of the memo that have not been set.

std::string_view TypeName(Kind kind) {
  constexpr std::string_view kNames[] = {
      "None",   "bool",  "int",  "int", "int",       "float", "str",    "bytes",  "bytearray",
      "global", "tuple", "list", "set", "frozenset", "dict",  "object", "object", "persistent id"};
  static_assert(std::size(kNames) == static_cast<size_t>(Kind::kPersistent) + 1);
  return kNames[static_cast<size_t>(kind)];
}

void Require(bool is_right, std::string_view what, const Value& found, std::string_view wanted) {
  if (is_right) return;
  Fail(EBADMSG, "{}: wrong type (found {}, expected {})", what, TypeName(found.kind), wanted);
}

void RequirePairs(std::span<const Value> items) {
  if (items.size() % 2 == 0) return;
  Fail(EBADMSG, "odd number of keys and values {}", items.size());
}

// Python 2's str, which is bytes there. Valid UTF-8 becomes text, as in torch.load.
Kind KindOfByteString(std::string_view bytes) { return IsText(bytes) ? Kind::kText : Kind::kBytes; }

}  // namespace

Graph Machine::Run() && {
  constexpr int kAtOnce = 64;  // Opcodes.
  budget_.WorkOnBytes(in_.remaining());
  while (!has_stopped_) {
    budget_.Work(kAtOnce);
    for (int i = 0; i < kAtOnce && !has_stopped_; ++i) Step();
  }
  graph_.consumed_ = in_.position();
  return std::move(graph_);
}

void Machine::RunPart(const Extent& part, uint64_t position) {
  is_in_parts_ = true;
  budget_.WorkOnBytes(part.length);
  auto* memory = static_cast<std::byte*>(graph_.arena_->Take(static_cast<size_t>(part.length)));
  const std::span<std::byte> bytes(memory, static_cast<size_t>(part.length));
  part.source->ReadAt(part.offset, bytes);
  in_ = OpcodeReader(bytes, static_cast<size_t>(position));
  while (in_.remaining() > 0) {
    budget_.Work(1);
    Step();
  }
}

Graph Machine::TakeGraph() && {
  graph_.consumed_ = in_.position();
  return std::move(graph_);
}

void Machine::ReadFrame() {
  const auto length = in_.Read<uint64_t>("length");
  if (!is_in_parts_) in_.CheckRemaining(length, "frame");
}

void Machine::Step() {
  const size_t position = in_.position();
  if (in_.remaining() == 0)
    Fail(EBADMSG, "unexpected end of pickle at byte {}: STOP is missing", position);
  const auto byte = in_.Read<uint8_t>("opcode");
  const Opcode& opcode = OpcodeOf(byte);
  if (opcode.run == nullptr) {
    Fail(EBADMSG, "unknown opcode {:#04x} at byte {}", byte, position);
  }
  try {
    opcode.run(*this);
  } catch (const Error& e) {
    throw WithContext(fmt::format("{} at byte {}", opcode.name, position), e);
  }
}

void Machine::SetProtocol() {
  protocol_ = in_.Read<uint8_t>("protocol");
  if (protocol_ > kLatestProtocol) {
    Fail(ENOTSUP, "unsupported protocol {} (expected 0 to {})", protocol_, kLatestProtocol);
  }
}

// Values below the result are dropped, as in Python.
void Machine::Stop() {
  graph_.root_ = Top(1).front();
  has_stopped_ = true;
}

void Machine::Refuse() { Fail(ENOTSUP, "unsupported opcode: its operand is not in the pickle"); }

void Machine::PushMark() { marks_.push_back(static_cast<uint32_t>(stack_.size())); }

// A mark may be popped like a value.
void Machine::Pop() {
  if (!marks_.empty() && marks_.back() == stack_.size()) {
    marks_.pop_back();
  } else {
    Drop(Top(1).size());
  }
}

void Machine::PopMark() { Drop(TakeMark().size()); }

void Machine::Duplicate() { Push(Value(Top(1).front())); }

// Picklers number from 0, and each PUT takes at least a byte, so no valid pickle reaches the limit,
// and the memo is no larger than the pickle.
void Machine::Put(uint64_t index) {
  const Value& value = Top(1).front();
  if (index >= in_.position()) {
    Fail(EFBIG,
         "memo index is too large (found {}, expected less than {}, the number of bytes read)",
         index, in_.position());
  }
  if (index == memo_.size()) {  // As picklers do.
    memo_.push_back(value);
    ++memo_count_;
    return;
  }
  if (index > memo_.size()) {
    Value unset;
    unset.kind = kUnset;
    memo_.resize(index + 1, unset);
  }
  if (memo_[index].kind == kUnset) ++memo_count_;
  memo_[index] = value;
}

void Machine::Get(uint64_t index) {
  if (index >= memo_.size() || memo_[index].kind == kUnset) {
    Fail(EBADMSG, "memo entry {} not found", index);
  }
  Push(memo_[index]);
}

// Protocols 0 and 1 write the booleans as numbers with a leading zero.
void Machine::PushInt() {
  const std::string_view line = in_.ReadLine("number");
  const bool is_bool = line == "00" || line == "01";
  Push(is_bool ? OfInteger(Kind::kBool, line == "01" ? 1 : 0) : OfDecimal(line));
}

void Machine::PushLong() {
  std::string_view line = in_.ReadLine("number");
  if (line.ends_with('L')) line.remove_suffix(1);
  Push(OfDecimal(line));
}

void Machine::PushFloat() { Push(OfReal(ParseFloat(in_.ReadLine("number")))); }

// The only big-endian number.
void Machine::PushDouble() {
  Push(OfReal(std::bit_cast<double>(__builtin_bswap64(in_.Read<uint64_t>("number")))));
}

void Machine::PushText(std::string_view text) {
  if (!IsText(text)) Fail(EBADMSG, "text is not UTF-8");
  Push(OfText(Kind::kText, text));
}

void Machine::PushUnicode() {
  PushParsed(Kind::kText, ParseUnicode(in_.ReadLine("text", kNoLimit), scratch_));
}

void Machine::PushByteString(std::string_view bytes) {
  Push(OfText(KindOfByteString(bytes), bytes));
}

void Machine::PushString() {
  const std::string_view bytes = ParseString(in_.ReadLine("string", kNoLimit), scratch_);
  PushParsed(KindOfByteString(bytes), bytes);
}

void Machine::PushByteArray() {
  Push(OfText(Kind::kByteArray, in_.ReadCounted<uint64_t>("bytearray")));
}

void Machine::Gather(Kind kind, size_t count) {
  Replace(count, builder_.MakeNode(kind, Top(count)));
}

void Machine::GatherMarked(Kind kind) {
  const auto items = TakeMark();
  if (kind == Kind::kDict) RequirePairs(items);
  Replace(items.size(), builder_.MakeNode(kind, items));
}

void Machine::Append() {
  const auto item = Top(1);
  AppendTo(Under(item), item, Kind::kList);
  Drop(1);
}

void Machine::AppendMarked() {
  const auto items = TakeMark();
  AppendTo(Under(items), items, Kind::kList);
  Drop(items.size());
}

void Machine::AddMarked() {
  const auto items = TakeMark();
  AppendTo(Under(items), items, Kind::kSet);
  Drop(items.size());
}

void Machine::Set() {
  const auto pair = Top(2);
  SetOn(Under(pair), pair);
  Drop(2);
}

void Machine::SetMarked() {
  const auto pairs = TakeMark();
  SetOn(Under(pairs), pairs);
  Drop(pairs.size());
}

void Machine::PushGlobal() {
  const std::string_view module = ReadName("module");
  Push(MakeGlobal({module, ReadName("name")}));
}

void Machine::StackGlobal() {
  const auto names = Top(2);
  Require(names[0].kind == Kind::kText, "module", names[0], "str");
  Require(names[1].kind == Kind::kText, "name", names[1], "str");
  Replace(2, MakeGlobal({names[0].text(), names[1].text()}));
}

void Machine::PushPersistent() { Push(Resolved(OfText(Kind::kText, ReadName("persistent id")))); }

void Machine::MakePersistent() { Replace(1, Resolved(Top(1)[0])); }

// REDUCE and NEWOBJ.
void Machine::Construct(Kind kind) {
  const auto values = Top(2);
  Require(values[1].kind == Kind::kTuple, "argument", values[1], "tuple");
  Replace(2, MakeObject(kind, values[0], values[1]));
}

void Machine::ConstructWithKeywords() {
  const auto values = Top(3);
  Require(values[1].kind == Kind::kTuple, "argument", values[1], "tuple");
  Require(values[2].kind == Kind::kDict, "keyword argument", values[2], "dict");
  const Value object = MakeObject(Kind::kNew, values[0], values[1]);
  builder_.ExtrasOf(object.node).keywords = values[2];
  Replace(3, object);
}

void Machine::Instantiate() {
  const std::string_view module = ReadName("module");
  const Value target = MakeGlobal({module, ReadName("name")});
  const auto arguments = TakeMark();
  Replace(arguments.size(), MakeInstance(target, arguments));
}

void Machine::InstantiateMarked() {
  const auto values = TakeMark();
  if (values.empty()) Fail(EBADMSG, "class not found above the MARK");
  Replace(values.size(), MakeInstance(values.front(), values.subspan(1)));
}

void Machine::Build() {
  const auto values = Top(2);
  if (IsObject(values[0])) {
    builder_.Append(builder_.ExtrasOf(values[0].node).states, values.last(1));
  } else if (values[1].kind != Kind::kNone) {
    builder_.Append(graph_.stray_states_, values);
  }
  Drop(1);
}

std::span<const Value> Machine::Top(size_t count) const {
  const size_t depth = stack_.size() - (marks_.empty() ? 0 : marks_.back());
  if (depth < count) {
    Fail(EBADMSG, "stack underflow{} (found {}, expected {})",
         marks_.empty() ? "" : " above the latest MARK", depth, count);
  }
  return std::span(stack_).last(count);
}

std::span<const Value> Machine::TakeMark() {
  if (marks_.empty()) Fail(EBADMSG, "MARK not found on the stack");
  const size_t mark = marks_.back();
  marks_.pop_back();
  return std::span(stack_).subspan(mark);
}

const Value& Machine::Under(std::span<const Value> values) const {
  return Top(values.size() + 1).front();
}

// Replaces the topmost `count` values by one.
void Machine::Replace(size_t count, Value value) {
  Drop(count);
  Push(value);
}

std::string_view Machine::ReadName(std::string_view what) {
  const std::string_view line = in_.ReadLine(what);
  if (!IsText(line)) Fail(EBADMSG, "{} is not UTF-8", what);
  return line;
}

Value Machine::MakeGlobal(GlobalNames names) {
  if (protocol_ <= kLatestProtocolOfPython2) names = Python3Names(names);
  const Value items[] = {OfText(Kind::kText, names.module), OfText(Kind::kText, names.name)};
  const Value global = builder_.MakeNode(Kind::kGlobal, items);
  builder_.Append(graph_.globals_, std::span(&global, 1));
  return global;
}

Value Machine::Resolved(const Value& id) {
  const Value persistent = builder_.MakeNode(Kind::kPersistent, std::span(&id, 1));
  return resolve_ ? resolve_(persistent) : persistent;
}

Value Machine::MakeObject(Kind kind, const Value& target, const Value& arguments) {
  const Value object = builder_.MakeObject(kind, target, arguments);
  if (keeps_calls_) builder_.Append(graph_.calls_, std::span(&object, 1));
  return object;
}

Value Machine::MakeInstance(const Value& target, std::span<const Value> arguments) {
  const Value tuple = builder_.MakeNode(Kind::kTuple, arguments);
  const Value object = MakeObject(Kind::kCall, target, tuple);
  object.node->is_inst = true;
  return object;
}

// `text` points into the pickle, which outlives the graph, or into the scratch, which does not.
void Machine::PushParsed(Kind kind, std::string_view text) {
  Push(OfText(kind, text.data() == scratch_.data() ? builder_.Keep(text) : text));
}

// `kind` is what can receive items beside objects.
void Machine::AppendTo(const Value& receiver, std::span<const Value> items, Kind kind) {
  if (items.empty()) return;
  Require(receiver.kind == kind || IsObject(receiver), "receiver", receiver, TypeName(kind));
  builder_.Append(*receiver.node, items);
}

void Machine::SetOn(const Value& receiver, std::span<const Value> pairs) {
  RequirePairs(pairs);
  if (pairs.empty()) return;
  Require(receiver.kind == Kind::kDict || IsObject(receiver), "receiver", receiver, "dict");
  builder_.Append(IsObject(receiver) ? builder_.ExtrasOf(receiver.node).pairs : *receiver.node,
                  pairs);
}

}  // namespace ckptfs::pickle
