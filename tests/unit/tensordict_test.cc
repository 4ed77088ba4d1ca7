#include "fs/tensordict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "fs/tensordict_meta.h"
#include "fs/tensordict_names.h"
#include "parser/base/error.h"
#include "parser/io/simple_sources.h"
#include "tests/support/sources.h"

namespace ckptfs {
namespace {

using Json = nlohmann::ordered_json;
using testing::ElementsAre;
using testing::IsSupersetOf;
using testing::Pair;
using testing::ThrowsMessage;
using testing::UnorderedElementsAre;

const ByteSourcePtr kSource = std::make_shared<MemorySource>("0123456789");

// Bytes of kSource; tensors are distinguished by their lengths.
Tensor Bytes(uint64_t length = 2) {
  return {.dtype = Dtype::kUint8, .shape = {length}, .data = {kSource, 0, length}};
}

Member TensorMember(std::string key, Tensor tensor = Bytes()) {
  return {.key = {.text = std::move(key)}, .content = std::move(tensor)};
}

Member ValueMember(std::string key, Value value = {.json = "1"}) {
  return {.key = {.text = std::move(key)}, .content = std::move(value)};
}

// A table whose lines are the first bytes of kSource.
Table Lines(uint64_t length) {
  Table table{.data = {kSource, 0, length}, .python_type = "list", .member = "t"};
  table.annotations.emplace_back("rows", "3");
  return table;
}

Member TableMember(std::string key, uint64_t length = 4) {
  return {.key = {.text = std::move(key)}, .content = Lines(length)};
}

template <typename... Members>
Member GroupMember(std::string key, Members... members) {
  auto group = std::make_unique<Group>();
  (group->members.push_back(std::move(members)), ...);
  return {.key = {.text = std::move(key)}, .content = std::move(group)};
}

Member WithKind(Key::Kind kind, Member member) {
  member.key.kind = kind;
  return member;
}

template <typename... Members>
Checkpoint CheckpointOf(Members... members) {
  Checkpoint checkpoint;
  checkpoint.format = "test";
  (checkpoint.root.members.push_back(std::move(members)), ...);
  return checkpoint;
}

// A mount without a kernel.
class Mounted {
 public:
  explicit Mounted(Checkpoint checkpoint, const LayoutOptions& options = {})
      : tree_(LayOut(std::move(checkpoint), options)) {}

  const Tree& tree() const { return tree_; }

  // Paths of all listed files except meta.json.
  std::vector<std::string> Files() const {
    std::vector<std::string> paths;
    List(Tree::kRoot, "", paths);
    return paths;
  }

  // Throws if it does not exist. Names are looked up one by one.
  uint64_t Number(std::string_view path) const {
    uint64_t number = Tree::kRoot;
    while (!path.empty()) {
      const size_t slash = std::min(path.find('/'), path.size());
      number = tree_.Lookup(number, path.substr(0, slash));
      if (number == 0) throw std::runtime_error("no such file");
      path.remove_prefix(std::min(slash + 1, path.size()));
    }
    return number;
  }

  uint64_t Length(std::string_view path) const { return tree_.Find(Number(path))->length; }

  std::string Text(std::string_view path) const {
    const Inode& file = *tree_.Find(Number(path));
    return ReadString({file.source, file.offset, file.length});
  }

  // Of tensors.jsonl.
  std::vector<Json> Lines() const {
    std::vector<Json> lines;
    std::istringstream text(Text(std::string(kIndexName)));
    for (std::string line; std::getline(text, line);) lines.push_back(Json::parse(line));
    return lines;
  }

  Json Meta(const std::string& directory = "") const {
    return Json::parse(Text(directory + (directory.empty() ? "meta.json" : "/meta.json")));
  }

 private:
  void List(uint64_t number, const std::string& path, std::vector<std::string>& paths) const {
    for (const Entry& entry : tree_.Entries(*tree_.Find(number))) {
      if (!entry.is_listed) continue;
      const std::string child = path + std::string(entry.name);
      const bool is_directory = tree_.Find(entry.inode)->is_directory();
      if (is_directory) List(entry.inode, child + "/", paths);
      if (!is_directory && entry.name != kMetaName) paths.push_back(child);
    }
  }

  const Tree tree_;
};

std::vector<std::string> Keys(const Json& meta) {
  std::vector<std::string> keys;
  for (const auto& [key, entry] : meta.items()) {
    if (entry.is_object() && key != kSummaryKey) keys.push_back(key);
  }
  return keys;
}

// Files of a checkpoint that has tensors with these keys.
template <typename... Names>
std::vector<std::string> FilesOf(Names... names) {
  return Mounted(CheckpointOf(TensorMember(names)...)).Files();
}

TEST(Layout, SplitsKeysAtDots) {
  EXPECT_THAT(FilesOf("h.0.attn.weight", "h.0.attn.bias", "wte.weight"),
              ElementsAre("h/0/attn/bias.memmap", "h/0/attn/weight.memmap", "wte/weight.memmap"));
}

TEST(Layout, SplitsNoKeysIfFlat) {
  EXPECT_THAT(Mounted(CheckpointOf(TensorMember("a.b"), GroupMember("c.d", TensorMember("e.f"))),
                      {.is_flat = true})
                  .Files(),
              ElementsAre("a.b.memmap", "c.d/e.f.memmap"));
}

TEST(Layout, KeepsADottedRestWholeBesideATensor) {
  EXPECT_THAT(FilesOf("a.b.c", "a"), ElementsAre("a.b.c.memmap", "a.memmap"));
  EXPECT_THAT(FilesOf("a.b", "a.b.c"), ElementsAre("a/b.c.memmap", "a/b.memmap"));
}

TEST(Layout, KeepsADottedRestWholeBesideADict) {
  EXPECT_THAT(
      Mounted(CheckpointOf(GroupMember("a", TensorMember("x")), TensorMember("a.b"))).Files(),
      ElementsAre("a/x.memmap", "a.b.memmap"));
}

TEST(Layout, KeepsADottedRestWholeBesideAValue) {
  EXPECT_THAT(Mounted(CheckpointOf(TensorMember("a.b"), ValueMember("a"))).Files(),
              ElementsAre("a.b.memmap"));
}

TEST(Layout, KeepsADottedRestWholeBesideANumber) {
  EXPECT_THAT(
      Mounted(CheckpointOf(TensorMember("1.w"), WithKind(Key::Kind::kNumber, TensorMember("1"))))
          .Files(),
      ElementsAre("1.memmap", "1.w.memmap"));
}

TEST(Layout, DoesNotMergeADictWithADottedPath) {
  const Mounted mounted(CheckpointOf(GroupMember("a.b", TensorMember("x")), TensorMember("a.b.y"),
                                     TensorMember("a.c")));
  EXPECT_THAT(mounted.Files(), ElementsAre("a/b/x.memmap", "a/b.y.memmap", "a/c.memmap"));
}

TEST(Layout, SplitsTheKeysOfDictsAndValues) {
  const Mounted mounted(CheckpointOf(GroupMember("a.b", TensorMember("c.d")), ValueMember("a.v")));
  EXPECT_THAT(mounted.Files(), ElementsAre("a/b/c/d.memmap"));
  EXPECT_EQ(mounted.Meta("a/v")["data"], 1);
}

TEST(Layout, DoesNotSplitNumbersAndTuples) {
  EXPECT_THAT(Mounted(CheckpointOf(WithKind(Key::Kind::kOther, TensorMember("(1.5,2)")),
                                   WithKind(Key::Kind::kNumber, TensorMember("2.5"))))
                  .Files(),
              ElementsAre("(1.5,2).memmap", "2.5.memmap"));
}

TEST(Layout, DoesNotSplitWhereAPartWouldBeEmpty) {
  EXPECT_THAT(FilesOf(".a"), ElementsAre(".a.memmap"));
  EXPECT_THAT(FilesOf("a."), ElementsAre("a..memmap"));
  EXPECT_THAT(FilesOf("a..b"), ElementsAre("a/.b.memmap"));
  EXPECT_THAT(FilesOf("..."), ElementsAre("....memmap"));
}

TEST(Layout, DoesNotSplitOffReservedWords) {
  EXPECT_THAT(FilesOf("a.b.shape"), ElementsAre("a/b.shape.memmap"));
  EXPECT_THAT(FilesOf("a.device.b"), ElementsAre("a/device.b.memmap"));
  EXPECT_THAT(FilesOf("_type.b.c"), ElementsAre("_type.b.c.memmap"));
  EXPECT_THAT(FilesOf("a._ckptfs"), ElementsAre("a._ckptfs.memmap"));
}

TEST(Layout, SplitsAKeyIntoAtMost32Parts) {
  std::string key = "x";
  std::string path;
  for (int i = 1; i < 40; ++i) key += ".x";
  for (int i = 1; i < 32; ++i) path += "x/";
  EXPECT_THAT(FilesOf(key), ElementsAre(path + "x.x.x.x.x.x.x.x.x.memmap"));
}

TEST(Layout, MakesNoMoreDirectoriesOfDotsThanHonestKeysNeed) {
  Checkpoint checkpoint;
  for (int i = 1000; i < 2000; ++i) {
    checkpoint.root.members.push_back(
        TensorMember(std::to_string(i) + ".a.b.c.d.e.f.g.h.i.j.k.l.m.n"));
  }
  const Mounted mounted(std::move(checkpoint));
  EXPECT_NO_THROW(mounted.Number("1000/a/b/c/d/e/f/g/h/i/j/k/l/m/n.memmap"));
  EXPECT_NO_THROW(mounted.Number("1999.a.b.c.d.e.f.g.h.i.j.k.l.m.n.memmap"));
  EXPECT_LT(mounted.tree().inode_count(), 2 * (4096 + 8 * 1000) + 2 * 1000);
}

TEST(Layout, KeepsTheOrderOfTheCheckpoint) {
  const Mounted mounted(CheckpointOf(TensorMember("z"), TensorMember("m.b"), ValueMember("y"),
                                     TensorMember("m.a"), TensorMember("a")));
  EXPECT_THAT(Keys(mounted.Meta()), ElementsAre("z", "m", "y", "a"));
  EXPECT_THAT(Keys(mounted.Meta("m")), ElementsAre("b", "a"));
}

TEST(Layout, FindsTensorsByTheirWholeKeys) {
  const Mounted mounted(CheckpointOf(TensorMember("h.0.attn.bias")));
  EXPECT_EQ(mounted.Number("h.0.attn.bias.memmap"), mounted.Number("h/0/attn/bias.memmap"));
  EXPECT_EQ(mounted.Number("h/0.attn.bias.memmap"), mounted.Number("h/0/attn/bias.memmap"));
}

TEST(Layout, GroupsMayBeNestedDeeply) {
  Member member = TensorMember("x");
  for (int i = 0; i < 1000; ++i) member = GroupMember("d", std::move(member));
  std::string path;
  for (int i = 0; i < 1000; ++i) path += "d/";
  EXPECT_THAT(Mounted(CheckpointOf(std::move(member))).Files(), ElementsAre(path + "x.memmap"));
}

TEST(Layout, AnEmptyCheckpointIsAnEmptyTensorDict) {
  EXPECT_EQ(Mounted(CheckpointOf(), {.version = "1.2"}).Text("meta.json"),
            R"({"shape":[],"device":"cpu","_type":"<class 'tensordict._td.TensorDict'>",)"
            R"("_ckptfs":{"version":"1.2","format":"test"}})");
}

TEST(Names, EncodesWhatTensorDictEncodes) {
  EXPECT_EQ(EncodeKey("layer-0_w.\xC3\xA9"), "layer-0_w.\xC3\xA9");
  EXPECT_EQ(EncodeKey("a/b c"), "a%2Fb%20c");
  EXPECT_EQ(EncodeKey("<>:\"|?*\\%"), "%3C%3E%3A%22%7C%3F%2A%5C%25");
  EXPECT_EQ(EncodeKey(std::string_view("\0\n\x1f\x7f", 4)), "%00%0A%1F%7F");
}

TEST(Names, EncodesInvalidNames) {
  EXPECT_EQ(EncodeKey(""), "%");
  EXPECT_EQ(EncodeKey("."), "%2E");
  EXPECT_EQ(EncodeKey(".."), "%2E%2E");
  EXPECT_EQ(EncodeKey("..."), "...");
}

TEST(Names, ListsATensorUnderItsEncodedNameAndOpensItUnderBoth) {
  const Mounted mounted(CheckpointOf(TensorMember("a b", Bytes(3))));
  EXPECT_THAT(mounted.Files(), ElementsAre("a%20b.memmap"));
  EXPECT_EQ(mounted.Number("a b.memmap"), mounted.Number("a%20b.memmap"));
  EXPECT_EQ(mounted.tree().Find(mounted.Number("a b.memmap"))->links, 1U);
  EXPECT_THAT(Keys(mounted.Meta()), ElementsAre("a b"));
}

TEST(Names, OpensATensorWithoutANameUnderBothNames) {
  const Mounted mounted(CheckpointOf(TensorMember("", Bytes(1)), TensorMember(".", Bytes(2)),
                                     TensorMember("..", Bytes(3))));
  EXPECT_THAT(mounted.Files(), ElementsAre("%.memmap", "%2E%2E.memmap", "%2E.memmap"));
  EXPECT_EQ(mounted.Length(".memmap"), 1U);
  EXPECT_EQ(mounted.Length("..memmap"), 2U);
  EXPECT_EQ(mounted.Length("...memmap"), 3U);
}

// tensordict looks for the first of a file's names, and for the raw name of the directory.
TEST(Names, EncodesWhatCommandsATerminalInListingsOnly) {
  const Mounted mounted(CheckpointOf(TensorMember("\xE2\x80\xAE b", Bytes(1)),
                                     TensorMember("\xC2\x9B", Bytes(2)),
                                     GroupMember("\x1B[2J", TensorMember("x", Bytes(3))),
                                     GroupMember("\xE2\x80\xA8 d", TensorMember("x", Bytes(4)))));
  EXPECT_THAT(mounted.Files(), ElementsAre("%1B[2J/x.memmap", "%C2%9B.memmap",
                                           "%E2%80%A8%20d/x.memmap", "%E2%80%AE%20b.memmap"));
  EXPECT_EQ(mounted.Length("\xE2\x80\xAE%20b.memmap"), 1U);
  EXPECT_EQ(mounted.Length("\xE2\x80\xAE b.memmap"), 1U);
  EXPECT_EQ(mounted.Length("\xC2\x9B.memmap"), 2U);
  EXPECT_EQ(mounted.Length("\x1B[2J/x.memmap"), 3U);
  EXPECT_EQ(mounted.Length("\xE2\x80\xA8 d/x.memmap"), 4U);
  EXPECT_EQ(mounted.Length("\xE2\x80\xA8%20d/x.memmap"), 4U);
  EXPECT_EQ(mounted.tree().Find(Tree::kRoot)->links, 4U);
}

TEST(Names, OfTheIndexIsTakenInTheRootOnly) {
  const Mounted mounted(
      CheckpointOf(TableMember("tensors"), GroupMember("tensors.jsonl", TensorMember("x")),
                   GroupMember("g", TableMember("tensors"))),
      {.is_flat = true});
  EXPECT_THAT(mounted.Files(),
              ElementsAre("g/tensors.jsonl", "tensors.jsonl_/x.memmap", "tensors_.jsonl"));
  EXPECT_EQ(mounted.Lines().size(), 3U);
  EXPECT_EQ(mounted.Lines()[0]["key"], "tensors");
  EXPECT_EQ(mounted.Lines()[0]["path"], "tensors_.jsonl");
}

TEST(Names, ShowsNoRawNameThatIsNone) {
  EXPECT_THAT(FilesOf("a/b"), ElementsAre("a%2Fb.memmap"));
  EXPECT_THAT(FilesOf("../../etc/passwd"), ElementsAre("..%2F..%2Fetc%2Fpasswd.memmap"));
  EXPECT_THAT(FilesOf(std::string("a\0b", 3)), ElementsAre("a%00b.memmap"));
}

TEST(Names, AnEncodedNameComesBeforeARawOne) {
  const Mounted mounted(
      CheckpointOf(TensorMember("a%2Fb", Bytes(4)), TensorMember("a/b", Bytes(3))));
  EXPECT_THAT(mounted.Files(), ElementsAre("a%252Fb.memmap", "a%2Fb.memmap"));
  EXPECT_EQ(mounted.Length("a%2Fb.memmap"), 3U);
  EXPECT_EQ(mounted.Length("a%252Fb.memmap"), 4U);
}

TEST(Names, ShowsAnOddTensorBesideAnOddDirectory) {
  const Mounted mounted(
      CheckpointOf(TensorMember("a%2Fb", Bytes(4)), GroupMember("a/b.memmap", TensorMember("x"))),
      {.is_flat = true});
  EXPECT_THAT(mounted.Files(), ElementsAre("a%252Fb.memmap", "a%2Fb.memmap/x.memmap"));
}

TEST(Names, ADirectoryHasTheNameThatEveryVersionFinds) {
  EXPECT_THAT(FilesOf("a b.x"), ElementsAre("a b/x.memmap"));
  EXPECT_THAT(FilesOf("a*.x"), ElementsAre("a*/x.memmap"));
}

TEST(Names, ADirectoryIsEncodedWhereNewVersionsWouldNotLookForItsKey) {
  EXPECT_THAT(FilesOf("c/d.x"), ElementsAre("c%2Fd/x.memmap"));
  EXPECT_THAT(FilesOf("c\\d.x"), ElementsAre("c%5Cd/x.memmap"));
  EXPECT_THAT(FilesOf("C:d.x"), ElementsAre("C%3Ad/x.memmap"));
  EXPECT_THAT(FilesOf("\xC3\xA9:d.x"), ElementsAre("\xC3\xA9%3Ad/x.memmap"));
  EXPECT_THAT(FilesOf("ab:d.x"), ElementsAre("ab:d/x.memmap"));
  EXPECT_THAT(FilesOf("e%.x"), ElementsAre("e%25/x.memmap"));
  EXPECT_THAT(Mounted(CheckpointOf(GroupMember("..", TensorMember("x")))).Files(),
              ElementsAre("%2E%2E/x.memmap"));
  EXPECT_THAT(Mounted(CheckpointOf(GroupMember("", TensorMember("x")))).Files(),
              ElementsAre("%/x.memmap"));
}

TEST(Names, AReservedWordGetsUnderscores) {
  const Mounted mounted(CheckpointOf(TensorMember("shape"), TensorMember("device"),
                                     ValueMember("_type"),
                                     GroupMember("_ckptfs", TensorMember("x"))));
  EXPECT_THAT(mounted.Files(), ElementsAre("_ckptfs_/x.memmap", "device_.memmap", "shape_.memmap"));
  const Json meta = mounted.Meta();
  EXPECT_EQ(meta["shape_"]["key"], "shape");
  EXPECT_EQ(meta["device_"]["key"], "device");
  EXPECT_EQ(meta["_type_"]["key"], "_type");
  EXPECT_EQ(meta["_ckptfs_"]["key"], "_ckptfs");
  EXPECT_EQ(meta["shape"], Json::array());
  EXPECT_EQ(meta["device"], "cpu");
}

TEST(Names, AReservedWordGetsUnderscoresUntilItIsFree) {
  const Mounted mounted(
      CheckpointOf(TensorMember("shape", Bytes(3)), TensorMember("shape_", Bytes(4))));
  EXPECT_EQ(mounted.Length("shape_.memmap"), 4U);
  EXPECT_EQ(mounted.Length("shape__.memmap"), 3U);
  EXPECT_EQ(mounted.Meta()["shape__"]["key"], "shape");
  EXPECT_FALSE(mounted.Meta()["shape_"].contains("key"));
}

TEST(Names, AKeyThatIsThereTwiceIsRenamedTheSecondTime) {
  const Mounted mounted(CheckpointOf(TensorMember("a.w", Bytes(3)), TensorMember("a.w", Bytes(4))));
  EXPECT_EQ(mounted.Length("a/w.memmap"), 3U);
  EXPECT_EQ(mounted.Length("a/w_.memmap"), 4U);
  EXPECT_EQ(mounted.Meta("a")["w_"]["key"], "w");
}

TEST(Names, ANumberIsRenamedBesideItsText) {
  const Mounted mounted(CheckpointOf(TensorMember("1", Bytes(3)),
                                     WithKind(Key::Kind::kNumber, TensorMember("1", Bytes(4)))));
  EXPECT_EQ(mounted.Length("1.memmap"), 3U);
  EXPECT_EQ(mounted.Length("1_.memmap"), 4U);
  EXPECT_EQ(mounted.Meta()["1_"]["key"], 1);
}

TEST(Names, KeysThatAreNotTextAreAnnotated) {
  const Json meta =
      Mounted(CheckpointOf(WithKind(Key::Kind::kNumber, TensorMember("7")),
                           WithKind(Key::Kind::kNumber, ValueMember("18446744073709551616")),
                           WithKind(Key::Kind::kOther, TensorMember("(1, 'a')"))))
          .Meta();
  EXPECT_EQ(meta["7"]["key"], 7);
  EXPECT_EQ(meta["18446744073709551616"]["key"], "18446744073709551616");
  EXPECT_EQ(meta["(1, 'a')"]["key"], "(1, 'a')");
  EXPECT_EQ(meta["(1, 'a')"]["key_type"], "other");
}

TEST(Names, PlacesInAListAreNotAnnotated) {
  Checkpoint checkpoint = CheckpointOf(WithKind(Key::Kind::kNumber, TensorMember("0")));
  checkpoint.root.python_type = "list";
  EXPECT_FALSE(Mounted(std::move(checkpoint)).Meta()["0"].contains("key"));
}

TEST(Names, ADirectoryMayNotHaveTheNameOfAFile) {
  const Mounted mounted(
      CheckpointOf(TensorMember("x"), GroupMember("x.memmap", TensorMember("y"))));
  EXPECT_THAT(mounted.Files(), ElementsAre("x.memmap", "x.memmap_/y.memmap"));
  EXPECT_EQ(mounted.Meta()["x.memmap_"]["key"], "x.memmap");
}

TEST(Names, AFileMayNotHaveTheNameOfADirectory) {
  const Mounted mounted(
      CheckpointOf(GroupMember("x.memmap", TensorMember("y")), TensorMember("x", Bytes(3))),
      {.is_flat = true});
  EXPECT_THAT(mounted.Files(), ElementsAre("x.memmap/y.memmap", "x_.memmap"));
  EXPECT_EQ(mounted.Meta()["x_"]["key"], "x");
}

TEST(Names, ADirectoryMayNotBeCalledMetaJson) {
  const Mounted mounted(CheckpointOf(ValueMember("meta.json")), {.is_flat = true});
  EXPECT_EQ(mounted.Meta("meta.json_")["data"], 1);
  EXPECT_EQ(mounted.Meta()["meta.json_"]["key"], "meta.json");
}

TEST(Names, ATensorMayBeCalledMetaJson) {
  EXPECT_THAT(Mounted(CheckpointOf(TensorMember("meta.json")), {.is_flat = true}).Files(),
              ElementsAre("meta.json.memmap"));
}

TEST(Names, ALongNameIsKept) {
  const std::string key(Tree::kMaxFuseName - kTensorSuffix.size(), 'k');
  EXPECT_THAT(FilesOf(key), ElementsAre(key + ".memmap"));
}

TEST(Names, ATooLongNameIsShortenedWithAHash) {
  const std::string key(3000, 'k');
  const Mounted mounted(CheckpointOf(TensorMember(key), TensorMember(key + "2")));
  const std::string begin(207, 'k');
  EXPECT_THAT(mounted.Files(),
              ElementsAre(begin + "~c78d15343dceb04d.memmap", begin + "~e36b86c50635e7cd.memmap"));
  EXPECT_EQ(mounted.Meta()[begin + "~c78d15343dceb04d"]["key"], key);
}

TEST(Names, ANameIsTooLongWithItsPercentSigns) {
  const std::string key(400, '/');
  const std::string name = FilesOf(key).at(0);
  EXPECT_THAT(name, testing::StartsWith("%2F%2F"));
  EXPECT_LE(name.size(), 255U);
}

TEST(Names, ANameIsShortenedBetweenCharacters) {
  std::string key = "k";
  for (int i = 0; i < 600; ++i) key += "\xC3\xA9";
  const Mounted mounted(CheckpointOf(TensorMember(key)));
  EXPECT_THAT(mounted.Files().at(0), testing::HasSubstr("\xC3\xA9~"));
  EXPECT_EQ(mounted.Meta().items().begin().value()["key"], key);
}

TEST(Names, BytesThatAreNoUtf8BecomeVisible) {
  const Mounted mounted(CheckpointOf(TensorMember("w\xFF\xC3")));
  EXPECT_THAT(mounted.Files(), ElementsAre("w%25FF%25C3.memmap"));
  EXPECT_NO_THROW(mounted.Number("w%FF%C3.memmap"));
  const Json entry = mounted.Meta()["w%FF%C3"];
  EXPECT_EQ(entry["key"], "w\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(entry["key_hex"], "77ffc3");
}

TEST(Names, ALoneSurrogateBecomesVisible) {
  const Mounted mounted(CheckpointOf(TensorMember("w\xED\xB2\x80")));
  EXPECT_EQ(mounted.Meta()["w%ED%B2%80"]["key_hex"], "77edb280");
}

TEST(Names, ADottedKeyMayHaveDirectoriesThatAreNoUtf8) {
  const Mounted mounted(CheckpointOf(TensorMember("\xFF.w")));
  EXPECT_THAT(mounted.Files(), ElementsAre("%25FF/w.memmap"));
  EXPECT_EQ(mounted.Meta()["%FF"]["key_hex"], "ff");
}

TEST(Names, RenamedKeysDoNotTakeThePlaceOfOthers) {
  const Mounted mounted(
      CheckpointOf(TensorMember("w\xFF", Bytes(3)), TensorMember("w%FF", Bytes(4))));
  EXPECT_EQ(mounted.Length("w%25FF.memmap"), 4U);
  EXPECT_EQ(mounted.Length("w%25FF_.memmap"), 3U);
}

TEST(Names, ThousandsOfEqualKeysAreRenamedQuickly) {
  Checkpoint checkpoint;
  for (int i = 0; i < 50000; ++i) checkpoint.root.members.push_back(TensorMember("w"));
  const Mounted mounted(std::move(checkpoint));
  EXPECT_EQ(mounted.Files().size(), 50000U);
  EXPECT_NO_THROW(mounted.Number("w____.memmap"));
  EXPECT_NO_THROW(mounted.Number("w____5.memmap"));
  EXPECT_NO_THROW(mounted.Number("w____49999.memmap"));
}

TEST(Names, ThousandsOfEqualDottedKeysAreRenamedQuickly) {
  Checkpoint checkpoint;
  for (int i = 0; i < 50000; ++i) checkpoint.root.members.push_back(TensorMember("a.w"));
  EXPECT_NO_THROW(Mounted(std::move(checkpoint)).Number("a/w____49999.memmap"));
}

TEST(Meta, DescribesATensor) {
  Tensor tensor = {.dtype = Dtype::kFloat32, .shape = {1, 2}, .data = {kSource, 1, 8}};
  tensor.member = "data/0";
  tensor.is_in_file = true;
  tensor.file_offset = 1234;
  tensor.annotations = {{"requires_grad", "true"}, {"stride", "[2,1]"}};
  EXPECT_EQ(Mounted(CheckpointOf(TensorMember("a.w", std::move(tensor)))).Text("a/meta.json"),
            R"({"w":{"device":"cpu","shape":[1,2],"dtype":"torch.float32","is_nested":false,)"
            R"("requires_grad":true,"stride":[2,1]},)"
            R"("shape":[],"device":"cpu","_type":"<class 'tensordict._td.TensorDict'>"})");
}

TEST(Meta, DescribesADict) {
  Member member = GroupMember("g", TensorMember("x"));
  auto& group = *std::get<std::unique_ptr<Group>>(member.content);
  group.python_type = "list";
  group.annotations = {{"n", "null"}};
  EXPECT_EQ(Mounted(CheckpointOf(std::move(member))).Meta()["g"].dump(),
            R"({"type":"TensorDict","python_type":"list","n":null})");
}

TEST(Meta, DescribesADirectoryMadeByDots) {
  EXPECT_EQ(Mounted(CheckpointOf(TensorMember("a.w"))).Meta()["a"].dump(),
            R"({"type":"TensorDict"})");
}

TEST(Meta, DescribesAValue) {
  Value value = {.json = R"([1,"x"])", .python_type = "tuple", .annotations = {{"n", "[]"}}};
  const Mounted mounted(CheckpointOf(ValueMember("v", std::move(value))));
  EXPECT_EQ(mounted.Meta()["v"].dump(), R"({"type":"NonTensorData","python_type":"tuple","n":[]})");
  EXPECT_EQ(mounted.Text("v/meta.json"),
            R"({"_type":"<class 'tensordict.tensorclass.NonTensorData'>","data":[1,"x"],)"
            R"("_metadata":null,"_is_non_tensor":true})");
}

TEST(Meta, HasTheCheckpointAtTheEndOfTheRoot) {
  Checkpoint checkpoint = CheckpointOf();
  checkpoint.root.python_type = "list";
  checkpoint.root.annotations = {{"r", "1"}};
  checkpoint.annotations = {{"byteorder", "\"little\""}};
  checkpoint.warnings = {"a \"b\"", "c\xFF"};
  EXPECT_EQ(Mounted(std::move(checkpoint)).Meta()["_ckptfs"].dump(),
            R"({"version":"","format":"test","python_type":"list","r":1,"byteorder":"little",)"
            "\"warnings\":[\"a \\\"b\\\"\",\"c\xEF\xBF\xBD\"]}");
}

TEST(Meta, OnlyTheRootHasTheCheckpoint) {
  const Mounted mounted(CheckpointOf(TensorMember("a.b"), GroupMember("c", TensorMember("d"))));
  EXPECT_TRUE(mounted.Meta().contains("_ckptfs"));
  EXPECT_FALSE(mounted.Meta("a").contains("_ckptfs"));
  EXPECT_FALSE(mounted.Meta("c").contains("_ckptfs"));
}

// The entry of a tensor of some type, without the members that all have.
std::string TypeOf(Dtype dtype, std::vector<uint64_t> shape) {
  const uint64_t length = ByteSize(dtype, shape);
  Tensor tensor = {.dtype = dtype, .shape = std::move(shape), .data = {kSource, 0, length}};
  if (dtype == Dtype::kOpaque) tensor.foreign_dtype = "F6_E3M2";
  Json entry = Mounted(CheckpointOf(TensorMember("w", std::move(tensor)))).Meta()["w"];
  entry.erase("device");
  entry.erase("is_nested");
  return entry.dump();
}

TEST(Meta, ListsTypesThatTensorDictKnows) {
  EXPECT_EQ(TypeOf(Dtype::kComplex32, {2}), R"({"shape":[2],"dtype":"torch.complex32"})");
  EXPECT_EQ(TypeOf(Dtype::kUint16, {}), R"({"shape":[],"dtype":"torch.uint16"})");
  EXPECT_EQ(TypeOf(Dtype::kBool, {0, 3}), R"({"shape":[0,3],"dtype":"torch.bool"})");
}

TEST(Meta, ListsOtherTypesAsBytes) {
  EXPECT_EQ(TypeOf(Dtype::kFloat8E4m3fn, {2, 3}),
            R"({"shape":[2,3],"dtype":"torch.uint8","x_dtype":"torch.float8_e4m3fn",)"
            R"x("x_shape":[2,3],"recipe":"tensor.view(torch.float8_e4m3fn).reshape([2,3])"})x");
  EXPECT_EQ(TypeOf(Dtype::kQint32, {1, 2}),
            R"({"shape":[1,8],"dtype":"torch.uint8","x_dtype":"torch.qint32","x_shape":[1,2]})");
  EXPECT_EQ(TypeOf(Dtype::kBits16, {0, 2}),
            R"({"shape":[0,4],"dtype":"torch.uint8","x_dtype":"torch.bits16","x_shape":[0,2],)"
            R"x("recipe":"tensor.view(torch.bits16).reshape([0,2])"})x");
}

TEST(Meta, ListsScalarsOfOtherTypesAsBytes) {
  EXPECT_EQ(TypeOf(Dtype::kBits16, {}),
            R"({"shape":[2],"dtype":"torch.uint8","x_dtype":"torch.bits16","x_shape":[],)"
            R"x("recipe":"tensor.view(torch.bits16).reshape([])"})x");
}

TEST(Meta, ListsPackedTypesAsBytes) {
  EXPECT_EQ(TypeOf(Dtype::kQuint4x2, {2, 3}),
            R"({"shape":[4],"dtype":"torch.uint8","x_dtype":"torch.quint4x2","x_shape":[2,3]})");
}

TEST(Meta, ListsForeignTypesAsBytes) {
  EXPECT_EQ(TypeOf(Dtype::kOpaque, {6}),
            R"({"shape":[6],"dtype":"torch.uint8","foreign_dtype":"F6_E3M2","x_shape":[6]})");
}

TEST(Meta, ListsShapesThatTorchCannotCountAsEmpty) {
  EXPECT_EQ(TypeOf(Dtype::kInt8, {0, 0xFFFFFFFFFFFFFFFF}),
            R"({"shape":[0],"dtype":"torch.int8","x_shape":[0,18446744073709551615]})");
  EXPECT_EQ(TypeOf(Dtype::kBits16, {0, 0xFFFFFFFFFFFFFFFF}),
            R"({"shape":[0],"dtype":"torch.uint8","x_dtype":"torch.bits16",)"
            R"("x_shape":[0,18446744073709551615]})");
}

TEST(Meta, IsStrictJsonWhateverTheCheckpointSays) {
  Tensor tensor = Bytes();
  tensor.dtype = Dtype::kOpaque;
  tensor.foreign_dtype = "\xED\xA0\x80\"";
  tensor.member = std::string("\0\xFF\\", 3);
  tensor.error.emplace(EIO, "\x1B[31m\n\xC3");
  Member group = GroupMember("\"\xED\xA0\x80", TensorMember("\t\"\\", std::move(tensor)));
  std::get<std::unique_ptr<Group>>(group.content)->python_type = "\xFE";
  const Mounted mounted(CheckpointOf(std::move(group)), {.source = "\xFF", .version = "\xFF"});
  EXPECT_EQ(mounted.Meta()["\"%ED%A0%80"]["python_type"], "\xEF\xBF\xBD");
  const Json entry = mounted.Meta("%22%25ED%25A0%2580")["\t\"\\"];
  EXPECT_EQ(entry["error"], "?[31m??");
  const Json line = mounted.Lines().at(0);
  EXPECT_EQ(line["member"], std::string("\0\xEF\xBF\xBD\\", 5));
  EXPECT_EQ(line["error"], "?[31m??");
}

TEST(Index, HasALineForEachTensorAndTableInTheOrderOfTheCheckpoint) {
  Tensor tensor = {.dtype = Dtype::kFloat32, .shape = {1, 2}, .data = {kSource, 1, 8}};
  tensor.member = "data/0";
  tensor.is_in_file = true;
  tensor.file_offset = 1234;
  tensor.annotations = {
      {"requires_grad", "true"}, {"stride", "[2,1]"}, {"hashes", R"({"crc32":"0"})"}};
  const Mounted mounted(CheckpointOf(TensorMember("a.w", std::move(tensor)), ValueMember("v"),
                                     GroupMember("g", TableMember("b c"), TensorMember("x")),
                                     TensorMember("a.z")));
  EXPECT_EQ(mounted.Text("tensors.jsonl"),
            R"({"key":"a.w","dtype":"torch.float32","shape":[1,2],"stride":[2,1],)"
            R"("path":"a/w.memmap","bytes":8,"file":null,"member":"data/0","file_offset":1234,)"
            R"("storage_offset":null,"error":null,"hashes":{"crc32":"0"}})"
            "\n"
            R"({"key":"g.b c","dtype":null,"shape":null,"stride":null,"path":"g/b%20c.jsonl",)"
            R"("bytes":4,"file":null,"member":"t","file_offset":null,"storage_offset":null,)"
            R"("error":null})"
            "\n"
            R"({"key":"g.x","dtype":"torch.uint8","shape":[2],"stride":null,"path":"g/x.memmap",)"
            R"("bytes":2,"file":null,"member":null,"file_offset":null,"storage_offset":null,)"
            R"("error":null})"
            "\n"
            R"({"key":"a.z","dtype":"torch.uint8","shape":[2],"stride":null,"path":"a/z.memmap",)"
            R"("bytes":2,"file":null,"member":null,"file_offset":null,"storage_offset":null,)"
            R"("error":null})"
            "\n");
}

TEST(Index, IsReadFromAnywhere) {
  Checkpoint checkpoint;
  for (int i = 0; i < 200; ++i) {
    checkpoint.root.members.push_back(TensorMember("\xC3\xA9." + std::to_string(i)));
  }
  const Mounted mounted(std::move(checkpoint));
  const std::string text = mounted.Text("tensors.jsonl");
  EXPECT_EQ(mounted.Lines().size(), 200U);
  EXPECT_EQ(mounted.Lines()[199]["key"], "\xC3\xA9.199");
  const Inode& file = *mounted.tree().Find(mounted.Number("tensors.jsonl"));
  for (uint64_t begin = 0; begin < text.size(); begin += 97) {
    const uint64_t length = std::min<uint64_t>(1000, text.size() - begin);
    ASSERT_EQ(ReadString({file.source, begin, length}), text.substr(begin, length));
  }
}

TEST(Index, IsThereWithoutTensors) {
  const Mounted mounted(CheckpointOf(ValueMember("v")));
  EXPECT_EQ(mounted.Text("tensors.jsonl"), "");
  EXPECT_EQ(mounted.tree().Find(mounted.Number("tensors.jsonl"))->links, 1U);
}

// 20 of them would make lines of 200 MB, of a checkpoint of one.
TEST(Index, CutsLongKeysAndHasNoPathThatNoCallTakes) {
  Member member = TensorMember("x");
  for (int i = 0; i < 20; ++i) {
    member = GroupMember(std::string(500'000, static_cast<char>('a' + i)), std::move(member));
  }
  const Mounted mounted(CheckpointOf(std::move(member)));
  const Json line = mounted.Lines().at(0);
  EXPECT_LT(line["key"].get<std::string>().size(), 5000U);
  EXPECT_EQ(line["path"], nullptr);
  EXPECT_EQ(line["bytes"], 2);
}

// The meta.json of a collection with these members of its own.
std::string MetaOfCollection(std::string members, bool is_closed = true) {
  Member member = GroupMember("c");
  std::get<std::unique_ptr<Group>>(member.content)->collection = {
      .text = std::move(members), .is_closed = is_closed, .inner = ""};
  return Mounted(CheckpointOf(std::move(member))).Text("c/meta.json");
}

TEST(Foreign, OtherFilesDoNotHaveTheKeysOfAMount) {
  EXPECT_EQ(MetaOfCollection(R"("_type":"T","_ckptfs":{"recipe":"evil"},"_ckptfs_":1)"),
            R"({"_type":"T","_ckptfs_":{"recipe_":"evil"},"_ckptfs__":1})");
  EXPECT_EQ(MetaOfCollection(R"("_type":"T","_ckptfs":{}, "a" : { "recipe" : 1 })", false),
            R"({"_type":"T","_ckptfs_":{}, "a" : { "recipe_" : 1 }})");
}

TEST(Foreign, ARecipeIsOursAtAnyDepth) {
  EXPECT_EQ(MetaOfCollection(R"("a":{"dtype":"x","recipe":1,"key":2,"stride":3,"recipe_":4})"),
            R"({"a":{"dtype":"x","recipe_":1,"key_":2,"stride_":3,"recipe__":4}})");
  EXPECT_EQ(MetaOfCollection(R"("a":[{"b":{"error":"recipe","\u0072ecipe":[],"x_dtype":{}}}])"),
            R"({"a":[{"b":{"error_":"recipe","\u0072ecipe_":[],"x_dtype_":{}}}]})");
}

TEST(Foreign, AMemberThatIsNoEntryKeepsItsOtherNames) {
  const std::string members = R"("recipe":"of a tensorclass","a":{"key":1,"b":{"type":1,"key":2}})";
  EXPECT_EQ(MetaOfCollection(members), "{" + members + "}");
}

TEST(Foreign, TextThatLooksLikeAMemberIsText) {
  const std::string members = R"("a":"{\"recipe\":1}","b":["recipe","\\"],"c":{"x":"}","y":"{"})";
  EXPECT_EQ(MetaOfCollection(members), "{" + members + "}");
}

TEST(Foreign, NotesAreOursByTheirNamesOnly) {
  Tensor tensor = Bytes();
  tensor.annotations = {{"attributes", R"({"recipe":"evil","x":{"_ckptfs":1}})"},
                        {"lost_chunks", R"([{"offsets":[],"error":"ours"}])"}};
  Checkpoint checkpoint = CheckpointOf(TensorMember("w", std::move(tensor)));
  checkpoint.annotations = {{"metadata", R"({"error":"evil"})"},
                            {"shards", R"({"recipe":{"error":"ours","metadata":{"recipe":1}}})"}};
  const Json meta = Mounted(std::move(checkpoint)).Meta();
  EXPECT_EQ(meta["w"]["attributes"].dump(), R"({"recipe_":"evil","x":{"_ckptfs_":1}})");
  EXPECT_EQ(meta["w"]["lost_chunks"][0]["error"], "ours");
  EXPECT_EQ(meta[kSummaryKey]["metadata"].dump(), R"({"error_":"evil"})");
  EXPECT_EQ(meta[kSummaryKey]["shards"].dump(),
            R"({"recipe_":{"error":"ours","metadata":{"recipe_":1}}})");
}

TEST(Foreign, AReportWaitsForADirectoryThatHasRoomForIt) {
  Member tensor = GroupMember("t", TensorMember("x"));
  std::get<std::unique_ptr<Group>>(tensor.content)->about = {{"class", "\"C\""}};
  Checkpoint checkpoint = CheckpointOf(std::move(tensor), GroupMember("g"));
  checkpoint.root.collection = {.text = R"("_type":"T")", .is_closed = true, .inner = ""};
  const Mounted mounted(std::move(checkpoint));
  EXPECT_EQ(mounted.Text("meta.json"), R"({"_type":"T"})");
  EXPECT_EQ(mounted.Meta("t")[kSummaryKey].dump(), R"({"class":"C"})");
  EXPECT_EQ(mounted.Meta("g")[kSummaryKey]["format"], "test");
}

TEST(Files, HaveTheBytesOfTheirTensors) {
  Tensor tensor = Bytes(3);
  tensor.data.offset = 4;
  EXPECT_EQ(Mounted(CheckpointOf(TensorMember("w", std::move(tensor)))).Text("w.memmap"), "456");
}

TEST(Files, OfTensorsWithoutElementsAreEmpty) {
  EXPECT_EQ(Mounted(CheckpointOf(TensorMember("w", Bytes(0)))).Text("w.memmap"), "");
}

TEST(Files, OfTiedTensorsAreHardLinks) {
  const Mounted mounted(CheckpointOf(TensorMember("a.w"), GroupMember("b", TensorMember("w"))));
  EXPECT_EQ(mounted.Number("a/w.memmap"), mounted.Number("b/w.memmap"));
  EXPECT_EQ(mounted.tree().Find(mounted.Number("a/w.memmap"))->links, 2U);
}

TEST(Files, OfDifferentViewsOfTheSameBytesAreDifferent) {
  Tensor reshaped = Bytes();
  reshaped.shape = {2, 1};
  Tensor retyped = Bytes();
  retyped.dtype = Dtype::kInt8;
  Tensor moved = Bytes();
  moved.data.offset = 1;
  Tensor other = Bytes();
  other.data.source = std::make_shared<MemorySource>("0123456789");
  const Mounted mounted(
      CheckpointOf(TensorMember("a"), TensorMember("b", Bytes(3)),
                   TensorMember("c", std::move(reshaped)), TensorMember("d", std::move(retyped)),
                   TensorMember("e", std::move(moved)), TensorMember("f", std::move(other))));
  EXPECT_EQ(mounted.tree().inode_count(), 9U);  // With the root and two files about all.
}

TEST(Files, WithoutBytesAreNoHardLinks) {
  const Mounted mounted(CheckpointOf(TensorMember("a", Bytes(0)), TensorMember("b", Bytes(0))));
  EXPECT_NE(mounted.Number("a.memmap"), mounted.Number("b.memmap"));
}

TEST(Files, OfCorruptTensorsCannotBeRead) {
  Tensor tensor = Bytes();
  tensor.data.source = nullptr;
  tensor.error.emplace(EIO, "member data/0: its checksum is 1, but 2 is right");
  const Mounted mounted(CheckpointOf(TensorMember("w", std::move(tensor)), TensorMember("x")));
  EXPECT_EQ(mounted.Length("w.memmap"), 2U);
  EXPECT_THAT([&] { mounted.Text("w.memmap"); },
              ThrowsMessage<Error>("member data/0: its checksum is 1, but 2 is right"));
  EXPECT_EQ(mounted.Meta()["w"]["error"], "member data/0: its checksum is 1, but 2 is right");
  EXPECT_EQ(mounted.Text("x.memmap"), "01");
}

TEST(Files, HaveAttributesIfWanted) {
  Tensor tensor = Bytes();
  tensor.member = "data/0";
  tensor.is_in_file = true;
  tensor.file_offset = 1234;
  tensor.annotations = {{"requires_grad", "true"}};
  const Mounted mounted(CheckpointOf(GroupMember("a.b", TensorMember("c.w", std::move(tensor)))),
                        {.has_attributes = true});
  EXPECT_THAT(mounted.tree().AttributesOf(mounted.Number("a/b/c/w.memmap")),
              UnorderedElementsAre(
                  Pair("user.ckptfs.dtype", "uint8"), Pair("user.ckptfs.shape", "[2]"),
                  Pair("user.ckptfs.key", "a.b.c.w"), Pair("user.ckptfs.member", "data/0"),
                  Pair("user.ckptfs.offset", "1234"), Pair("user.ckptfs.requires_grad", "true")));
}

TEST(Files, OfOtherTypesHaveTheirRealTypeAsAttribute) {
  Tensor tensor = Bytes();
  tensor.dtype = Dtype::kOpaque;
  tensor.foreign_dtype = "F6";
  tensor.error.emplace(EIO, "is damaged");
  const Mounted mounted(CheckpointOf(TensorMember("w", std::move(tensor))),
                        {.has_attributes = true});
  EXPECT_THAT(
      mounted.tree().AttributesOf(mounted.Number("w.memmap")),
      IsSupersetOf({Pair("user.ckptfs.dtype", "F6"), Pair("user.ckptfs.error", "is damaged")}));
}

TEST(Files, HaveNoAttributesIfNotWanted) {
  const Mounted mounted(CheckpointOf(TensorMember("w")));
  EXPECT_THAT(mounted.tree().AttributesOf(mounted.Number("w.memmap")), testing::IsEmpty());
}

TEST(Files, HaveNoAttributeThatIsLongerThanTheKernelAllows) {
  Tensor tensor = Bytes();
  tensor.annotations = {{"chunks", std::string(65537, ' ')}, {"stride", "[1]"}};
  const Mounted mounted(CheckpointOf(TensorMember("w", std::move(tensor))),
                        {.has_attributes = true});
  EXPECT_THAT(
      mounted.tree().AttributesOf(mounted.Number("w.memmap")),
      UnorderedElementsAre(Pair("user.ckptfs.dtype", "uint8"), Pair("user.ckptfs.shape", "[2]"),
                           Pair("user.ckptfs.key", "w"), Pair("user.ckptfs.stride", "[1]")));
}

TEST(Files, HaveAttributesThatAreNotMultipliedByLongKeys) {
  const Mounted mounted(CheckpointOf(GroupMember(std::string(100000, 'g'), TensorMember("w"))),
                        {.has_attributes = true});
  const auto& attributes = mounted.tree().AttributesOf(mounted.Number(mounted.Files().at(0)));
  EXPECT_EQ(attributes.at(2).first, "user.ckptfs.key");
  EXPECT_EQ(attributes.at(2).second, std::string(1024, 'g'));
}

TEST(Tables, AreFilesOfLines) {
  const Mounted mounted(CheckpointOf(TableMember("a.log")));
  EXPECT_THAT(mounted.Files(), ElementsAre("a/log.jsonl"));
  EXPECT_EQ(mounted.Text("a/log.jsonl"), "0123");
  EXPECT_EQ(mounted.Meta("a")["log"], Json::parse(R"({"bytes":4,"python_type":"list","rows":3})"));
}

TEST(Tables, OpenByBothNamesIfTheyDiffer) {
  const Mounted mounted(CheckpointOf(TableMember("a b")));
  EXPECT_THAT(mounted.Files(), ElementsAre("a%20b.jsonl"));
  EXPECT_EQ(mounted.Number("a b.jsonl"), mounted.Number("a%20b.jsonl"));
}

TEST(Tables, StandBesideATensorAndKeepTheirNames) {
  const Mounted mounted(CheckpointOf(TensorMember("x"), TableMember("x"), TableMember("x.jsonl"),
                                     TensorMember("x.jsonl")),
                        {.is_flat = true});
  EXPECT_THAT(mounted.Files(),
              ElementsAre("x.jsonl.jsonl", "x.jsonl_.memmap", "x.memmap", "x_.jsonl"));
}

TEST(Tables, KeepTheirNameBeforeADirectory) {
  const Mounted mounted(CheckpointOf(TableMember("x"), ValueMember("x.jsonl")), {.is_flat = true});
  EXPECT_THAT(Keys(mounted.Meta()), IsSupersetOf({"x", "x.jsonl_"}));
  EXPECT_THAT(mounted.Files(), ElementsAre("x.jsonl"));
}

TEST(Tables, GiveWayToADirectoryThatIsThere) {
  const Mounted mounted(CheckpointOf(ValueMember("x.jsonl"), TableMember("x")), {.is_flat = true});
  EXPECT_THAT(Keys(mounted.Meta()), IsSupersetOf({"x.jsonl", "x_"}));
  EXPECT_THAT(mounted.Files(), ElementsAre("x_.jsonl"));
}

TEST(Tables, StandBesideWhatOfTheirRowsHasTensors) {
  Member rows = GroupMember("log", TensorMember("0"));
  std::get<std::unique_ptr<Group>>(rows.content)->table = std::make_unique<Table>(Lines(6));
  const Mounted mounted(CheckpointOf(std::move(rows)));
  EXPECT_THAT(mounted.Files(), ElementsAre("log/0.memmap", "log.jsonl"));
  EXPECT_EQ(mounted.Length("log.jsonl"), 6U);
  EXPECT_EQ(mounted.Meta()["log"], Json::parse(R"({"type":"TensorDict",
                            "lines":{"bytes":6,"python_type":"list","rows":3}})"));
}

TEST(Tables, ThatCannotBeReadHaveAnError) {
  Member table = TableMember("log");
  std::get<Table>(table.content).error.emplace(EIO, "t is not there");
  const Mounted mounted(CheckpointOf(std::move(table)));
  EXPECT_EQ(mounted.Meta()["log"]["error"], "t is not there");
  EXPECT_EQ(mounted.Length("log.jsonl"), 4U);
  EXPECT_THAT([&] { mounted.Text("log.jsonl"); }, ThrowsMessage<Error>("t is not there"));
}

TEST(Tables, MustLieInTheirSource) {
  EXPECT_THAT([] { Validate(CheckpointOf(TableMember("log", 11))); },
              ThrowsMessage<Error>(
                  "table 'log': data out of range: 11 bytes at byte 0 (memory has 10 bytes)"));
}

// JSON that is large enough to be a separate file.
std::string LongJson() { return '"' + std::string(kMaxInlineJson, 'x') + '"'; }

TEST(LongValues, AreFilesOfTheirOwn) {
  Value value{.json = LongJson(), .python_type = "my.Log"};
  value.annotations.emplace_back("python_types", R"({"/0":"tuple"})");
  const Mounted mounted(
      CheckpointOf(ValueMember("log", std::move(value)), ValueMember("n"), TensorMember("w")));
  EXPECT_THAT(mounted.Files(), ElementsAre("log.json", "w.memmap"));
  EXPECT_EQ(mounted.Text("log.json"), LongJson());
  EXPECT_EQ(mounted.Meta()["log"].dump(),
            R"({"bytes":1048578,"python_type":"my.Log","python_types":{"/0":"tuple"},)"
            R"("data_file":"log.json"})");
  EXPECT_THAT(Keys(mounted.Meta()), ElementsAre("log", "n", "w"));
  const Json line = mounted.Lines().at(0);
  EXPECT_EQ(line["path"], "log.json");
  EXPECT_EQ(line["bytes"], 1048578);
  EXPECT_EQ(line["dtype"], nullptr);
}

TEST(LongValues, AreInMetaJsonUpToTheLimit) {
  const std::string json = '"' + std::string(kMaxInlineJson - 2, 'x') + '"';
  const Mounted mounted(CheckpointOf(ValueMember("log", {.json = json})));
  EXPECT_EQ(mounted.Meta("log")["data"].dump(), json);
}

TEST(LongValues, GiveWayToMetaJsonAndToDirectories) {
  const Mounted mounted(CheckpointOf(ValueMember("meta", {.json = LongJson()}),
                                     WithKind(Key::Kind::kWhole, ValueMember("log.json")),
                                     ValueMember("log", {.json = LongJson()}),
                                     ValueMember("log", {.json = LongJson()})));
  EXPECT_THAT(mounted.Files(), UnorderedElementsAre("meta_.json", "log_.json", "log__.json"));
  EXPECT_EQ(mounted.Meta()["meta_"]["data_file"], "meta_.json");
  EXPECT_EQ(mounted.Meta()["log_"]["key"], "log");
  EXPECT_EQ(mounted.Text("log_.json"), LongJson());
  EXPECT_EQ(mounted.Meta("log.json")["data"], 1);
}

TEST(LongValues, OfTensorDictAreWhereItLooksForThem) {
  Value value{.json = LongJson()};
  value.collection.text = R"("_type":"T")";
  const Mounted mounted(CheckpointOf(ValueMember("log", std::move(value))));
  EXPECT_EQ(mounted.Meta("log")["data"].dump(), LongJson());
}

TEST(LongValues, OfNotesAreFilesBesideTheOneThatTheyAreAbout) {
  Tensor tensor = Bytes();
  tensor.annotations.emplace_back("attributes", LongJson());
  tensor.annotations.emplace_back("conj", "true");
  const Mounted mounted(CheckpointOf(TensorMember("a b", std::move(tensor))));
  const Json entry = mounted.Meta()["a b"];
  EXPECT_EQ(entry["attributes_file"], "a%20b.attributes.json");
  EXPECT_FALSE(entry.contains("attributes"));
  EXPECT_EQ(entry["conj"], true);
  EXPECT_EQ(mounted.Text("a%20b.attributes.json"), LongJson());
  EXPECT_EQ(mounted.Length("a%20b.memmap"), 2);
}

TEST(LongValues, OfForeignTextAreNotTakenForOurs) {
  std::string out;
  AppendForeignMembers(out,
                       R"("a":{"type":"NonTensorData","data_file":"x","attributes_file":"y"})");
  EXPECT_EQ(out, R"("a":{"type":"NonTensorData","data_file_":"x","attributes_file_":"y"})");
}

TEST(Layout, SplitsNoWholeKeys) {
  const Mounted mounted(CheckpointOf(WithKind(Key::Kind::kWhole, TensorMember("a.b"))));
  EXPECT_THAT(mounted.Files(), ElementsAre("a.b.memmap"));
  EXPECT_FALSE(mounted.Meta()["a.b"].contains("key"));
}

// A nested tensor of two rows, two bytes and none.
Tensor Nested() {
  Tensor tensor = Bytes();
  tensor.sizes = std::make_shared<const Tensor>(Tensor{
      .dtype = Dtype::kInt64,
      .shape = {2, 1},
      .data = {
          std::make_shared<MemorySource>(std::string("\2\0\0\0\0\0\0\0", 8) + std::string(8, '\0')),
          0, 16}});
  return tensor;
}

TEST(Collections, ANestedTensorHasItsShapesInAFileOfTheirOwn) {
  const Mounted mounted(CheckpointOf(TensorMember("a/b", Nested())));
  EXPECT_EQ(mounted.Meta()["a/b"],
            Json::parse(R"({"device": "cpu", "shape": [2, 1], "dtype": "torch.uint8",
                            "is_nested": true})"));
  EXPECT_THAT(mounted.Files(), ElementsAre("a%2Fb.memmap", "a%2Fb.shape.memmap"));
  EXPECT_EQ(mounted.Length("a%2Fb.memmap"), 2U);
  EXPECT_EQ(mounted.Text("a%2Fb.shape.memmap"),
            std::string("\2\0\0\0\0\0\0\0", 8) + std::string(8, '\0'));
}

TEST(Collections, ANestedTensorOfAnotherTypeIsListedAsBytes) {
  Tensor tensor = Nested();
  tensor.dtype = Dtype::kFloat8E5m2;
  const Json entry = Mounted(CheckpointOf(TensorMember("a", std::move(tensor)))).Meta()["a"];
  EXPECT_EQ(entry["is_nested"], false);
  EXPECT_EQ(entry["shape"], Json::parse("[2]"));
}

TEST(Collections, ATensorKeepsItsFileBesideANestedOne) {
  const Mounted mounted(CheckpointOf(TensorMember("a", Nested()), TensorMember("a.shape")));
  EXPECT_THAT(mounted.Files(), ElementsAre("a.memmap", "a.shape.memmap"));
  EXPECT_EQ(mounted.Length("a.shape.memmap"), 2U);
}

TEST(Collections, AGroupMayHaveAClassAndABatchSize) {
  Member member = GroupMember("g", TensorMember("t"));
  std::get<std::unique_ptr<Group>>(member.content)->collection.text =
      R"("stack_dim":0,"_type":"<class 'Stack'>")";
  EXPECT_EQ(Mounted(CheckpointOf(std::move(member))).Meta("g"),
            Json::parse(R"({"t": {"device": "cpu", "shape": [2], "dtype": "torch.uint8",
                                  "is_nested": false},
                            "stack_dim": 0, "_type": "<class 'Stack'>"})"));
}

TEST(Collections, DirectoriesThatDotsMakeHaveNoClass) {
  Member member = GroupMember("g", TensorMember("a.b"));
  std::get<std::unique_ptr<Group>>(member.content)->collection.text = R"("_type":"<class 'G'>")";
  EXPECT_EQ(Mounted(CheckpointOf(std::move(member))).Meta("g/a")["_type"],
            "<class 'tensordict._td.TensorDict'>");
}

TEST(Collections, AClosedOneListsNothing) {
  Member member = GroupMember("g", GroupMember("_tensordict", TensorMember("t")));
  std::get<std::unique_ptr<Group>>(member.content)->collection = {
      .text = R"("_type":"<class 'G'>","field":1)", .is_closed = true, .inner = ""};
  const Mounted mounted(CheckpointOf(std::move(member)));
  EXPECT_EQ(mounted.Meta("g"), Json::parse(R"({"_type": "<class 'G'>", "field": 1})"));
  EXPECT_THAT(mounted.Files(), ElementsAre("g/_tensordict/t.memmap"));
}

TEST(Collections, AMemberOfAClosedRootHasTheCheckpoint) {
  Checkpoint checkpoint = CheckpointOf(GroupMember("_tensordict", TensorMember("t")));
  checkpoint.root.collection = {.text = R"("_type":"<class 'G'>")", .is_closed = true, .inner = ""};
  const Mounted mounted(std::move(checkpoint));
  EXPECT_EQ(mounted.Meta(), Json::parse(R"({"_type": "<class 'G'>"})"));
  EXPECT_EQ(mounted.Meta("_tensordict")["_ckptfs"]["format"], "test");
}

TEST(Collections, AValueMayHaveAClassAndABatchSize) {
  Value value{.json = "[1]"};
  value.collection = {.text = R"("_type":"<class 'V'>","stack_dim":0)",
                      .is_closed = false,
                      .inner = R"("shape":[3],"_type":"<class 'T'>")"};
  const Mounted mounted(CheckpointOf(ValueMember("v", std::move(value))));
  EXPECT_EQ(mounted.Meta()["v"], Json::parse(R"({"type": "NonTensorData"})"));
  EXPECT_EQ(mounted.Meta("v"),
            Json::parse(R"({"_type": "<class 'V'>", "stack_dim": 0, "data": [1]})"));
  EXPECT_EQ(mounted.Meta("v/_tensordict"),
            Json::parse(R"({"shape": [3], "_type": "<class 'T'>"})"));
}

}  // namespace
}  // namespace ckptfs
