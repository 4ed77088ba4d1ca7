#include "fs/store.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <set>

#include "fs/mountpoint.h"
#include "parser/base/error.h"
#include "parser/io/simple_sources.h"
#include "tests/support/memory_folder.h"
#include "tests/support/safetensors.h"
#include "tests/support/sources.h"

namespace ckptfs {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// A folder whose files change.
class LiveFolder final : public Folder {
 public:
  struct File {
    std::string bytes;
    std::string version;
  };

  std::string name() const override { return "live"; }
  std::vector<std::string> List() const override {
    std::vector<std::string> names;
    for (const auto& [name, file] : files) names.push_back(name);
    return names;
  }
  ByteSourcePtr Open(const std::string& name) const override {
    const auto found = files.find(name);
    if (found == files.end()) Fail(ENOENT, "no such file");
    return std::make_shared<MemorySource>(found->second.bytes);
  }
  std::vector<std::string> ListFolders() const override { return {}; }
  FolderPtr OpenFolder(const std::string& /*name*/) const override { return nullptr; }
  std::optional<EntryInfo> Find(const std::string& name) const override {
    const auto found = files.find(name);
    if (found == files.end()) return std::nullopt;
    return EntryInfo{.size = found->second.bytes.size(), .version = found->second.version};
  }

  std::map<std::string, File> files;
};

std::string Model(std::string_view bytes) {
  const std::string entry =
      SafetensorsEntry("t", "U8", fmt::format("[{}]", bytes.size()), bytes.size());
  return SafetensorsFile("{" + entry + "}", bytes);
}

// A store, and the kernel's part: what it has looked up and not yet forgotten.
class Kernel {
 public:
  explicit Kernel(FolderPtr folder, uint64_t trees = 1 << 20)
      : options_(WithTrees(trees)),
        store_(
            std::move(folder), options_, 0, [this](const Source& source) { return Read(source); },
            log_) {
    store_.SetForgetEntry([this](uint64_t directory, std::string name) {
      EXPECT_EQ(directory, Tree::kRoot);
      unwanted_.insert(std::move(name));
    });
  }

  // Returns 0 if there is no such entry.
  uint64_t Lookup(uint64_t directory, const std::string& name) {
    const Found found = store_.Lookup(directory, name, true).value();
    if (found.number != 0) ++references_[found.number];
    return found.number;
  }

  uint64_t Lookup(const std::string& path) {
    uint64_t number = Tree::kRoot;
    for (size_t begin = 0; number != 0 && begin <= path.size();) {
      const size_t slash = std::min(path.find('/', begin), path.size());
      number = Lookup(number, path.substr(begin, slash - begin));
      begin = slash + 1;
    }
    return number;
  }

  std::string Contents(uint64_t number) {
    const Node node = store_.Find(number);
    const Inode& inode = *node.inode;
    return ReadString({inode.source, inode.offset, inode.length});
  }
  std::string Contents(const std::string& path) { return Contents(Lookup(path)); }

  void Forget(uint64_t number) {
    store_.Forget(number, references_.at(number));
    references_.erase(number);
  }
  void ForgetAll() {
    while (!references_.empty()) Forget(references_.begin()->first);
  }

  std::vector<std::string> List(uint64_t directory) {
    const auto view = store_.List(directory, true);
    std::vector<std::string> names;
    for (const Entry& entry : view->entries) {
      if (entry.is_listed) names.emplace_back(entry.name);
    }
    return names;
  }

  Store& store() { return store_; }
  int reads() const { return reads_; }
  std::set<std::string> TakeUnwanted() { return std::exchange(unwanted_, {}); }
  const std::map<uint64_t, uint64_t>& references() const { return references_; }

 private:
  static Options WithTrees(uint64_t trees) {
    Options options;
    options.trees = trees;
    options.umask = 0;
    return options;
  }

  // A tree with the file "t", which has the last bytes of the checkpoint.
  TreeReader::Result Read(const Source& source) {
    ++reads_;
    std::string bytes = ReadString({source.file, 0, source.file->size()});
    if (bytes.ends_with("broken")) Fail(EBADMSG, "{}: broken", source.name());
    if (bytes.ends_with("away")) Fail(ETIMEDOUT, "{}: no answer", source.name());
    TreeBuilder builder;
    const uint32_t file = builder.AddText(bytes.substr(bytes.size() - 1));
    builder.SetEntries(Tree::kRoot, {{.name = "t", .inode = file}});
    return {.tree = builder.Finish(), .memory = kTree, .warnings = {}};
  }

 public:
  static constexpr uint64_t kTree = 1000;  // Bytes.

 private:
  Log log_;
  const Options options_;
  int reads_ = 0;
  std::set<std::string> unwanted_;
  std::map<uint64_t, uint64_t> references_;
  Store store_;
};

std::shared_ptr<LiveFolder> FolderWith(const std::vector<std::string>& names) {
  auto folder = std::make_shared<LiveFolder>();
  for (const std::string& name : names) folder->files[name] = {Model(name), "1"};
  return folder;
}

TEST(Store, ShowsFilesAndTheirTrees) {
  const auto folder = FolderWith({"a.safetensors"});
  folder->files["notes.txt"] = {"notes", "1"};
  Kernel kernel(folder);
  EXPECT_THAT(kernel.List(Tree::kRoot),
              ElementsAre("a.safetensors", "a.safetensors.d", "notes.txt"));
  EXPECT_EQ(kernel.Contents("notes.txt"), "notes");
  EXPECT_EQ(kernel.Contents("a.safetensors"), Model("a.safetensors"));
  EXPECT_EQ(kernel.reads(), 0);
  EXPECT_EQ(kernel.Contents("a.safetensors.d/t"), "s");
  EXPECT_THAT(kernel.List(kernel.Lookup("a.safetensors.d")), ElementsAre("t"));
  EXPECT_EQ(kernel.reads(), 1);
  EXPECT_EQ(kernel.Lookup("notes.txt.d"), 0U);
  EXPECT_EQ(kernel.Lookup("nothing"), 0U);
  EXPECT_EQ(kernel.Lookup("a.safetensors.d/nothing"), 0U);
}

TEST(Store, RenamesTheTreeIfAFileHasItsName) {
  const auto folder = FolderWith({"a.safetensors"});
  folder->files["a.safetensors.d"] = {"a file", "1"};
  Kernel kernel(folder);
  EXPECT_THAT(kernel.List(Tree::kRoot),
              ElementsAre("a.safetensors", "a.safetensors.d~", "a.safetensors.d"));
  EXPECT_EQ(kernel.Contents("a.safetensors.d"), "a file");
  EXPECT_EQ(kernel.Contents("a.safetensors.d~/t"), "s");
  EXPECT_EQ(kernel.Lookup("a.safetensors.d~~"), 0U);
}

TEST(Store, ShowsTheErrorOfACheckpoint) {
  const auto folder = FolderWith({"good.safetensors"});
  folder->files["bad.safetensors"] = {Model("broken"), "1"};
  Kernel kernel(folder);
  EXPECT_EQ(kernel.Contents("bad.safetensors.d/error.txt"), "memory: broken\n");
  EXPECT_EQ(kernel.Lookup("bad.safetensors.d/t"), 0U);
  EXPECT_EQ(kernel.Contents("good.safetensors.d/t"), "s");
}

TEST(Store, ReadsACheckpointAgainAfterAPassingError) {
  const auto folder = FolderWith({});
  folder->files["a.safetensors"] = {Model("away"), "1"};
  Kernel kernel(folder);
  const uint64_t directory = kernel.Lookup("a.safetensors.d");
  EXPECT_THROW(kernel.Lookup(directory, "t"), Error);
  EXPECT_THROW(kernel.List(directory), Error);
  folder->files["a.safetensors"].bytes = Model("here");
  EXPECT_EQ(kernel.Contents(kernel.Lookup(directory, "t")), "e");
}

TEST(Store, KeepsOldVersionsOfReplacedFiles) {
  const auto folder = FolderWith({"a.safetensors"});
  Kernel kernel(folder);
  const uint64_t old_tensor = kernel.Lookup("a.safetensors.d/t");
  const uint64_t old_file = kernel.Lookup("a.safetensors");
  folder->files["a.safetensors"] = {Model("new"), "2"};
  const uint64_t new_tensor = kernel.Lookup("a.safetensors.d/t");
  EXPECT_NE(new_tensor, old_tensor);
  EXPECT_EQ(kernel.Contents(new_tensor), "w");
  EXPECT_EQ(kernel.Contents(old_tensor), "s");
  EXPECT_NE(kernel.Lookup("a.safetensors"), old_file);
  EXPECT_THROW(kernel.Contents(old_file), Error);  // It was never opened.
  kernel.ForgetAll();
  EXPECT_THAT(kernel.store().Status(), HasSubstr("1 in memory"));
  EXPECT_THAT(kernel.store().Status(), HasSubstr(" 0 lookups held"));
}

TEST(Store, ForgetsRemovedFiles) {
  const auto folder = FolderWith({"a.safetensors"});
  Kernel kernel(folder);
  EXPECT_NE(kernel.Lookup("a.safetensors.d/t"), 0U);
  folder->files.clear();
  EXPECT_EQ(kernel.Lookup("a.safetensors.d"), 0U);
  EXPECT_THAT(kernel.List(Tree::kRoot), IsEmpty());
}

TEST(Store, DropsUnusedTreesFirst) {
  Kernel kernel(FolderWith({"a.npy", "b.safetensors", "c.safetensors"}), 2 * Kernel::kTree);
  EXPECT_EQ(kernel.Contents("b.safetensors.d/t"), "s");
  kernel.ForgetAll();
  EXPECT_EQ(kernel.Contents("c.safetensors.d/t"), "s");
  EXPECT_EQ(kernel.Contents("b.safetensors.d/t"), "s");
  EXPECT_EQ(kernel.reads(), 2);
  EXPECT_THAT(kernel.TakeUnwanted(), IsEmpty());
}

TEST(Store, AsksTheKernelToForgetTreesInUse) {
  Kernel kernel(FolderWith({"a.safetensors", "b.safetensors", "c.safetensors"}), 2 * Kernel::kTree);
  const uint64_t a = kernel.Lookup("a.safetensors.d/t");
  kernel.Lookup("b.safetensors.d/t");
  EXPECT_THAT(kernel.TakeUnwanted(), IsEmpty());
  kernel.Lookup("c.safetensors.d/t");
  EXPECT_THAT(kernel.TakeUnwanted(), ElementsAre("a.safetensors.d"));
  EXPECT_EQ(kernel.Contents(a), "s");  // It is open.
  kernel.Forget(a);
  EXPECT_THROW(kernel.store().Find(a), Error);
  EXPECT_THAT(kernel.store().Status(), HasSubstr("2 in memory"));
}

TEST(Store, KeepsATreeWhileItIsListed) {
  Kernel kernel(FolderWith({"a.safetensors", "b.safetensors"}), Kernel::kTree / 2);
  const auto view = kernel.store().List(kernel.Lookup("a.safetensors.d"), true);
  kernel.Lookup("b.safetensors.d/t");
  EXPECT_EQ(view->entries.front().name, "t");
  EXPECT_NO_THROW(kernel.store().Find(view->base + view->entries.front().inode));
}

TEST(Store, OmitsFilesOnRequest) {
  Options options;
  options.store = StoreMode::kTrees;
  Log log;
  Store store(
      FolderWith({"a.safetensors"}), options, 0,
      [](const Source&) -> TreeReader::Result { Fail(EBADMSG, "unused"); }, log);
  const auto view = store.List(Tree::kRoot, true);
  ASSERT_EQ(view->entries.size(), 1U);
  EXPECT_EQ(view->entries.front().name, "a.safetensors.d");
  EXPECT_EQ(store.Lookup(Tree::kRoot, "a.safetensors", true)->number, 0U);
}

TEST(HidingFolder, HidesADirectoryOnly) {
  const FolderPtr folder = MakeHidingFolder(
      FolderOf({{"a/mnt/x", ""}, {"a/y", ""}, {"mnt/x", ""}, {"z", ""}}).folder, "a/mnt");
  EXPECT_THAT(folder->ListFolders(), ElementsAre("a", "mnt"));
  EXPECT_TRUE(folder->Find("a"));
  const FolderPtr below = folder->OpenFolder("a");
  EXPECT_THAT(below->List(), ElementsAre("y"));
  EXPECT_THAT(below->ListFolders(), IsEmpty());
  EXPECT_FALSE(below->Find("mnt"));
  EXPECT_EQ(below->OpenFolder("mnt"), nullptr);
  EXPECT_NE(folder->OpenFolder("mnt"), nullptr);
}

// Events of a small model: two checkpoints, room for one tree.
enum class Event { kLookUpA, kLookUpB, kReplaceA, kForgetSome, kForgetAll, kRemoveB };

// Runs events, and checks after each that what the kernel knows can be found and read, that the
// newest version is found, and, at the end, that nothing leaks.
void Check(std::span<const Event> events) {
  const auto folder = FolderWith({"a.safetensors", "b.safetensors"});
  Kernel kernel(folder, Kernel::kTree);
  std::map<uint64_t, std::string> expected;  // Contents of tensors by number.
  const auto look_up = [&](const std::string& name) {
    const auto file = folder->files.find(name);
    const uint64_t number = kernel.Lookup(name + ".d/t");
    ASSERT_EQ(number != 0, file != folder->files.end());
    if (number == 0) return;
    expected[number] = file->second.bytes.substr(file->second.bytes.size() - 1);
  };
  char version = '1';
  for (const Event event : events) {
    switch (event) {
      case Event::kLookUpA:
        look_up("a.safetensors");
        break;
      case Event::kLookUpB:
        look_up("b.safetensors");
        break;
      case Event::kReplaceA:
        ++version;
        folder->files["a.safetensors"] = {Model(std::string(1, version)), std::string(1, version)};
        break;
      case Event::kForgetSome:
        if (!kernel.references().empty()) kernel.Forget(kernel.references().rbegin()->first);
        break;
      case Event::kForgetAll:
        kernel.ForgetAll();
        break;
      case Event::kRemoveB:
        folder->files.erase("b.safetensors");
        break;
    }
    for (const auto& [number, count] : kernel.references()) {
      ASSERT_NO_THROW(kernel.store().Find(number));
      if (const auto tensor = expected.find(number); tensor != expected.end()) {
        ASSERT_EQ(kernel.Contents(number), tensor->second);
      }
    }
  }
  kernel.ForgetAll();
  ASSERT_THAT(kernel.store().Status(), HasSubstr(" 0 lookups held"));
  // The last tree may remain, and no other.
  ASSERT_THAT(kernel.store().Status(), testing::MatchesRegex("trees: [01] in memory.*"));
}

TEST(Store, IsRightInAllOrdersOfEvents) {
  std::array<Event, 8> events = {Event::kLookUpA,   Event::kLookUpA,  Event::kLookUpB,
                                 Event::kLookUpB,   Event::kReplaceA, Event::kForgetSome,
                                 Event::kForgetAll, Event::kRemoveB};
  int orders = 0;
  do {
    Check(events);
    ++orders;
    if (HasFatalFailure()) return;
  } while (std::ranges::next_permutation(events).found);
  EXPECT_EQ(orders, 10080);  // 8! / (2! * 2!)
}

}  // namespace
}  // namespace ckptfs
