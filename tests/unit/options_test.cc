#include "fs/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "parser/error.h"

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
  EXPECT_EQ(options.umask, 0U);
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

TEST(Options, TellWhatToDoAboutHashes) {
  EXPECT_EQ(Parse({"m.pth", "/mnt"}).verify, Verify::kOff);
  EXPECT_EQ(ParseList("verify=off").verify, Verify::kOff);
  EXPECT_EQ(ParseList("verify=warn").verify, Verify::kWarn);
  EXPECT_EQ(ParseList("verify=enforce").verify, Verify::kEnforce);
  EXPECT_EQ(ParseList("verify=enforce,verify=warn").verify, Verify::kWarn);
}

TEST(Options, RefuseToCheckHashesInAnUnknownWay) {
  EXPECT_THAT([] { ParseList("verify=maybe"); },
              ThrowsMessage<Error>(
                  "option verify: needs off, warn or enforce, got 'maybe'; see ckptfs -h"));
}

TEST(Options, TellTheOwnerInDecimalAndThePermissionsInOctal) {
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

TEST(Options, TellSizesInUnits) {
  const Options options = ParseList("memory=2G,cache_dir=/c,cache_size=512m");
  EXPECT_EQ(options.memory, uint64_t{2} << 30);
  EXPECT_EQ(options.cache_directory, "/c");
  EXPECT_EQ(options.cache_size, uint64_t{512} << 20);
  EXPECT_EQ(ParseList("memory=8388608").memory, uint64_t{8} << 20);
}

TEST(Options, TellWhenASizeIsNone) {
  const auto refuse = [](const char* list) { return [=] { ParseList(list); }; };
  const std::string sentence =
      "option memory: needs a size of at least 8m, such as 512m or 2g, got ";
  EXPECT_THAT(refuse("memory=7m"), ThrowsMessage<Error>(sentence + "'7m'; see ckptfs -h"));
  EXPECT_THAT(refuse("memory=1gb"), ThrowsMessage<Error>(sentence + "'1gb'; see ckptfs -h"));
  EXPECT_THAT(refuse("memory="), ThrowsMessage<Error>(sentence + "''; see ckptfs -h"));
  EXPECT_THAT(refuse("memory=99999999999t"),
              ThrowsMessage<Error>(sentence + "'99999999999t'; see ckptfs -h"));
  EXPECT_THAT(
      refuse("cache_size=1m"),
      ThrowsMessage<Error>("option cache_size: needs a size of at least 64m, such as 512m or "
                           "2g, got '1m'; see ckptfs -h"));
}

TEST(Options, SayHowSourcesAreReached) {
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

TEST(Options, OfFstabThatMeanNothingHereAreForgotten) {
  EXPECT_NO_THROW(ParseList(
      "ro,rw,nosuid,suid,nodev,dev,noexec,exec,sync,async,atime,noatime,relatime,defaults,"
      "default_permissions,_netdev,auto,noauto,user,user=joe,users,nouser,owner,group,"
      "x-systemd.requires=a.mount,x-gvfs-hide,comment=mine,fsname=a,subtype=b"));
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

TEST(Options, RefuseAMisspelledMountOption) {
  EXPECT_THAT([] { ParseList("ro,alow_other"); },
              ThrowsMessage<Error>("there is no option 'alow_other'; see ckptfs -h"));
}

TEST(Options, RefuseALetterThatDoesNotExist) {
  EXPECT_THAT(
      [] {
        Parse({"-fx", "m.pth", "/mnt"});
      },
      ThrowsMessage<Error>("there is no option '-x'; see ckptfs -h"));
}

TEST(Options, RefuseALongNameThatDoesNotExist) {
  EXPECT_THAT(
      [] {
        Parse({"--flat", "m.pth", "/mnt"});
      },
      ThrowsMessage<Error>("there is no option '--flat'; see ckptfs -h"));
}

TEST(Options, RefuseALetterOfTheHelperInTheProgram) {
  EXPECT_THAT(
      [] {
        Parse({"-n", "m.pth", "/mnt"});
      },
      ThrowsMessage<Error>("there is no option '-n'; see ckptfs -h"));
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
                  "option uid: needs a number from 0 to 4294967294, got 'joe'; see ckptfs -h"));
}

TEST(Options, RefuseTheOwnerThatIsNobodys) {
  EXPECT_THAT(
      [] { ParseList("gid=4294967295"); },
      ThrowsMessage<Error>(
          "option gid: needs a number from 0 to 4294967294, got '4294967295'; see ckptfs -h"));
}

TEST(Options, RefuseANegativeOwner) {
  EXPECT_THAT([] { ParseList("uid=-1"); },
              ThrowsMessage<Error>(
                  "option uid: needs a number from 0 to 4294967294, got '-1'; see ckptfs -h"));
}

TEST(Options, RefuseAnOwnerWithoutANumber) {
  EXPECT_THAT([] { ParseList("uid"); },
              ThrowsMessage<Error>(
                  "option uid: needs a number from 0 to 4294967294, got ''; see ckptfs -h"));
}

TEST(Options, RefusePermissionsThatAreNotOctal) {
  EXPECT_THAT([] { ParseList("umask=028"); },
              ThrowsMessage<Error>(
                  "option umask: needs an octal number from 0 to 777, got '028'; see ckptfs -h"));
}

TEST(Options, RefusePermissionsThatAreTooMany) {
  EXPECT_THAT([] { ParseList("umask=1000"); },
              ThrowsMessage<Error>(
                  "option umask: needs an octal number from 0 to 777, got '1000'; see ckptfs -h"));
}

TEST(Options, RefuseAFileOfAKeyWithoutAName) {
  EXPECT_THAT([] { ParseList("key_file"); },
              ThrowsMessage<Error>("option key_file: needs a value; see ckptfs -h"));
}

TEST(Options, RefuseAFileOfAPassphraseWithoutAName) {
  EXPECT_THAT([] { ParseList("passphrase_file="); },
              ThrowsMessage<Error>("option passphrase_file: needs a value; see ckptfs -h"));
}

TEST(Options, RefuseAKeyAndAPassphrase) {
  EXPECT_THAT([] { ParseList("key_file=a,passphrase_file=b"); },
              ThrowsMessage<Error>("options key_file and passphrase_file: a checkpoint has one of "
                                   "them; see ckptfs -h"));
}

TEST(Options, CountTheOperands) {
  EXPECT_THAT(
      [] { Parse({"m.pth"}); },
      ThrowsMessage<Error>("needs a checkpoint and a mount point, got 1 operands; see ckptfs -h"));
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

TEST(Options, AreInTheUsage) {
  EXPECT_EQ(Usage(), R"(usage: ckptfs [-fd] [-o OPTION,...] CHECKPOINT MOUNTPOINT
Shows a checkpoint as a directory of raw tensor files, without unpacking it.
Unmount with: fusermount3 -u MOUNTPOINT

  -f                       stay in the foreground
  -d                       stay in the foreground and tell every request
  -h, --help               print this and exit
  -V, --version            print the version and exit
  -o flat                  do not make directories of the dots in names
  -o xattr                 tell dtype, shape and more as extended attributes
  -o strict                do not mount if a tensor is damaged or missing
  -o allow_other           let other users read the mount
  -o auto_unmount          unmount even if ckptfs is killed
  -o nonempty              mount over files or over another mount
  -o nofail                a missing checkpoint is no failure
  -o download              fetch all of it first if a server has no ranges
  -o no_sign               S3: ask as nobody in particular
  -o requester_pays        S3: pay for what is fetched
  -o path_style            S3: the bucket is in the path
  -o uid=N                 owner of all files
  -o gid=N                 group of all files
  -o umask=N               permissions that nobody has, in octal
  -o timeout=N             seconds for which a remote read is tried again
  -o key_file=FILE         the key of an encrypted checkpoint: 32 bytes
  -o passphrase_file=FILE  the passphrase of an encrypted checkpoint
  -o sidecar=FILE          where tensorizer.torch_compat has put the tensors
  -o memory=SIZE           for remote bytes, 256m if nothing is said
  -o cache_dir=DIR         keep remote bytes there, for the next mount
  -o cache_size=SIZE       of that directory at most, 10g if nothing is said
  -o cacert=FILE           certificates of servers that are trusted
  -o token_file=FILE       HTTP: a bearer token
  -o netrc=FILE            HTTP: users and passwords, instead of ~/.netrc
  -o endpoint=URL          S3: a server that is not Amazon's
  -o region=NAME           S3: where the bucket is
  -o profile=NAME          S3: of the files of the AWS tools
  -o verify=HOW            check what is read by its hashes: off, warn or enforce

exit status:
  0                        mounted
  1                        something unexpected, such as lack of memory
  2                        the command line is wrong
  3                        the checkpoint cannot be opened or read
  4                        it is no checkpoint in a format that ckptfs knows
  5                        the checkpoint is damaged
  6                        the checkpoint exceeds a limit
  7                        the mount point cannot be used
  8                        FUSE is not there, or the mount is not permitted
)");
}

TEST(Options, EscapeCommasInTheListForLibfuse) {
  EXPECT_EQ(EscapedOption("/a,b\\c.pth"), "/a\\,b\\\\c.pth");
}

}  // namespace
}  // namespace ckptfs
