#include "fs/tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "parser/io/simple_sources.h"
#include "tests/support/sources.h"

namespace ckptfs {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

const ByteSourcePtr kSource = std::make_shared<MemorySource>("0123456789");

std::vector<std::string> Names(const Tree& tree, uint64_t directory) {
  std::vector<std::string> names;
  for (const Entry& entry : tree.Entries(*tree.Find(directory))) names.emplace_back(entry.name);
  return names;
}

std::string Contents(const Tree& tree, uint64_t number) {
  const Inode& file = *tree.Find(number);
  return ReadString({file.source, file.offset, file.length});
}

// A directory for each text before a slash, and a file for each path.
Tree TreeOf(const std::vector<std::string>& paths) {
  struct Directory {
    uint32_t inode = 0;
    std::vector<Entry> entries;
  };
  TreeBuilder builder;
  std::map<std::string, Directory> directories;
  directories[""].inode = Tree::kRoot;
  for (const std::string& path : paths) {
    size_t begin = 0;
    std::string parent;
    for (size_t slash = path.find('/'); slash != std::string::npos; slash = path.find('/', begin)) {
      const std::string self = path.substr(0, slash);
      if (!directories.contains(self)) {
        const uint32_t inode = builder.AddDirectory(directories[parent].inode);
        directories[self].inode = inode;
        directories[parent].entries.push_back(
            {std::string_view(path).substr(begin, slash - begin), inode});
      }
      parent = self;
      begin = slash + 1;
    }
    directories[parent].entries.push_back(
        {std::string_view(path).substr(begin), builder.AddText(path)});
  }
  for (auto& [_, directory] : directories) {
    builder.SetEntries(directory.inode, std::move(directory.entries));
  }
  return builder.Finish();
}

// Returns the entry `name` of the root; files contain their paths.
std::string Found(const Tree& tree, std::string_view name) {
  const uint64_t found = tree.Lookup(Tree::kRoot, name);
  if (found == 0) return "nothing";
  return tree.Find(found)->is_directory() ? "a directory" : Contents(tree, found);
}

TEST(Tree, ListsADirectoryInOrderOfNames) {
  EXPECT_THAT(Names(TreeOf({"b", "-", "a/x", "\xC3\xA9", "B"}), Tree::kRoot),
              ElementsAre("-", "B", "a", "b", "\xC3\xA9"));
}

TEST(Tree, FindsFilesAndDirectoriesByName) {
  const Tree tree = TreeOf({"a/b", "c"});
  EXPECT_EQ(Found(tree, "c"), "c");
  EXPECT_EQ(Found(tree, "a"), "a directory");
  EXPECT_EQ(Found(tree, "b"), "nothing");
  EXPECT_EQ(Found(tree, ""), "nothing");
  EXPECT_EQ(Contents(tree, tree.Lookup(tree.Lookup(Tree::kRoot, "a"), "b")), "a/b");
}

TEST(Tree, FindsNothingInAFileOrInADirectoryThatIsNotThere) {
  const Tree tree = TreeOf({"a"});
  EXPECT_EQ(tree.Lookup(tree.Lookup(Tree::kRoot, "a"), "a"), 0U);
  EXPECT_EQ(tree.Lookup(0, "a"), 0U);
  EXPECT_EQ(tree.Lookup(77, "a"), 0U);
}

TEST(Tree, HasNoInodeZeroAndNoneBehindTheLast) {
  const Tree tree = TreeOf({"a"});
  EXPECT_EQ(tree.Find(0), nullptr);
  EXPECT_NE(tree.Find(2), nullptr);
  EXPECT_EQ(tree.Find(3), nullptr);
  EXPECT_EQ(tree.inode_count(), 2U);
}

TEST(Tree, FindsAFileByItsDottedPath) {
  const Tree tree = TreeOf({"a/b/c.memmap"});
  EXPECT_EQ(Found(tree, "a.b.c.memmap"), "a/b/c.memmap");
  EXPECT_EQ(Contents(tree, tree.Lookup(tree.Lookup(Tree::kRoot, "a"), "b.c.memmap")),
            "a/b/c.memmap");
}

TEST(Tree, FindsADottedPathThroughDirectoriesWithDots) {
  const Tree tree = TreeOf({"a/x", "a.b/c.d/e.f.memmap"});
  EXPECT_EQ(Found(tree, "a.b.c.d.e.f.memmap"), "a.b/c.d/e.f.memmap");
}

TEST(Tree, DoesNotFindADirectoryByItsDottedPath) {
  const Tree tree = TreeOf({"a/b/c"});
  EXPECT_EQ(Found(tree, "a.b"), "nothing");
}

TEST(Tree, PrefersAnEntryToADottedPath) { EXPECT_EQ(Found(TreeOf({"a/b", "a.b"}), "a.b"), "a.b"); }

TEST(Tree, PrefersTheShorterDirectoryWhereADottedPathMeansTwoFiles) {
  EXPECT_EQ(Found(TreeOf({"a/b.c", "a.b/c"}), "a.b.c"), "a/b.c");
}

TEST(Tree, DoesNotFindDottedPathsThatAreNotThere) {
  const Tree tree = TreeOf({"a/b/c", "a-/x", "ab/x"});
  EXPECT_EQ(Found(tree, "a.b.d"), "nothing");
  EXPECT_EQ(Found(tree, "a..b.c"), "nothing");
  EXPECT_EQ(Found(tree, ".a.b.c"), "nothing");
  EXPECT_EQ(Found(tree, "a.b.c."), "nothing");
  EXPECT_EQ(Found(tree, "a."), "nothing");
  EXPECT_EQ(Found(tree, "."), "nothing");
  EXPECT_EQ(Found(tree, "b.c"), "nothing");
}

// Thousands of directories that are each a beginning of the name, and what is asked for is in the
// last of them.
TEST(Tree, RejectsADottedPathWithTooManyCandidates) {
  constexpr unsigned kDots = 12;
  std::vector<std::string> paths;
  std::string name = "a";
  for (unsigned i = 0; i < kDots; ++i) name += ".a";
  for (unsigned split = 0; split < 1U << kDots; ++split) {
    std::string path = name;
    for (unsigned i = 0; i < kDots; ++i) path[2 * i + 1] = (split >> i) % 2 == 0 ? '/' : '.';
    paths.push_back(path + "/x");
  }
  paths.push_back(name + "/last");
  const Tree tree = TreeOf(paths);
  EXPECT_EQ(Found(tree, name + ".x"), "a/a/a/a/a/a/a/a/a/a/a/a/a/x");
  EXPECT_EQ(Found(tree, name + ".last"), "nothing");
  EXPECT_EQ(Contents(tree, tree.Lookup(tree.Lookup(Tree::kRoot, name), "last")), name + "/last");
}

TEST(Tree, CountsLinksAsExt4Does) {
  const Tree tree = TreeOf({"a/b/x", "a/c/x", "y"});
  EXPECT_EQ(tree.Find(Tree::kRoot)->links, 3U);
  EXPECT_EQ(tree.Find(tree.Lookup(Tree::kRoot, "a"))->links, 4U);
  EXPECT_EQ(tree.Find(tree.Lookup(Tree::kRoot, "y"))->links, 1U);
}

TEST(Tree, CountsTheNamesOfAFileInAllDirectories) {
  TreeBuilder builder;
  const uint32_t file = builder.AddFile({kSource, 2, 3});
  const uint32_t directory = builder.AddDirectory(Tree::kRoot);
  builder.SetEntries(directory, {{"z", file}});
  builder.SetEntries(Tree::kRoot, {{"x", file}, {"y", file}, {"d", directory}});
  const Tree tree = builder.Finish();
  EXPECT_EQ(tree.Find(file)->links, 3U);
  EXPECT_EQ(tree.size(), 3U);
  EXPECT_EQ(Contents(tree, tree.Lookup(directory, "z")), "234");
}

TEST(Tree, KnowsTheParentOfADirectory) {
  const Tree tree = TreeOf({"a/b/x"});
  const uint64_t a = tree.Lookup(Tree::kRoot, "a");
  EXPECT_EQ(tree.Find(tree.Lookup(a, "b"))->parent, a);
  EXPECT_EQ(tree.Find(Tree::kRoot)->parent, Tree::kRoot);
}

TEST(Tree, GivesTheSameNumbersAtEveryMount) {
  const std::vector<std::string> paths = {"b/x", "a", "b/y"};
  EXPECT_EQ(TreeOf(paths).Lookup(Tree::kRoot, "b"), 2U);
  EXPECT_EQ(TreeOf(paths).Lookup(Tree::kRoot, "a"), 4U);
  EXPECT_EQ(TreeOf(paths).Lookup(2, "y"), 5U);
}

TEST(Tree, KeepsTextsApart) {
  const Tree tree = TreeOf({"a", "c", "b"});
  EXPECT_EQ(Contents(tree, 2), "a");
  EXPECT_EQ(Contents(tree, 4), "b");
}

TEST(Tree, KeepsNamesThatFillSeveralBlocks) {
  std::vector<std::string> paths;
  for (int i = 100; i < 300; ++i)
    paths.push_back(std::string(Tree::kMaxFuseName - 3, 'n') + std::to_string(i));
  EXPECT_EQ(Names(TreeOf(paths), Tree::kRoot), paths);
}

TEST(Tree, HasAnEmptyDirectory) {
  TreeBuilder builder;
  builder.SetEntries(Tree::kRoot, {});
  EXPECT_THAT(Names(builder.Finish(), Tree::kRoot), IsEmpty());
}

TEST(Tree, GivesAttributesToThoseThatHaveThem) {
  TreeBuilder builder;
  const uint32_t plain = builder.AddText("");
  const uint32_t file = builder.AddText("");
  const uint32_t last = builder.AddText("");
  builder.SetAttributes(file, {{"user.x", "1"}});
  builder.SetEntries(Tree::kRoot, {{"p", plain}, {"f", file}, {"l", last}});
  const Tree tree = builder.Finish();
  EXPECT_THAT(tree.AttributesOf(file), ElementsAre(Pair("user.x", "1")));
  EXPECT_THAT(tree.AttributesOf(plain), IsEmpty());
  EXPECT_THAT(tree.AttributesOf(last), IsEmpty());
}

TEST(Tree, ReportsTheMaximumWhereItsSizeOverflows) {
  class Endless : public ByteSource {
   public:
    std::string name() const override { return "endless"; }
    uint64_t size() const override { return uint64_t{1} << 63U; }
    void ReadAt(uint64_t /*offset*/, std::span<std::byte> /*buffer*/) const override {}
  };
  const auto endless = std::make_shared<Endless>();
  TreeBuilder builder;
  const uint32_t a = builder.AddFile({endless, 0, endless->size()});
  const uint32_t b = builder.AddFile({endless, 0, endless->size()});
  const uint32_t c = builder.AddFile({endless, 0, 1});
  builder.SetEntries(Tree::kRoot, {{"a", a}, {"b", b}, {"c", c}});
  EXPECT_EQ(builder.Finish().size(), 0xFFFFFFFFFFFFFFFFU);
}

}  // namespace
}  // namespace ckptfs
