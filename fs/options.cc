// Options are written as for mount(8) and for other FUSE programs, and they come from three sides:
// people write `ckptfs -f -o flat m.pth /mnt`, mount(8) calls `mount.ckptfs m.pth /mnt -o rw,...`
// and passes whatever fstab says, and programs put the operands anywhere. Most of what mount(8)
// passes is about the device or about writing and means nothing here, so it is accepted and
// forgotten. What nobody knows is an error: a misspelled option must not go unnoticed.

#include "fs/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <limits>
#include <utility>
#include <vector>

#include "parser/error.h"

namespace ckptfs {
namespace {

struct Switch {
  char letter;
  std::string_view long_name;  // May be empty.
  std::string_view help;
  bool Options::*member;
};

constexpr Switch kSwitches[] = {
    {'f', "", "stay in the foreground", &Options::foreground},
    {'d', "", "stay in the foreground and tell every request", &Options::debug},
    {'h', "help", "print this and exit", &Options::help},
    {'V', "version", "print the version and exit", &Options::version},
};

// Of a mount helper. Those without a member: quiet about what a helper may ignore.
constexpr Switch kHelperSwitches[] = {
    {'f', "", "", &Options::is_fake},
    {'h', "help", "", &Options::help},
    {'V', "version", "", &Options::version},
    {'s', "", "", nullptr},
    {'n', "", "", nullptr},
    {'v', "", "", nullptr},
};
constexpr std::string_view kHelperLettersWithValue = "Nt";  // A namespace and the type; ignored.

// What follows -o.
struct MountFlag {
  std::string_view name;
  std::string_view help;
  bool Options::*member;
};

constexpr MountFlag kMountFlags[] = {
    {"flat", "do not make directories of the dots in names", &Options::flat},
    {"xattr", "tell dtype, shape and more as extended attributes", &Options::xattr},
    {"strict", "do not mount if a tensor is damaged or missing", &Options::strict},
    {"allow_other", "let other users read the mount", &Options::allow_other},
    {"auto_unmount", "unmount even if ckptfs is killed", &Options::auto_unmount},
    {"nonempty", "mount over files or over another mount", &Options::nonempty},
    {"nofail", "a missing checkpoint is no failure", &Options::no_fail},
};

// Of remote checkpoints.
struct SourceFlag {
  std::string_view name;
  std::string_view help;
  bool SourceOptions::*member;
};

constexpr SourceFlag kSourceFlags[] = {
    {"download", "fetch all of it first if a server has no ranges", &SourceOptions::download},
    {"no_sign", "S3: ask as nobody in particular", &SourceOptions::s3_anonymous},
    {"requester_pays", "S3: pay for what is fetched", &SourceOptions::s3_requester_pays},
    {"path_style", "S3: the bucket is in the path", &SourceOptions::s3_path_style},
};

struct MountValue {
  std::string_view name;
  std::string_view help;
  int base;
  uint32_t most;
  void (*set)(Options& options, uint32_t number);
};

constexpr uint32_t kMostTimeout = 7 * 24 * 3600;

constexpr uint32_t kMostId = std::numeric_limits<uint32_t>::max() - 1;  // -1 is nobody's.

constexpr MountValue kMountValues[] = {
    {"uid", "owner of all files", 10, kMostId, [](Options& o, uint32_t n) { o.uid = n; }},
    {"gid", "group of all files", 10, kMostId, [](Options& o, uint32_t n) { o.gid = n; }},
    {"umask", "permissions that nobody has, in octal", 8, 0777,
     [](Options& o, uint32_t n) { o.umask = n; }},
    {"timeout", "seconds for which a remote read is tried again", 10, kMostTimeout,
     [](Options& o, uint32_t n) { o.sources.timeout = std::chrono::seconds(n); }},
};

struct MountText {
  std::string_view name;
  std::string_view value;  // As the help shows it: "FILE".
  std::string_view help;
  void (*set)(Options& options, std::string_view text);
};

void SetVerify(Options& options, std::string_view text) {
  constexpr std::pair<std::string_view, Verify> kWords[] = {
      {"off", Verify::kOff}, {"warn", Verify::kWarn}, {"enforce", Verify::kEnforce}};
  const auto found = std::ranges::find(kWords, text, &std::pair<std::string_view, Verify>::first);
  if (found == std::end(kWords)) {
    Fail(EINVAL, "option verify: needs off, warn or enforce, got {}", Quoted(text));
  }
  options.verify = found->second;
}

void SetText(std::string& value, std::string_view option, std::string_view text) {
  if (text.empty()) Fail(EINVAL, "option {}: needs a value", option);
  value = text;
}

// Bytes: a number with k, m, g or t behind it, or nothing.
uint64_t SizeOf(std::string_view option, uint64_t least, std::string_view text) {
  constexpr std::string_view kUnits = "kmgt";
  uint64_t number = 0;
  const char* const end = text.data() + text.size();
  auto [stop, error] = std::from_chars(text.data(), end, number);
  unsigned shift = 0;
  if (error == std::errc() && stop != end) {
    const auto letter = static_cast<char>(*stop >= 'A' && *stop <= 'Z' ? *stop - 'A' + 'a' : *stop);
    const size_t unit = kUnits.find(letter);
    if (unit != std::string_view::npos) {
      shift = 10 * (static_cast<unsigned>(unit) + 1);
      ++stop;
    }
  }
  constexpr uint64_t kMost = uint64_t{1} << 50U;
  if (error != std::errc() || stop != end || number > (kMost >> shift) ||
      (number << shift) < least) {
    Fail(EINVAL, "option {}: needs a size of at least {}m, such as 512m or 2g, got {}", option,
         least >> 20U, Quoted(text));
  }
  return number << shift;
}

constexpr uint64_t kLeastMemory = uint64_t{8} << 20U;
constexpr uint64_t kLeastCache = uint64_t{64} << 20U;

constexpr MountText kMountTexts[] = {
    {"key_file", "FILE", "the key of an encrypted checkpoint: 32 bytes",
     [](Options& o, std::string_view text) { SetText(o.key_file, "key_file", text); }},
    {"passphrase_file", "FILE", "the passphrase of an encrypted checkpoint",
     [](Options& o, std::string_view text) {
       SetText(o.passphrase_file, "passphrase_file", text);
     }},
    {"sidecar", "FILE", "where tensorizer.torch_compat has put the tensors",
     [](Options& o, std::string_view text) { SetText(o.sidecar, "sidecar", text); }},
    {"memory", "SIZE", "for remote bytes, 256m if nothing is said",
     [](Options& o, std::string_view text) { o.memory = SizeOf("memory", kLeastMemory, text); }},
    {"cache_dir", "DIR", "keep remote bytes there, for the next mount",
     [](Options& o, std::string_view text) { SetText(o.cache_directory, "cache_dir", text); }},
    {"cache_size", "SIZE", "of that directory at most, 10g if nothing is said",
     [](Options& o, std::string_view text) {
       o.cache_size = SizeOf("cache_size", kLeastCache, text);
     }},
    {"cacert", "FILE", "certificates of servers that are trusted",
     [](Options& o, std::string_view text) { SetText(o.sources.ca_file, "cacert", text); }},
    {"token_file", "FILE", "HTTP: a bearer token",
     [](Options& o, std::string_view text) { SetText(o.sources.token_file, "token_file", text); }},
    {"netrc", "FILE", "HTTP: users and passwords, instead of ~/.netrc",
     [](Options& o, std::string_view text) { SetText(o.sources.netrc_file, "netrc", text); }},
    {"endpoint", "URL", "S3: a server that is not Amazon's",
     [](Options& o, std::string_view text) { SetText(o.sources.s3_endpoint, "endpoint", text); }},
    {"region", "NAME", "S3: where the bucket is",
     [](Options& o, std::string_view text) { SetText(o.sources.s3_region, "region", text); }},
    {"profile", "NAME", "S3: of the files of the AWS tools",
     [](Options& o, std::string_view text) { SetText(o.sources.s3_profile, "profile", text); }},
    {"verify", "HOW", "check what is read by its hashes: off, warn or enforce", SetVerify},
};

// What mount(8), fstab(5) and FUSE know and what changes nothing here: the mount is read-only,
// without devices and without set-user-ID, whatever they say.
constexpr std::string_view kIgnored[] = {
    "ro",       "rw",         "nosuid",     "suid",     "nodev",      "dev",
    "noexec",   "exec",       "sync",       "async",    "dirsync",    "atime",
    "noatime",  "diratime",   "nodiratime", "relatime", "norelatime", "strictatime",
    "lazytime", "nolazytime", "silent",     "loud",     "defaults",   "default_permissions",
    "auto",     "noauto",     "user",       "nouser",   "users",      "owner",
    "group",    "_netdev",    "comment",    "fsname",   "subtype",
};

struct ExitStatus {
  ExitCode code;
  std::string_view help;
};

constexpr ExitStatus kExitStatuses[] = {
    {ExitCode::kMounted, "mounted"},
    {ExitCode::kUnexpected, "something unexpected, such as lack of memory"},
    {ExitCode::kUsage, "the command line is wrong"},
    {ExitCode::kSource, "the checkpoint cannot be opened or read"},
    {ExitCode::kNoCheckpoint, "it is no checkpoint in a format that ckptfs knows"},
    {ExitCode::kDamaged, "the checkpoint is damaged"},
    {ExitCode::kTooLarge, "the checkpoint exceeds a limit"},
    {ExitCode::kMountpoint, "the mount point cannot be used"},
    {ExitCode::kFuse, "FUSE is not there, or the mount is not permitted"},
};

// Splits at commas; a backslash takes the next character as it is.
std::vector<std::string> SplitList(std::string_view list) {
  std::vector<std::string> words(1);
  for (size_t i = 0; i < list.size(); ++i) {
    if (list[i] == ',') {
      words.emplace_back();
    } else {
      if (list[i] == '\\' && i + 1 < list.size()) ++i;
      words.back() += list[i];
    }
  }
  return words;
}

void SetNumber(Options& options, const MountValue& option, std::string_view text) {
  uint32_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number, option.base);
  if (error != std::errc() || stop != end || number > option.most) {
    const bool is_octal = option.base == 8;
    const auto most = is_octal ? fmt::format("{:o}", option.most) : fmt::to_string(option.most);
    Fail(EINVAL, "option {}: needs {} number from 0 to {}, got {}", option.name,
         is_octal ? "an octal" : "a", most, Quoted(text));
  }
  option.set(options, number);
}

void SetMountOption(Options& options, std::string_view word) {
  const size_t equals = std::min(word.find('='), word.size());
  const std::string_view name = word.substr(0, equals);
  const bool has_value = equals != word.size();
  if (const auto* flag = std::ranges::find(kMountFlags, name, &MountFlag::name);
      flag != std::end(kMountFlags)) {
    if (has_value) Fail(EINVAL, "option {}: takes no value", name);
    options.*flag->member = true;
  } else if (const auto* source = std::ranges::find(kSourceFlags, name, &SourceFlag::name);
             source != std::end(kSourceFlags)) {
    if (has_value) Fail(EINVAL, "option {}: takes no value", name);
    options.sources.*source->member = true;
  } else if (const auto* value = std::ranges::find(kMountValues, name, &MountValue::name);
             value != std::end(kMountValues)) {
    SetNumber(options, *value, word.substr(std::min(equals + 1, word.size())));
  } else if (const auto* text = std::ranges::find(kMountTexts, name, &MountText::name);
             text != std::end(kMountTexts)) {
    text->set(options, word.substr(std::min(equals + 1, word.size())));
  } else if (!name.starts_with("x-") && std::ranges::count(kIgnored, name) == 0) {
    Fail(EINVAL, "there is no option {}", Quoted(name));
  }
}

void SetMountOptions(Options& options, std::string_view list) {
  for (const std::string& word : SplitList(list)) {
    if (!word.empty()) SetMountOption(options, word);
  }
}

class Parser {
 public:
  Parser(bool is_helper, std::span<const char* const> arguments)
      : is_helper_(is_helper),
        switches_(is_helper ? std::span<const Switch>(kHelperSwitches) : kSwitches),
        arguments_(arguments) {}

  Options Parse() {
    bool options_may_follow = true;
    while (!arguments_.empty()) {
      const std::string_view argument = TakeArgument();
      if (!options_may_follow || argument == "-" || !argument.starts_with('-')) {
        operands_.emplace_back(argument);
      } else if (argument == "--") {
        options_may_follow = false;
      } else if (argument.starts_with("--")) {
        SetLong(argument.substr(2));
      } else {
        SetLetters(argument.substr(1));
      }
    }
    if (!options_.key_file.empty() && !options_.passphrase_file.empty()) {
      Fail(EINVAL, "options key_file and passphrase_file: a checkpoint has one of them");
    }
    if (!options_.help && !options_.version) TakeOperands();
    return std::move(options_);
  }

 private:
  std::string_view TakeArgument() {
    const std::string_view argument = arguments_.front();
    arguments_ = arguments_.subspan(1);
    return argument;
  }

  void SetLong(std::string_view name) {
    const auto found = std::ranges::find(switches_, name, &Switch::long_name);
    if (found == switches_.end())
      Fail(EINVAL, "there is no option {}", Quoted(fmt::format("--{}", name)));
    options_.*found->member = true;
  }

  // One word may hold several letters, the last of which may take the rest as its value.
  void SetLetters(std::string_view letters) {
    while (!letters.empty()) {
      const char letter = letters.front();
      letters.remove_prefix(1);
      if (letter == 'o') return SetMountOptions(options_, ValueOf(letter, letters));
      if (is_helper_ && kHelperLettersWithValue.find(letter) != std::string_view::npos) {
        ValueOf(letter, letters);
        return;
      }
      const auto found = std::ranges::find(switches_, letter, &Switch::letter);
      if (found == switches_.end()) {
        Fail(EINVAL, "there is no option {}", Quoted(fmt::format("-{}", letter)));
      }
      if (found->member != nullptr) options_.*found->member = true;
    }
  }

  std::string_view ValueOf(char letter, std::string_view rest) {
    if (!rest.empty()) return rest;
    if (arguments_.empty()) Fail(EINVAL, "option -{}: needs a value", letter);
    return TakeArgument();
  }

  void TakeOperands() {
    if (operands_.size() != 2) {
      Fail(EINVAL, "needs a checkpoint and a mount point, got {} operands", operands_.size());
    }
    if (operands_[0].empty()) Fail(EINVAL, "the name of the checkpoint is empty");
    if (operands_[1].empty()) Fail(EINVAL, "the name of the mount point is empty");
    options_.source = std::move(operands_[0]);
    options_.mountpoint = std::move(operands_[1]);
  }

  const bool is_helper_;
  const std::span<const Switch> switches_;
  std::span<const char* const> arguments_;  // Those that are still to be read.
  std::vector<std::string> operands_;
  Options options_;
};

}  // namespace

Options ParseOptions(const std::string& program, std::span<const char* const> arguments) try {
  const size_t slash = program.rfind('/');
  const bool is_helper =
      program.compare(slash == std::string::npos ? 0 : slash + 1, 6, "mount.") == 0;
  return Parser(is_helper, arguments).Parse();
} catch (const Error& e) {
  throw Error(e.code(), fmt::format("{}; see ckptfs -h", e.what()));
}

std::string Usage() {
  std::string text =
      "usage: ckptfs [-fd] [-o OPTION,...] CHECKPOINT MOUNTPOINT\n"
      "Shows a checkpoint as a directory of raw tensor files, without unpacking it.\n"
      "Unmount with: fusermount3 -u MOUNTPOINT\n\n";
  const auto add = [&](std::string_view name, std::string_view help) {
    text += fmt::format("  {:<24} {}\n", name, help);
  };
  for (const Switch& option : kSwitches) {
    const auto is_long = !option.long_name.empty();
    add(fmt::format("-{}{}{}", option.letter, is_long ? ", --" : "", option.long_name),
        option.help);
  }
  for (const MountFlag& option : kMountFlags) {
    add(fmt::format("-o {}", option.name), option.help);
  }
  for (const SourceFlag& option : kSourceFlags) {
    add(fmt::format("-o {}", option.name), option.help);
  }
  for (const MountValue& option : kMountValues) {
    add(fmt::format("-o {}=N", option.name), option.help);
  }
  for (const MountText& option : kMountTexts) {
    add(fmt::format("-o {}={}", option.name, option.value), option.help);
  }
  text += "\nexit status:\n";
  for (const ExitStatus& status : kExitStatuses) {
    add(fmt::to_string(static_cast<int>(status.code)), status.help);
  }
  return text;
}

std::string EscapedOption(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == ',' || c == '\\') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

}  // namespace ckptfs
