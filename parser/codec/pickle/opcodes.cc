// The table of opcodes. The machine implements them, and pickletools describes them at length.

#include <array>

#include "parser/codec/pickle/machine.h"

namespace ckptfs::pickle {
namespace {

using M = Machine;

constexpr Opcode kOpcodes[] = {
    // Control.
    {0x80, "PROTO", [](M& m) { m.SetProtocol(); }},
    {0x95, "FRAME", [](M& m) { m.ReadFrame(); }},
    {'.', "STOP", [](M& m) { m.Stop(); }},
    {0x82, "EXT1", [](M&) { M::Refuse(); }},
    {0x83, "EXT2", [](M&) { M::Refuse(); }},
    {0x84, "EXT4", [](M&) { M::Refuse(); }},
    {0x97, "NEXT_BUFFER", [](M&) { M::Refuse(); }},
    {0x98, "READONLY_BUFFER", [](M&) { M::Refuse(); }},

    // Stack and memo.
    {'(', "MARK", [](M& m) { m.PushMark(); }},
    {'0', "POP", [](M& m) { m.Pop(); }},
    {'1', "POP_MARK", [](M& m) { m.PopMark(); }},
    {'2', "DUP", [](M& m) { m.Duplicate(); }},
    {'p', "PUT", [](M& m) { m.Put(m.in().ReadMemoIndex()); }},
    {'q', "BINPUT", [](M& m) { m.Put(m.in().Read<uint8_t>("memo index")); }},
    {'r', "LONG_BINPUT", [](M& m) { m.Put(m.in().Read<uint32_t>("memo index")); }},
    {0x94, "MEMOIZE", [](M& m) { m.Memoize(); }},
    {'g', "GET", [](M& m) { m.Get(m.in().ReadMemoIndex()); }},
    {'h', "BINGET", [](M& m) { m.Get(m.in().Read<uint8_t>("memo index")); }},
    {'j', "LONG_BINGET", [](M& m) { m.Get(m.in().Read<uint32_t>("memo index")); }},

    // Constants and numbers.
    {'N', "NONE", [](M& m) { m.Push({}); }},
    {0x88, "NEWTRUE", [](M& m) { m.Push(OfInteger(Kind::kBool, 1)); }},
    {0x89, "NEWFALSE", [](M& m) { m.Push(OfInteger(Kind::kBool, 0)); }},
    {'I', "INT", [](M& m) { m.PushInt(); }},
    {'L', "LONG", [](M& m) { m.PushLong(); }},
    {'K', "BININT1", [](M& m) { m.PushInteger(m.in().Read<uint8_t>("number")); }},
    {'M', "BININT2", [](M& m) { m.PushInteger(m.in().Read<uint16_t>("number")); }},
    {'J', "BININT", [](M& m) { m.PushInteger(m.in().Read<int32_t>("number")); }},
    {0x8a, "LONG1", [](M& m) { m.Push(OfTwosComplement(m.in().ReadCounted<uint8_t>("number"))); }},
    {0x8b, "LONG4", [](M& m) { m.Push(OfTwosComplement(m.in().ReadCounted<int32_t>("number"))); }},
    {'F', "FLOAT", [](M& m) { m.PushFloat(); }},
    {'G', "BINFLOAT", [](M& m) { m.PushDouble(); }},

    // Texts and bytes.
    {'S', "STRING", [](M& m) { m.PushString(); }},
    {'T', "BINSTRING", [](M& m) { m.PushByteString(m.in().ReadCounted<int32_t>("string")); }},
    {'U', "SHORT_BINSTRING", [](M& m) { m.PushByteString(m.in().ReadCounted<uint8_t>("string")); }},
    {'V', "UNICODE", [](M& m) { m.PushUnicode(); }},
    {'X', "BINUNICODE", [](M& m) { m.PushText(m.in().ReadCounted<uint32_t>("text")); }},
    {0x8c, "SHORT_BINUNICODE", [](M& m) { m.PushText(m.in().ReadCounted<uint8_t>("text")); }},
    {0x8d, "BINUNICODE8", [](M& m) { m.PushText(m.in().ReadCounted<uint64_t>("text")); }},
    {'C', "SHORT_BINBYTES", [](M& m) { m.PushBytes(m.in().ReadCounted<uint8_t>("bytes")); }},
    {'B', "BINBYTES", [](M& m) { m.PushBytes(m.in().ReadCounted<uint32_t>("bytes")); }},
    {0x8e, "BINBYTES8", [](M& m) { m.PushBytes(m.in().ReadCounted<uint64_t>("bytes")); }},
    {0x96, "BYTEARRAY8", [](M& m) { m.PushByteArray(); }},

    // Containers.
    {')', "EMPTY_TUPLE", [](M& m) { m.PushEmpty(Kind::kTuple); }},
    {']', "EMPTY_LIST", [](M& m) { m.PushEmpty(Kind::kList); }},
    {'}', "EMPTY_DICT", [](M& m) { m.PushEmpty(Kind::kDict); }},
    {0x8f, "EMPTY_SET", [](M& m) { m.PushEmpty(Kind::kSet); }},
    {0x85, "TUPLE1", [](M& m) { m.Gather(Kind::kTuple, 1); }},
    {0x86, "TUPLE2", [](M& m) { m.Gather(Kind::kTuple, 2); }},
    {0x87, "TUPLE3", [](M& m) { m.Gather(Kind::kTuple, 3); }},
    {'t', "TUPLE", [](M& m) { m.GatherMarked(Kind::kTuple); }},
    {'l', "LIST", [](M& m) { m.GatherMarked(Kind::kList); }},
    {'d', "DICT", [](M& m) { m.GatherMarked(Kind::kDict); }},
    {0x91, "FROZENSET", [](M& m) { m.GatherMarked(Kind::kFrozenSet); }},
    {'a', "APPEND", [](M& m) { m.Append(); }},
    {'e', "APPENDS", [](M& m) { m.AppendMarked(); }},
    {0x90, "ADDITEMS", [](M& m) { m.AddMarked(); }},
    {'s', "SETITEM", [](M& m) { m.Set(); }},
    {'u', "SETITEMS", [](M& m) { m.SetMarked(); }},

    // Names and objects.
    {'c', "GLOBAL", [](M& m) { m.PushGlobal(); }},
    {0x93, "STACK_GLOBAL", [](M& m) { m.StackGlobal(); }},
    {'P', "PERSID", [](M& m) { m.PushPersistent(); }},
    {'Q', "BINPERSID", [](M& m) { m.MakePersistent(); }},
    {'R', "REDUCE", [](M& m) { m.Construct(Kind::kCall); }},
    {0x81, "NEWOBJ", [](M& m) { m.Construct(Kind::kNew); }},
    {0x92, "NEWOBJ_EX", [](M& m) { m.ConstructWithKeywords(); }},
    {'i', "INST", [](M& m) { m.Instantiate(); }},
    {'o', "OBJ", [](M& m) { m.InstantiateMarked(); }},
    {'b', "BUILD", [](M& m) { m.Build(); }},
};

constexpr auto kByByte = [] {
  std::array<Opcode, 256> by_byte = {};
  for (const Opcode& opcode : kOpcodes) by_byte[opcode.byte] = opcode;
  return by_byte;
}();

}  // namespace

const Opcode& OpcodeOf(uint8_t byte) { return kByByte[byte]; }

}  // namespace ckptfs::pickle
