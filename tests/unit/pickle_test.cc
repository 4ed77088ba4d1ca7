#include "parser/codec/pickle.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstddef>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "parser/base/error.h"

namespace ckptfs::pickle {
namespace {

using namespace std::string_literals;

std::string Show(const Value& value);

std::string ShowAll(std::span<const Value> values) {
  std::string shown;
  for (const Value& value : values) shown += (shown.empty() ? "" : ", ") + Show(value);
  return shown;
}

std::string ShowObject(const Object& object) {
  std::string shown = object.kind == Kind::kNew ? "new " : object.is_inst ? "instance " : "call ";
  shown += Show(object.target) + Show(object.arguments);
  if (object.keywords().kind != Kind::kNone) shown += " keywords " + Show(object.keywords());
  for (const Value& state : object.states()) shown += " state " + Show(state);
  if (!object.items().empty()) shown += " items [" + ShowAll(object.items()) + "]";
  if (!object.pairs().empty()) shown += " pairs {" + ShowAll(object.pairs()) + "}";
  return shown;
}

// A value in the manner of Python. Must have no cycles.
std::string Show(const Value& value) {
  switch (value.kind) {
    case Kind::kNone:
      return "None";
    case Kind::kBool:
      return value.integer != 0 ? "True" : "False";
    case Kind::kInt:
      return std::to_string(value.integer);
    case Kind::kBigInt:
      return "little-endian " + std::to_string(value.text().size()) + " bytes";
    case Kind::kDecimal:
      return "decimal " + std::string(value.text());
    case Kind::kFloat:
      return fmt::format("{}", value.real);
    case Kind::kText:
      return "'" + std::string(value.text()) + "'";
    case Kind::kBytes:
      return "b'" + std::string(value.text()) + "'";
    case Kind::kByteArray:
      return "bytearray '" + std::string(value.text()) + "'";
    case Kind::kGlobal:
      return GlobalName(value);
    case Kind::kTuple:
      return "(" + ShowAll(ItemsOf(value)) + ")";
    case Kind::kList:
      return "[" + ShowAll(ItemsOf(value)) + "]";
    case Kind::kSet:
      return "set(" + ShowAll(ItemsOf(value)) + ")";
    case Kind::kFrozenSet:
      return "frozenset(" + ShowAll(ItemsOf(value)) + ")";
    case Kind::kDict:
      return "{" + ShowAll(ItemsOf(value)) + "}";
    case Kind::kPersistent:
      return "persistent " + ShowAll(ItemsOf(value));
    case Kind::kCall:
    case Kind::kNew:
      return ShowObject(ObjectOf(value));
  }
  return "?";
}

// Returns the result of a pickle, or the error.
std::string Result(const std::string& pickle, uint64_t budget_size = uint64_t{1} << 20U) {
  Budget budget(budget_size);
  try {
    return Show(Load(std::as_bytes(std::span(pickle)), budget).root());
  } catch (const Error& e) {
    return e.what();
  }
}

int CodeOf(const std::string& pickle) {
  Budget budget(uint64_t{1} << 20U);
  try {
    Load(std::as_bytes(std::span(pickle)), budget);
  } catch (const Error& e) {
    return e.code();
  }
  return 0;
}

std::string Repeated(std::string_view text, size_t count) {
  std::string repeated;
  while (count-- > 0) repeated += text;
  return repeated;
}

// A graph with what it needs to live.
struct Loaded {
  explicit Loaded(std::string bytes)
      : pickle(std::move(bytes)), graph(Load(std::as_bytes(std::span(pickle)), budget)) {}

  std::string pickle;
  Budget budget{uint64_t{1} << 20U};
  Graph graph;
};

TEST(Pickle, ReadsAStateDictAsTorchWritesIt) {
  EXPECT_EQ(Result("\x80\x02}q\0X\x01\0\0\0wq\1ctorch._utils\n_rebuild_tensor_v2\nq\2((X\x07\0\0\0"
                   "storageq\3ctorch\nFloatStorage\nq\4X\x01\0\0\0"
                   "0q\5X\x03\0\0\0cpuq\6K\6tq\7QK\0K\2K\3\x86q\10K\3K\1\x86q\t\x89"
                   "ccollections\nOrderedDict\nq\n)Rq\x0btq\x0cRq\rs."s),
            "{'w', call torch._utils._rebuild_tensor_v2(persistent ('storage', torch.FloatStorage, "
            "'0', 'cpu', 6), 0, (2, 3), (3, 1), False, call collections.OrderedDict())}");
}

TEST(Pickle, StopsAtStop) {
  const Loaded loaded("N.and what follows");
  EXPECT_EQ(loaded.graph.consumed(), 2);
}

TEST(Pickle, DropsValuesBelowTheResultAsPythonDoes) { EXPECT_EQ(Result("NK\1."), "1"); }

TEST(Pickle, GivesAllMemoryBackWithTheGraph) {
  const std::string bytes = "\x80\x02](" + Repeated("K\1", 10'000) + "e.";
  Budget budget(uint64_t{1} << 20U);
  EXPECT_GT(Load(std::as_bytes(std::span(bytes)), budget).root().node->size, 0);
  EXPECT_EQ(budget.used(), 0);
}

TEST(Pickle, KeepsNothingOfStackAndMemo) {
  const std::string bytes = "\x80\x02Nq\0"s + Repeated("2", 100'000) + ".";
  Budget budget(uint64_t{8} << 20U);
  const Graph graph = Load(std::as_bytes(std::span(bytes)), budget);
  EXPECT_EQ(budget.used(), 0);
}

// Numbers.

TEST(PickleNumbers, AreReadFromBytes) {
  EXPECT_EQ(Result("(NK\xffM\xff\xffJ\xff\xff\xff\xff\x88\x89t."s),
            "(None, 255, 65535, -1, True, False)");
}
TEST(PickleNumbers, AreReadFromLines) {
  EXPECT_EQ(Result("(I0\nI-12\nL34\nL-56L\nF-1.5\nt."), "(0, -12, 34, -56, -1.5)");
}
TEST(PickleNumbers, OfTwoDigitsMayBeBooleans) {
  EXPECT_EQ(Result("(I00\nI01\nt."), "(False, True)");
}
TEST(PickleNumbers, MayBeInfiniteOrNone) {
  EXPECT_EQ(Result("(Finf\nF-inf\nFnan\nt."), "(inf, -inf, nan)");
}
TEST(PickleNumbers, AreDoublesWithTheMostSignificantByteFirst) {
  EXPECT_EQ(Result("G\xbf\xf8\0\0\0\0\0\0."s), "-1.5");
}
TEST(PickleNumbers, OfNoByteAreZero) { EXPECT_EQ(Result("\x8a\0."s), "0"); }
TEST(PickleNumbers, OfFewBytesKeepTheirSign) {
  EXPECT_EQ(Result("(\x8a\1\x80\x8a\2\x80\0\x8b\3\0\0\0\xff\xff\xfft."s), "(-128, 128, -1)");
}
TEST(PickleNumbers, OfEightBytesAreInts) {
  EXPECT_EQ(Result("\x8a\x08\0\0\0\0\0\0\0\x80."s),
            std::to_string(std::numeric_limits<int64_t>::min()));
}
TEST(PickleNumbers, OfNineBytesAreInts_IfOneOnlyRepeatsTheSign) {
  EXPECT_EQ(Result("(\x8a\x09\1\0\0\0\0\0\0\0\0\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\xfft."s),
            "(1, -1)");
}
TEST(PickleNumbers, OfNineBytesAreBigIntsOtherwise) {
  EXPECT_EQ(Result("\x8a\x09\0\0\0\0\0\0\0\x80\0."s), "little-endian 9 bytes");
}
TEST(PickleNumbers, OfNineteenDigitsMayBeInts) {
  EXPECT_EQ(Result("L9223372036854775807L\n."), "9223372036854775807");
}
TEST(PickleNumbers, BeyondSixtyFourBitsAreDecimals) {
  EXPECT_EQ(Result("(L9223372036854775808L\nI-9223372036854775809\nt."),
            "(decimal 9223372036854775808, decimal -9223372036854775809)");
}
TEST(PickleNumbers, MustBeNumbers) {
  EXPECT_EQ(Result("NI1x\n."), "INT at byte 1: '1x' is not a decimal number");
}
TEST(PickleNumbers, MustNotBeEmpty) {
  EXPECT_EQ(Result("LL\n."), "LONG at byte 0: '' is not a decimal number");
}
TEST(PickleNumbers, MustNotBeALoneMinus) {
  EXPECT_EQ(Result("L-L\n."), "LONG at byte 0: '-' is not a decimal number");
}
TEST(PickleNumbers, MustNotLookOctal) {
  EXPECT_EQ(Result("I010\n."), "INT at byte 0: '010' is not a decimal number");
}
TEST(PickleNumbers, MustBeFloatsWhereFloatsAre) {
  EXPECT_EQ(Result("F1.5.\n."),
            "FLOAT at byte 0: '1.5.' is not a floating-point number that fits in 64 bits");
}
TEST(PickleNumbers, MustFitInADouble) {
  EXPECT_EQ(Result("F1e999\n."),
            "FLOAT at byte 0: '1e999' is not a floating-point number that fits in 64 bits");
}
TEST(PickleNumbers, MustHaveAtMost4096Bytes) {
  const std::string pickle = "\x8b\1\x10\0\0"s + Repeated("\1", 4097) + ".";
  EXPECT_EQ(Result(pickle), "LONG4 at byte 0: number has 4097 bytes (maximum 4096)");
  EXPECT_EQ(CodeOf(pickle), EFBIG);
}
TEST(PickleNumbers, MustHaveAtMost4300Digits) {
  EXPECT_EQ(Result("L" + Repeated("1", 4301) + "L\n."),
            "LONG at byte 0: number has 4301 digits (maximum 4300)");
}
TEST(PickleNumbers, MustNotBeCutOff) {
  EXPECT_EQ(Result("NJ\1\2"), "BININT at byte 1: number needs 4 bytes, but only 2 are left");
}

// Texts.

TEST(PickleTexts, ComeWithEachSizeOfLength) {
  EXPECT_EQ(Result("(X\1\0\0\0a\x8c\1b\x8d\1\0\0\0\0\0\0\0ct."s), "('a', 'b', 'c')");
}
TEST(PickleTexts, MayBeBytes) {
  EXPECT_EQ(Result("(C\1cB\1\0\0\0d\x8e\1\0\0\0\0\0\0\0e\x96\1\0\0\0\0\0\0\0ft."s),
            "(b'c', b'd', b'e', bytearray 'f')");
}
TEST(PickleTexts, OfPython2AreTextsAsTorchLoadsThem) {
  EXPECT_EQ(Result("(U\1aT\1\0\0\0bt."s), "('a', 'b')");
}
TEST(PickleTexts, OfPython2AreBytesIfTheyAreNotUtf8) {
  EXPECT_EQ(Result("(U\1\xc3T\1\0\0\0\xffS'\\xe9'\nt."s), "(b'\xc3', b'\xff', b'\xe9')");
}
TEST(PickleTexts, PointIntoThePickle) {
  const Loaded loaded("X\3\0\0\0abc."s);
  EXPECT_EQ(loaded.graph.root().text().data(), loaded.pickle.data() + 5);
}
TEST(PickleTexts, MayHaveLoneSurrogates) {
  EXPECT_EQ(Result("X\3\0\0\0\xed\xa0\x80."s), "'\xed\xa0\x80'");
}
TEST(PickleTexts, MustBeUtf8) {
  EXPECT_EQ(Result("NX\2\0\0\0\xc3(."s), "BINUNICODE at byte 1: text is not UTF-8");
}
TEST(PickleTexts, MustBeThere) {
  EXPECT_EQ(Result("}}}}}}}}}}}}}}}}}X\xff\xff\xff\xff"
                   "abcdefghijkl"),
            "BINUNICODE at byte 17: text needs 4294967295 bytes, but only 12 are left");
}
TEST(PickleTexts, MustBeThereEvenIfTheirLengthIsAbsurd) {
  EXPECT_EQ(Result("\x8e\xff\xff\xff\xff\xff\xff\xff\xff"
                   "1"),
            "BINBYTES8 at byte 0: bytes needs 18446744073709551615 bytes, but only 1 are left");
}
TEST(PickleTexts, MustNotHaveANegativeLength) {
  EXPECT_EQ(Result("T\xff\xff\xff\xff."), "BINSTRING at byte 0: negative length -1");
}
TEST(PickleTexts, OfProtocol0AreInQuotes) {
  EXPECT_EQ(Result("(S'it'\nS\"it's\"\nS''\nt."), "('it', 'it's', '')");
}
TEST(PickleTexts, OfProtocol0HaveEscapes) {
  EXPECT_EQ(Result(R"(S'\x41\102\n\'\\\7\q')"
                   "\n."),
            "'AB\n'\\\a\\q'");
}
TEST(PickleTexts, OfProtocol0HaveEscapesForUnicode) {
  EXPECT_EQ(Result("Va\\u00e9\\U0001f600\xe9\\n\\\\u0041\\\n."), "'aé😀é\\n\\\\u0041\\'");
}
TEST(PickleTexts, OfProtocol0MayHaveTwoSurrogates) {
  EXPECT_EQ(Result("V\\ud83d\\ude00\n."), "'\xed\xa0\xbd\xed\xb8\x80'");
}
TEST(PickleTexts, OfProtocol0MustBeInQuotes) {
  EXPECT_EQ(Result("Sit\n."), "STRING at byte 0: 'it' is not in quotes");
}
TEST(PickleTexts, OfProtocol0MustBeInTwoQuotes) {
  EXPECT_EQ(Result("S'\n."), "STRING at byte 0: ''' is not in quotes");
}
TEST(PickleTexts, OfProtocol0MustNotEndWithinAnEscape) {
  EXPECT_EQ(Result("S'a\\'\n."), "STRING at byte 0: ''a\\'' ends in the middle of an escape");
}
TEST(PickleTexts, OfProtocol0MustHaveWholeEscapes) {
  EXPECT_EQ(Result("S'\\x4'\n."), "STRING at byte 0: '4' is not a number of 2 digits of base 16");
}
TEST(PickleTexts, OfProtocol0MustHaveCharacters) {
  EXPECT_EQ(Result("V\\U00110000\n."), "UNICODE at byte 0: U+110000 is not a character");
}
TEST(PickleTexts, OfProtocol0MustEnd) {
  EXPECT_EQ(Result("Vabc"), "UNICODE at byte 0: text does not end with a newline");
}
TEST(PickleTexts, OfProtocol0MayBeLong) {
  EXPECT_EQ(Result("V" + Repeated("a", 100'000) + "\n.").size(), 100'002);
}

// Containers.

TEST(PickleContainers, AreMadeEmpty) { EXPECT_EQ(Result("()]}\x8ft."), "((), [], {}, set())"); }
TEST(PickleContainers, AreMadeOfTheTopmostValues) {
  EXPECT_EQ(Result("K\1\x85K\2\x86K\3K\4\x87."), "(((1), 2), 3, 4)");
}
TEST(PickleContainers, AreMadeOfTheValuesAboveTheMark) {
  EXPECT_EQ(Result("((K\1t(K\2l(K\3K\4d(K\5\x91t."), "((1), [2], {3, 4}, frozenset(5))");
}
TEST(PickleContainers, AreFilledOneByOne) {
  EXPECT_EQ(Result("(]K\1aK\2a}K\3K\4st."), "([1, 2], {3, 4})");
}
TEST(PickleContainers, AreFilledAtOnce) {
  EXPECT_EQ(Result("(](K\1K\2e}(K\3K\4K\5K\6u\x8f(K\7\x90t."), "([1, 2], {3, 4, 5, 6}, set(7))");
}
TEST(PickleContainers, KeepAllThatIsPutIntoThem) {
  const Loaded loaded("](" + Repeated("K\1", 1100) + "e(" + Repeated("K\2", 900) + "eK\3a.");
  const auto items = ItemsOf(loaded.graph.root());
  ASSERT_EQ(items.size(), 2001);
  EXPECT_EQ(items[1099].integer, 1);
  EXPECT_EQ(items[1100].integer, 2);
  EXPECT_EQ(items[1999].integer, 2);
  EXPECT_EQ(items[2000].integer, 3);
}
TEST(PickleContainers, KeepAKeyThatIsSetTwice) {
  EXPECT_EQ(Result("}(K\1K\2K\1K\3u."), "{1, 2, 1, 3}");
}
TEST(PickleContainers, HaveOneEmptyTuple) {
  const Loaded loaded("(()(tt.");
  const auto items = ItemsOf(loaded.graph.root());
  EXPECT_EQ(items[0].node, items[1].node);
}
TEST(PickleContainers, MayContainThemselves) {
  const Loaded loaded("]q\0h\0a."s);
  const Value& root = loaded.graph.root();
  EXPECT_EQ(ItemsOf(root)[0].node, root.node);
}
TEST(PickleContainers, MayBeAsDeepAsThePickleIsLong) {
  const Loaded loaded("N" + Repeated("\x85", 10'000) + ".");
  size_t depth = 0;
  for (Value v = loaded.graph.root(); v.kind == Kind::kTuple; v = ItemsOf(v)[0]) ++depth;
  EXPECT_EQ(depth, 10'000);
}
TEST(PickleContainers, MustHaveAValueForEachKey) {
  EXPECT_EQ(Result("}(K\1u."), "SETITEMS at byte 4: odd number of keys and values 1");
}
TEST(PickleContainers, MustBeMadeOfPairsIfDicts) {
  EXPECT_EQ(Result("(K\1d."), "DICT at byte 3: odd number of keys and values 1");
}
TEST(PickleContainers, MustBeListsToBeAppendedTo) {
  EXPECT_EQ(Result(")Na."), "APPEND at byte 2: receiver: wrong type (found tuple, expected list)");
}
TEST(PickleContainers, MustBeDictsToHaveItemsSet) {
  EXPECT_EQ(Result("]NNs."), "SETITEM at byte 3: receiver: wrong type (found list, expected dict)");
}
TEST(PickleContainers, MustBeSetsToBeAddedTo) {
  EXPECT_EQ(Result("](N\x90."),
            "ADDITEMS at byte 3: receiver: wrong type (found list, expected set)");
}
TEST(PickleContainers, NeedNotBeSoIfNothingIsAppended) { EXPECT_EQ(Result("N(e."), "None"); }

// Names and objects.

TEST(PickleObjects, HaveClassesByName) {
  const Loaded loaded("ctorch\nFloatStorage\n.");
  EXPECT_TRUE(IsGlobal(loaded.graph.root(), "torch", "FloatStorage"));
  EXPECT_FALSE(IsGlobal(loaded.graph.root(), "torch", "HalfStorage"));
  EXPECT_FALSE(IsGlobal(loaded.graph.root(), "storch", "FloatStorage"));
}
TEST(PickleObjects, HaveClassesByNamesOnTheStack) {
  EXPECT_EQ(Result("\x80\4\x8c\1m\x8c\3a.b\x93."), "m.a.b");
}
TEST(PickleObjects, OfEarlyProtocolsHaveTheNamesOfPython3) {
  EXPECT_EQ(Result("(c__builtin__\nlong\nc__builtin__\nset\nccopy_reg\n_reconstructor\n"
                   "cexceptions\nValueError\nt."),
            "(builtins.int, builtins.set, copyreg._reconstructor, builtins.ValueError)");
}
TEST(PickleObjects, OfLateProtocolsKeepTheirNames) {
  EXPECT_EQ(Result("\x80\4\x8c\5Queue\x8c\1Q\x93."), "Queue.Q");
}
TEST(PickleObjects, AreCalls) { EXPECT_EQ(Result("cm\nf\nK\1\x85R."), "call m.f(1)"); }
TEST(PickleObjects, AreCallsOfAnything) {
  EXPECT_EQ(Result("NNN\x86R)R."), "call call None(None, None)()");
}
TEST(PickleObjects, AreNewInstances) { EXPECT_EQ(Result("cm\nC\nK\1\x85\x81."), "new m.C(1)"); }
TEST(PickleObjects, AreNewInstancesWithKeywords) {
  EXPECT_EQ(Result("cm\nC\nK\1\x85}K\2K\3s\x92."), "new m.C(1) keywords {2, 3}");
}
TEST(PickleObjects, AreInstancesOfProtocol0) {
  EXPECT_EQ(Result("(K\1K\2im\nC\n."), "instance m.C(1, 2)");
}
TEST(PickleObjects, AreInstancesOfProtocol1) {
  EXPECT_EQ(Result("(cm\nC\nK\1K\2o."), "instance m.C(1, 2)");
}
TEST(PickleObjects, GetAState) { EXPECT_EQ(Result("cm\nC\n)\x81K\1b."), "new m.C() state 1"); }
TEST(PickleObjects, KeepEachState) {
  const Loaded loaded("cm\nC\n)\x81K\1bNbK\2b.");
  EXPECT_EQ(Show(loaded.graph.root()), "new m.C() state 1 state None state 2");
  EXPECT_EQ(ObjectOf(loaded.graph.root()).state().integer, 2);
}
TEST(PickleObjects, KeepAppendedAndSetItems) {
  EXPECT_EQ(Result("cm\nC\n)RK\1a(K\2K\3e(K\4\x90K\5K\6s(K\7K\10u."),
            "call m.C() items [1, 2, 3, 4] pairs {5, 6, 7, 8}");
}
TEST(PickleObjects, MayBeUsedBeforeTheirState) {
  const Loaded loaded(
      "cm\nC\n)\x81q\0h\0\x85"
      "b."s);
  const Object& object = ObjectOf(loaded.graph.root());
  EXPECT_EQ(ItemsOf(object.state())[0].node, &object);
}
TEST(PickleObjects, MayBePersistent) {
  EXPECT_EQ(Result("(K\1\x85QPname\nt."), "(persistent (1), persistent 'name')");
}
TEST(PickleObjects, MustBeThereForAState_ElseItIsSetAside) {
  const Loaded loaded("}K\1K\2sK\3b.");
  EXPECT_EQ(Show(loaded.graph.root()), "{1, 2}");
  EXPECT_EQ(ShowAll(loaded.graph.stray_states()), "{1, 2}, 3");
}
TEST(PickleObjects, NeedNotBeThereForNoState) {
  const Loaded loaded("}Nb.");
  EXPECT_EQ(loaded.graph.stray_states().size(), 0);
}
TEST(PickleObjects, MustBeCalledWithATuple) {
  EXPECT_EQ(Result("cm\nf\n]R."),
            "REDUCE at byte 6: argument: wrong type (found list, expected tuple)");
}
TEST(PickleObjects, MustHaveADictOfKeywords) {
  EXPECT_EQ(Result("N)N\x92."),
            "NEWOBJ_EX at byte 3: keyword argument: wrong type (found None, expected dict)");
}
TEST(PickleObjects, MustHaveAClass) {
  EXPECT_EQ(Result("(o."), "OBJ at byte 1: class not found above the MARK");
}
TEST(PickleObjects, MustHaveNamesThatAreTexts) {
  EXPECT_EQ(Result("\x8c\1mK\1\x93."),
            "STACK_GLOBAL at byte 5: name: wrong type (found int, expected str)");
}
TEST(PickleObjects, MustHaveNamesInUtf8) {
  EXPECT_EQ(Result("cm\n\xff\n."), "GLOBAL at byte 0: name is not UTF-8");
}
TEST(PickleObjects, MustHaveNamesOfAtMost64Kib) {
  const std::string pickle = "c" + Repeated("m", 65'537) + "\nf\n.";
  EXPECT_EQ(Result(pickle), "GLOBAL at byte 0: module is longer than 65536 bytes");
  EXPECT_EQ(CodeOf(pickle), EFBIG);
}

// The memo.

TEST(PickleMemo, IsReadAndWrittenByEachSizeOfIndex) {
  EXPECT_EQ(Result("(]p0\nq\1r\2\0\0\0g0\nh\1j\2\0\0\0t."s), "([], [], [], [])");
}
TEST(PickleMemo, GivesTheSameObject) {
  const Loaded loaded("(]q\0h\0t."s);
  const auto items = ItemsOf(loaded.graph.root());
  EXPECT_EQ(items[0].node, items[1].node);
}
TEST(PickleMemo, CountsItsEntriesForMemoize) {
  EXPECT_EQ(Result("(K\7q\3K\10\x94h\1t."), "(7, 8, 8)");
}
TEST(PickleMemo, MayHaveAnEntryReplaced) { EXPECT_EQ(Result("(K\7q\0K\10q\0h\0t."s), "(7, 8, 8)"); }
TEST(PickleMemo, MustHaveTheEntry) {
  EXPECT_EQ(Result("Nh\7."), "BINGET at byte 1: memo entry 7 not found");
}
TEST(PickleMemo, MustHaveTheEntryInAGap) {
  EXPECT_EQ(Result("Nq\2h\1."), "BINGET at byte 3: memo entry 1 not found");
}
TEST(PickleMemo, MustNotBeLargerThanThePickle) {
  const std::string pickle = "\x80\2]r\xff\xff\xff\xff.";
  EXPECT_EQ(Result(pickle),
            "LONG_BINPUT at byte 3: memo index is too large (found 4294967295, expected less than "
            "8, the number of bytes read)");
  EXPECT_EQ(CodeOf(pickle), EFBIG);
}
TEST(PickleMemo, MustHaveNumbersAsIndices) {
  EXPECT_EQ(Result("Np-1\n."), "PUT at byte 1: '-1' is not a memo index");
}
TEST(PickleMemo, MustBeGivenAValue) {
  EXPECT_EQ(Result("q\0."s), "BINPUT at byte 0: stack underflow (found 0, expected 1)");
}

// Stack and marks.

TEST(PickleStack, IsDuplicatedAndPopped) {
  EXPECT_EQ(Result("(K\1"
                   "2K\2"
                   "0t."),
            "(1, 1)");
}
TEST(PickleStack, IsPoppedToAMark) {
  EXPECT_EQ(Result("K\1(K\2K\3"
                   "1."),
            "1");
}
TEST(PickleStack, HasMarksThatCanBePopped) { EXPECT_EQ(Result("(K\1(0t."), "(1)"); }
TEST(PickleStack, MustHaveThePoppedValues) {
  EXPECT_EQ(Result("NR."), "REDUCE at byte 1: stack underflow (found 1, expected 2)");
}
TEST(PickleStack, MustHaveItAboveTheMark) {
  EXPECT_EQ(Result("N(a."),
            "APPEND at byte 2: stack underflow above the latest MARK (found 0, expected 1)");
}
TEST(PickleStack, MustHaveAReceiverUnderTheMark) {
  EXPECT_EQ(Result("(Ne."), "APPENDS at byte 2: stack underflow (found 1, expected 2)");
}
TEST(PickleStack, MustHaveAMarkWhereOneIsTaken) {
  EXPECT_EQ(Result("Nt."), "TUPLE at byte 1: MARK not found on the stack");
}
TEST(PickleStack, MustNotBePoppedWhenEmpty) {
  EXPECT_EQ(Result("0."), "POP at byte 0: stack underflow (found 0, expected 1)");
}
TEST(PickleStack, MustHaveAResult) {
  EXPECT_EQ(Result("."), "STOP at byte 0: stack underflow (found 0, expected 1)");
}
TEST(PickleStack, MustHaveAResultAboveTheMark) {
  EXPECT_EQ(Result("N(."),
            "STOP at byte 2: stack underflow above the latest MARK (found 0, expected 1)");
}

// The program.

TEST(PickleProgram, MayHaveFrames) { EXPECT_EQ(Result("\x80\4\x95\2\0\0\0\0\0\0\0N."s), "None"); }
TEST(PickleProgram, MustHaveWholeFrames) {
  EXPECT_EQ(Result("\x95\3\0\0\0\0\0\0\0N."s),
            "FRAME at byte 0: frame needs 3 bytes, but only 2 are left");
}
TEST(PickleProgram, MustStop) {
  EXPECT_EQ(Result("N"), "unexpected end of pickle at byte 1: STOP is missing");
}
TEST(PickleProgram, MustNotBeEmpty) {
  EXPECT_EQ(Result(""), "unexpected end of pickle at byte 0: STOP is missing");
}
TEST(PickleProgram, MustHaveKnownOpcodes) {
  EXPECT_EQ(Result("}}}\xff"), "unknown opcode 0xff at byte 3");
  EXPECT_EQ(CodeOf("\xff"), EBADMSG);
}
TEST(PickleProgram, MustBeOfAKnownProtocol) {
  EXPECT_EQ(Result("\x80\6N."), "PROTO at byte 0: unsupported protocol 6 (expected 0 to 5)");
  EXPECT_EQ(CodeOf("\x80\6N."), ENOTSUP);
}
TEST(PickleProgram, MustNotNeedTheRegistryOfExtensions) {
  EXPECT_EQ(Result("\x82\1."),
            "EXT1 at byte 0: unsupported opcode: its operand is not in the pickle");
  EXPECT_EQ(CodeOf("\x82\1."), ENOTSUP);
}
TEST(PickleProgram, MustNotNeedBuffers) {
  EXPECT_EQ(Result("\x97."),
            "NEXT_BUFFER at byte 0: unsupported opcode: its operand is not in the pickle");
}
TEST(PickleProgram, MustFitInItsBudget) {
  EXPECT_EQ(Result(Repeated("]", 100'000) + "."),
            "EMPTY_LIST at byte 16384: parsing needs more than 1 MiB of memory, the limit for a "
            "file of this size");
}

}  // namespace
}  // namespace ckptfs::pickle
