#include "fs/options.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "fs/option_table.h"
#include "parser/base/error.h"

namespace ckptfs {
namespace {

using testing::ThrowsMessage;

Options Parse(const std::vector<const char*>& arguments) {
  return ParseOptions("/usr/bin/ckptfs", arguments);
}

Options ParseAsHelper(const std::vector<const char*>& arguments) {
  return ParseOptions("/sbin/mount.ckptfs", arguments);
}

Options ParseList(const char* list) { return Parse({"-o", list, "m.pth", "/mnt"}); }

TEST(Options, ComeBeforeOrAfterOrBetweenTheOperands) {
  const Options options = Parse({"-f", "m.pth", "-o", "flat", "/mnt", "-oxattr"});
  EXPECT_EQ(options.source, "m.pth");
  EXPECT_EQ(options.mountpoint, "/mnt");
  EXPECT_TRUE(options.foreground);
  EXPECT_TRUE(options.flat);
  EXPECT_TRUE(options.xattr);
}

TEST(Options, AreOffUnlessTheyAreGiven) {
  const Options options = Parse({"m.pth", "/mnt"});
  EXPECT_FALSE(options.help);
  EXPECT_FALSE(options.version);
  EXPECT_FALSE(options.foreground);
  EXPECT_FALSE(options.debug);
  EXPECT_FALSE(options.is_fake);
  EXPECT_FALSE(options.no_fail);
  EXPECT_FALSE(options.allow_other);
  EXPECT_FALSE(options.auto_unmount);
  EXPECT_FALSE(options.nonempty);
  EXPECT_FALSE(options.strict);
  EXPECT_FALSE(options.flat);
  EXPECT_FALSE(options.xattr);
  EXPECT_FALSE(options.uid.has_value());
  EXPECT_FALSE(options.gid.has_value());
  EXPECT_EQ(options.umask, std::nullopt);
  EXPECT_EQ(options.key_file, "");
  EXPECT_EQ(options.passphrase_file, "");
}

TEST(Options, LettersMayShareAWord) {
  const Options options = Parse({"-fdoflat,xattr", "m.pth", "/mnt"});
  EXPECT_TRUE(options.foreground);
  EXPECT_TRUE(options.debug);
  EXPECT_TRUE(options.flat);
  EXPECT_TRUE(options.xattr);
}

TEST(Options, EachListAddsToTheOnesBefore) {
  const Options options =
      Parse({"-o", "allow_other", "-o", "auto_unmount,nonempty,nofail", "m.pth", "/mnt"});
  EXPECT_TRUE(options.allow_other);
  EXPECT_TRUE(options.auto_unmount);
  EXPECT_TRUE(options.nonempty);
  EXPECT_TRUE(options.no_fail);
}

TEST(Options, MayAskForAllTensorsToBeSound) { EXPECT_TRUE(ParseList("strict").strict); }

TEST(Options, ParseVerify) {
  EXPECT_EQ(Parse({"m.pth", "/mnt"}).verify, Verify::kOff);
  EXPECT_EQ(ParseList("verify=off").verify, Verify::kOff);
  EXPECT_EQ(ParseList("verify=warn").verify, Verify::kWarn);
  EXPECT_EQ(ParseList("verify=enforce").verify, Verify::kEnforce);
  EXPECT_EQ(ParseList("verify=enforce,verify=warn").verify, Verify::kWarn);
}

TEST(Options, RefuseToCheckHashesInAnUnknownWay) {
  EXPECT_THAT(
      [] { ParseList("verify=maybe"); },
      ThrowsMessage<Error>(
          "option verify: invalid value 'maybe' (expected off, warn or enforce); see ckptfs -h"));
}

TEST(Options, ParseTheOwnerInDecimalAndThePermissionsInOctal) {
  const Options options = ParseList("uid=1000,gid=0,umask=027");
  EXPECT_EQ(options.uid, 1000U);
  EXPECT_EQ(options.gid, 0U);
  EXPECT_EQ(options.umask, 027U);
}

TEST(Options, NameTheFileOfAKey) { EXPECT_EQ(ParseList("key_file=/a=b\\,c").key_file, "/a=b,c"); }

TEST(Options, NameTheFileOfAPassphrase) {
  EXPECT_EQ(ParseList("passphrase_file=/dev/fd/3").passphrase_file, "/dev/fd/3");
  EXPECT_EQ(ParseList("sidecar=a.tensors").sidecar, "a.tensors");
}

TEST(Options, ParseSizesWithUnits) {
  const Options options = ParseList("memory=2G,cache_dir=/c,cache_size=512m");
  EXPECT_EQ(options.memory, uint64_t{2} << 30);
  EXPECT_EQ(options.cache_directory, "/c");
  EXPECT_EQ(options.cache_size, uint64_t{512} << 20);
  EXPECT_EQ(ParseList("memory=8388608").memory, uint64_t{8} << 20);
}

TEST(Options, RefuseInvalidSizes) {
  const auto expect_refused = [](const char* size) {
    EXPECT_THAT([&] { ParseList(fmt::format("memory={}", size).c_str()); },
                ThrowsMessage<Error>(fmt::format("option memory: invalid size '{}' (expected 8m or "
                                                 "more, such as 512m or 2g); see ckptfs -h",
                                                 size)));
  };
  expect_refused("7m");
  expect_refused("1gb");
  expect_refused("g");
  expect_refused("-1g");
  expect_refused("99999999999t");
}

TEST(Options, ConfigureSources) {
  const SourceOptions sources =
      ParseList(
          "timeout=20,download,cacert=/ca.pem,token_file=/t,netrc=/n,endpoint=http://h:1,"
          "region=eu-west-1,profile=me,no_sign,requester_pays,path_style")
          .sources;
  EXPECT_EQ(sources.timeout, std::chrono::seconds(20));
  EXPECT_TRUE(sources.download);
  EXPECT_EQ(sources.ca_file, "/ca.pem");
  EXPECT_EQ(sources.token_file, "/t");
  EXPECT_EQ(sources.netrc_file, "/n");
  EXPECT_EQ(sources.s3_endpoint, "http://h:1");
  EXPECT_EQ(sources.s3_region, "eu-west-1");
  EXPECT_EQ(sources.s3_profile, "me");
  EXPECT_TRUE(sources.s3_anonymous);
  EXPECT_TRUE(sources.s3_requester_pays);
  EXPECT_TRUE(sources.s3_path_style);
}

TEST(Options, EndAtTwoDashes) {
  const Options options = Parse({"-f", "--", "-o", "-m.pth"});
  EXPECT_EQ(options.source, "-o");
  EXPECT_EQ(options.mountpoint, "-m.pth");
}

TEST(Options, TakeALoneDashForAName) { EXPECT_EQ(Parse({"-", "/mnt"}).source, "-"); }

TEST(Options, OfMountAndFstabAreIgnored) {
  EXPECT_NO_THROW(ParseList(
      "ro,rw,nosuid,suid,nodev,dev,noexec,exec,sync,async,atime,noatime,relatime,defaults,"
      "default_permissions,_netdev,auto,noauto,user,user=joe,users,nouser,owner,group,"
      "x-systemd.requires=a.mount,x-gvfs-hide,X-mount.mkdir=0755,comment=mine,fsname=a,subtype=b"));
}

TEST(Options, OfOtherFusePrograms) {
  EXPECT_NO_THROW(ParseList(
      "kernel_cache,auto_cache,noauto_cache,max_read=131072,max_write=1,max_readahead=2,"
      "max_background=3,congestion_threshold=4,entry_timeout=1.5,attr_timeout=2,"
      "ac_attr_timeout=3,negative_timeout=4,noforget,remember=5,hard_remove,big_writes,large_read,"
      "use_ino,readdir_ino,intr,intr_signal=10,clone_fd,max_threads=1,max_idle_threads=10,"
      "sync_read,async_read,splice_read,no_splice_move,no_remote_lock,readonly"));
  EXPECT_NO_THROW(Parse({"-s", "m.pth", "/mnt"}));
  EXPECT_TRUE(ParseList("debug").debug);
}

TEST(Options, OfOtherFuseProgramsThatWouldDoOtherwiseAreRefused) {
  EXPECT_THAT([] { ParseList("direct_io"); },
              ThrowsMessage<Error>("option direct_io: not supported: mmap needs the page cache; "
                                   "see ckptfs -h"));
  EXPECT_THAT([] { ParseList("allow_root"); },
              ThrowsMessage<Error>("option allow_root: not supported: use allow_other, and umask "
                                   "for permissions; see ckptfs -h"));
  EXPECT_THAT([] { ParseList("fmask=0133"); },
              ThrowsMessage<Error>("option fmask: not supported: use umask; see ckptfs -h"));
}

TEST(Options, TakeACommaAfterABackslashForAPartOfTheWord) {
  EXPECT_TRUE(ParseList("comment=a\\,b\\\\,flat").flat);
}

TEST(Options, MayBeEmptyInAList) { EXPECT_TRUE(ParseList(",,flat,").flat); }

TEST(Options, NeedNoOperandsForHelpAndVersion) {
  EXPECT_TRUE(Parse({"-h"}).help);
  EXPECT_TRUE(Parse({"--help"}).help);
  EXPECT_TRUE(Parse({"-V"}).version);
  EXPECT_TRUE(Parse({"--version"}).version);
}

TEST(Options, SuggestTheMountOptionThatIsMeant) {
  const auto expect = [](const char* list, std::string_view unknown, std::string_view meant) {
    EXPECT_THAT([&] { ParseList(list); },
                ThrowsMessage<Error>(fmt::format(
                    "unknown option '{}' (did you mean '{}'?); see ckptfs -h", unknown, meant)));
  };
  expect("ro,alow_other", "alow_other", "allow_other");
  expect("xatr", "xatr", "xattr");
  expect("kernel-cache", "kernel-cache", "kernel_cache");
  expect("Flat", "Flat", "flat");
  expect("token=/t", "token", "token_file");
  expect("mermory=1g", "mermory", "memory");
  expect("cahce_dir=/c", "cahce_dir", "cache_dir");
}

TEST(Options, SuggestNothingWhereNothingIsNear) {
  EXPECT_THAT([] { ParseList("reconnect"); },
              ThrowsMessage<Error>("unknown option 'reconnect'; see ckptfs -h"));
  EXPECT_THAT([] { ParseList("=1"); }, ThrowsMessage<Error>("unknown option ''; see ckptfs -h"));
}

TEST(Options, RefuseALetterThatDoesNotExist) {
  EXPECT_THAT(
      [] {
        Parse({"-fx", "m.pth", "/mnt"});
      },
      ThrowsMessage<Error>("unknown option '-x'; see ckptfs -h"));
}

TEST(Options, SuggestTheIntendedOption) {
  const auto expect = [](const char* word, std::string_view unknown, std::string_view meant) {
    EXPECT_THAT(
        [&] {
          Parse({word, "m.pth", "/mnt"});
        },
        ThrowsMessage<Error>(fmt::format("unknown option '{}' (did you mean '{}'?); see ckptfs -h",
                                         unknown, meant)));
  };
  expect("--allow-other", "--allow-other", "-o allow_other");
  expect("--flat", "--flat", "-o flat");
  expect("--umask=022", "--umask=022", "-o umask");
  expect("--hepl", "--hepl", "--help");
  expect("-allow_other", "-a", "-o allow_other");
}

TEST(Options, RefuseALetterOfTheHelperInTheProgram) {
  EXPECT_THAT(
      [] {
        Parse({"-n", "m.pth", "/mnt"});
      },
      ThrowsMessage<Error>("unknown option '-n'; see ckptfs -h"));
}

TEST(Options, RefuseAListThatIsNotThere) {
  EXPECT_THAT(
      [] {
        Parse({"m.pth", "/mnt", "-o"});
      },
      ThrowsMessage<Error>("option -o: needs a value; see ckptfs -h"));
}

TEST(Options, RefuseAValueForAnOptionWithoutOne) {
  EXPECT_THAT([] { ParseList("flat=yes"); },
              ThrowsMessage<Error>("option flat: takes no value; see ckptfs -h"));
}

TEST(Options, RefuseAnOwnerThatIsANameAndNoNumber) {
  EXPECT_THAT([] { ParseList("uid=joe"); },
              ThrowsMessage<Error>(
                  "option uid: invalid number 'joe' (expected 0 to 4294967294); see ckptfs -h"));
}

TEST(Options, RejectTheReservedOwner) {
  EXPECT_THAT(
      [] { ParseList("gid=4294967295"); },
      ThrowsMessage<Error>(
          "option gid: invalid number '4294967295' (expected 0 to 4294967294); see ckptfs -h"));
}

TEST(Options, RefuseANegativeOwner) {
  EXPECT_THAT([] { ParseList("uid=-1"); },
              ThrowsMessage<Error>(
                  "option uid: invalid number '-1' (expected 0 to 4294967294); see ckptfs -h"));
}

TEST(Options, RefusePermissionsThatAreNotOctal) {
  EXPECT_THAT([] { ParseList("umask=028"); },
              ThrowsMessage<Error>(
                  "option umask: invalid number '028' (expected octal 0 to 777); see ckptfs -h"));
}

TEST(Options, RefusePermissionsThatAreTooMany) {
  EXPECT_THAT([] { ParseList("umask=1000"); },
              ThrowsMessage<Error>(
                  "option umask: invalid number '1000' (expected octal 0 to 777); see ckptfs -h"));
}

TEST(Options, RefuseMissingValues) {
  const auto expect_refused = [](const char* word, std::string_view usage) {
    EXPECT_THAT([&] { ParseList(word); },
                ThrowsMessage<Error>(fmt::format("option {}: needs a value: {}; see ckptfs -h",
                                                 usage.substr(0, usage.find('=')), usage)));
  };
  expect_refused("uid", "uid=N");
  expect_refused("memory=", "memory=SIZE");
  expect_refused("key_file", "key_file=FILE");
  expect_refused("passphrase_file=", "passphrase_file=FILE");
  expect_refused("verify", "verify=HOW");
}

TEST(Options, RefuseAKeyAndAPassphrase) {
  EXPECT_THAT([] { ParseList("key_file=a,passphrase_file=b"); },
              ThrowsMessage<Error>("options key_file and passphrase_file are mutually exclusive; "
                                   "see ckptfs -h"));
}

TEST(Options, CountTheOperands) {
  EXPECT_THAT(
      [] { Parse({}); },
      ThrowsMessage<Error>("needs a checkpoint and a mount point, got 0 operands; see ckptfs -h"));
  EXPECT_THAT(
      [] {
        Parse({"a", "b", "c"});
      },
      ThrowsMessage<Error>("needs a checkpoint and a mount point, got 3 operands; see ckptfs -h"));
  EXPECT_THAT(
      [] {
        Parse({"-u", "a", "b"});
      },
      ThrowsMessage<Error>("-u needs a mount point, got 2 operands; see ckptfs -h"));
}

TEST(Options, UnmountOneMountPoint) {
  const Options options = Parse({"-u", "mnt"});
  EXPECT_TRUE(options.unmount);
  EXPECT_EQ(options.mountpoint, "mnt");
  EXPECT_EQ(options.source, "");
}

TEST(Options, MakeAMountPointOfTheNameOfTheCheckpoint) {
  const auto mountpoint_of = [](const char* source) { return Parse({source}).mountpoint; };
  EXPECT_EQ(mountpoint_of("model.pth"), "model");
  EXPECT_EQ(mountpoint_of("/data/model.v1.2.safetensors"), "model.v1.2");
  EXPECT_EQ(mountpoint_of("a/model.safetensors.index.json"), "model");
  EXPECT_EQ(mountpoint_of("model.tar.gz"), "model");
  EXPECT_EQ(mountpoint_of("/data/llama-3.1/"), "llama-3.1");
  EXPECT_EQ(mountpoint_of("/data/llama/.metadata"), "llama");
  EXPECT_EQ(mountpoint_of("https://host/a/model.zanj?token=x/y.pth"), "model");
  EXPECT_EQ(mountpoint_of("s3://bucket/run/llama/"), "llama");
  EXPECT_EQ(mountpoint_of("redis://host/prefix"), "prefix");
  EXPECT_EQ(mountpoint_of("redis://host/a%20b"), "a%20b");
  EXPECT_EQ(mountpoint_of("file:///x/a%20b.pth"), "a b");
  EXPECT_EQ(mountpoint_of("file:///x/a%2Fb%3Fc.pth"), "b?c");
  EXPECT_EQ(mountpoint_of("file:///x/a?b#c.pth"), "a?b#c");
  EXPECT_EQ(mountpoint_of("https://host/a%20b.pth"), "a b");
  EXPECT_EQ(mountpoint_of("a%20b.pth"), "a%20b");
  EXPECT_EQ(mountpoint_of("llama-00001-of-00003.gguf"), "llama");
  EXPECT_EQ(mountpoint_of("http://host/llama-00002-of-00003.gguf"), "llama");
  EXPECT_EQ(mountpoint_of("llama-00001-of-00003.safetensors"), "llama-00001-of-00003");
  EXPECT_EQ(mountpoint_of("x/-00001-of-00003.gguf"), "-00001-of-00003");
  EXPECT_EQ(mountpoint_of("llama-0000x-of-00003.gguf"), "llama-0000x-of-00003");
  for (const char* nameless : {".", "..", "/", "https://host/", "s3://bucket", "/.pth"}) {
    SCOPED_TRACE(nameless);
    EXPECT_THROW(mountpoint_of(nameless), Error);
  }
}

TEST(Options, FollowFewerLinksIfOthersMayRead) {
  EXPECT_EQ(ParseList("flat").sources.links, LinkPolicy::kOwned);
  EXPECT_EQ(ParseList("allow_other").sources.links, LinkPolicy::kInside);
  EXPECT_EQ(ParseList("follow_links,allow_other").sources.links, LinkPolicy::kAll);
}

TEST(Options, RefuseAnEmptyNameOfACheckpoint) {
  EXPECT_THAT(
      [] {
        Parse({"", "/mnt"});
      },
      ThrowsMessage<Error>("the name of the checkpoint is empty; see ckptfs -h"));
}

TEST(Options, RefuseAnEmptyNameOfAMountPoint) {
  EXPECT_THAT(
      [] {
        Parse({"m.pth", ""});
      },
      ThrowsMessage<Error>("the name of the mount point is empty; see ckptfs -h"));
}

TEST(Options, OfAMountHelperAreThoseThatMountPasses) {
  const Options options = ParseAsHelper(
      {"m.pth", "/mnt", "-s", "-n", "-v", "-N", "/proc/1/ns/mnt", "-t", "ckptfs", "-o", "rw,flat"});
  EXPECT_EQ(options.source, "m.pth");
  EXPECT_EQ(options.mountpoint, "/mnt");
  EXPECT_TRUE(options.flat);
  EXPECT_FALSE(options.is_fake);
}

TEST(Options, OfAMountHelperHaveAnotherMeaningOfF) {
  const Options options = ParseAsHelper({"m.pth", "/mnt", "-sfnv"});
  EXPECT_TRUE(options.is_fake);
  EXPECT_FALSE(options.foreground);
}

TEST(Usage, HasEachOptionOnce) {
  const std::string usage = Usage();
  const auto count = [&](const std::string& text) {
    size_t found = 0;
    for (size_t at = usage.find(text); at != std::string::npos; at = usage.find(text, at + 1)) {
      ++found;
    }
    return found;
  };
  for (const MountOption& option : MountOptions()) {
    const std::string_view next = option.value.empty() ? " " : "=";
    const std::string_view end = option.value.starts_with('[') ? "[=" : next;
    EXPECT_EQ(count(fmt::format("\n  -o {}{}", option.name, end)), 1U) << option.name;
    EXPECT_EQ(count(fmt::format("\n{}:\n", option.group)), 1U) << option.name;
  }
  for (const ExitStatus& status : ExitStatuses()) EXPECT_EQ(count(std::string(status.help)), 1U);
}

TEST(Usage, FitsIntoATerminal) {
  std::istringstream usage(Usage());
  for (std::string line; std::getline(usage, line);) {
    EXPECT_LE(line.size(), 80U) << line;
  }
}

TEST(Options, EscapeCommasInTheListForLibfuse) {
  EXPECT_EQ(EscapedOption("/a,b\\c.pth"), "/a\\,b\\\\c.pth");
}

}  // namespace
}  // namespace ckptfs
