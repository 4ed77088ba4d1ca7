#include "parser/source/s3/machine_credentials.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "parser/base/cancellation.h"
#include "parser/base/encoding.h"
#include "parser/base/error.h"
#include "parser/base/fd.h"
#include "parser/base/text.h"
#include "parser/base/user_settings.h"
#include "parser/codec/ini.h"
#include "parser/source/http/object.h"
#include "parser/source/http/url.h"
#include "parser/source/s3/credentials.h"
#include "parser/source/s3/location.h"
#include "parser/source/s3/response.h"

namespace ckptfs::s3 {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kPollInterval = 100;  // Milliseconds.
constexpr size_t kMostOutput = size_t{1} << 16U;

// A child process. The destructor kills it and its process group.
class Child {
 public:
  // Runs a program with `output` as its standard output. Throws Error if it cannot be run.
  // `name` is for messages.
  Child(std::string name, std::vector<std::string> words, const Fd& output,
        std::chrono::seconds timeout)
      : name_(std::move(name)), timeout_(timeout), deadline_(Clock::now() + timeout) {
    std::vector<char*> arguments;
    arguments.reserve(words.size() + 1);
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    ::posix_spawn_file_actions_adddup2(&actions, output.number(), STDOUT_FILENO);
    posix_spawnattr_t attributes;
    ::posix_spawnattr_init(&attributes);
    // A process group of its own, which is killed with its children, and default signal handling.
    sigset_t none;
    ::sigemptyset(&none);
    sigset_t usual;
    ::sigemptyset(&usual);
    ::sigaddset(&usual, SIGPIPE);
    ::posix_spawnattr_setpgroup(&attributes, 0);
    ::posix_spawnattr_setsigmask(&attributes, &none);
    ::posix_spawnattr_setsigdefault(&attributes, &usual);
    ::posix_spawnattr_setflags(
        &attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    const int failure =
        ::posix_spawnp(&pid_, arguments.front(), &actions, &attributes, arguments.data(), environ);
    ::posix_spawn_file_actions_destroy(&actions);
    ::posix_spawnattr_destroy(&attributes);
    if (failure != 0) {
      pid_ = -1;
      Fail(EACCES, "cannot run {}: {}", name_, ErrnoText(failure));
    }
  }

  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  ~Child() {
    if (pid_ < 0) return;
    ::kill(-pid_, SIGKILL);
    while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }

  // Waits for its end. Throws Error if it fails, or after the timeout.
  void Wait() {
    int status = 0;
    while (true) {
      const pid_t ended = ::waitpid(pid_, &status, WNOHANG);
      if (ended == pid_) break;
      if (ended < 0 && errno != EINTR) {
        // Another waitpid has reaped it.
        pid_ = -1;
        FailErrno("cannot wait for {}", name_);
      }
      CheckDeadline();
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    pid_ = -1;
    if (WIFSIGNALED(status)) {
      Fail(EACCES, "{}: killed by signal {}", name_, WTERMSIG(status));
    }
    if (WEXITSTATUS(status) != 0) {
      Fail(EACCES, "{}: exited with status {}", name_, WEXITSTATUS(status));
    }
  }

  // Throws Error after the deadline, or if the operation is cancelled.
  void CheckDeadline() const {
    if (Cancellation::IsRequested()) Fail(ECANCELED, "request cancelled");
    if (Clock::now() < deadline_) return;
    Fail(EACCES, "{}: timed out after {} s", name_, timeout_.count());
  }

 private:
  const std::string name_;  // For messages.
  const std::chrono::seconds timeout_;
  const Clock::time_point deadline_;
  pid_t pid_ = -1;
};

}  // namespace

std::string RunProgram(const std::string& command_line, const std::string& setting,
                       std::chrono::seconds timeout) {
  std::vector<std::string> words;
  try {
    words = ini::SplitWords(command_line);
  } catch (const Error& e) {
    throw WithContext(setting, e);
  }
  if (words.empty()) Fail(EACCES, "{} is empty", setting);
  const std::string name = fmt::format("{} {}", setting, Quoted(words.front()));
  std::array<int, 2> ends = {};
  if (::pipe2(ends.data(), O_CLOEXEC) < 0) FailErrno("cannot create a pipe");
  const Fd output(ends[0]);
  Fd input(ends[1]);
  Child child(name, std::move(words), input, timeout);
  { const Fd closed = std::move(input); }
  std::string printed;
  while (true) {
    pollfd wait = {.fd = output.number(), .events = POLLIN, .revents = 0};
    const int ready = ::poll(&wait, 1, kPollInterval);
    child.CheckDeadline();
    if (ready <= 0) continue;
    std::array<char, 4096> piece = {};
    const ssize_t n = ::read(output.number(), piece.data(), piece.size());
    if (n == 0) break;
    if (n > 0) printed.append(piece.data(), static_cast<size_t>(n));
    if (printed.size() > kMostOutput) {
      Fail(EACCES, "{}: output too long: more than {} bytes", name, kMostOutput);
    }
  }
  child.Wait();
  return printed;
}

CredentialsPtr FromProcess(const std::string& command_line, std::chrono::seconds timeout) {
  constexpr const char* kSetting = "credential_process";
  const std::string printed = RunProgram(command_line, kSetting, timeout);
  return ParseJsonCredentials(
      printed, fmt::format("{} {}", kSetting, Quoted(ini::SplitWords(command_line).front())));
}

namespace {

// Bytes of responses that are sent again: far more than AWS returns.
constexpr size_t kLongestToken = size_t{16} << 10U;
constexpr size_t kLongestRole = 1024;

// Whether requests for credentials are encrypted, stay on this machine, or are for a container
// orchestrator.
bool IsTrusted(const Endpoint& endpoint) {
  std::string_view host = endpoint.host;
  if (host.starts_with('[')) {
    host = host.substr(0, host.find(']') + 1);
  } else {
    host = host.substr(0, host.find(':'));
  }
  return endpoint.scheme == "https" || http::IsLoopback(host) || host == "169.254.170.2" ||
         host == "169.254.170.23" || host == "[fd00:ec2::23]";
}

std::string GetContainerToken(const Config& config) {
  const std::string file = config.Variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
  std::string token = file.empty() ? config.Variable("AWS_CONTAINER_AUTHORIZATION_TOKEN")
                                   : std::string(Trim(ReadSmallFile(file, "token file")));
  if (!file.empty() && token.empty()) Fail(EINVAL, "the token in {} is empty", Quoted(file));
  if (token.find_first_of("\r\n") != std::string::npos) {
    Fail(EACCES, "authorization token of the container is not one line");
  }
  return token;
}

std::string GetContainerUrl(const Config& config) {
  if (const std::string relative = config.Variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
      !relative.empty()) {
    return "http://169.254.170.2" + relative;
  }
  return config.Variable("AWS_CONTAINER_CREDENTIALS_FULL_URI");
}

std::string GetMetadataService(const Config& config) {
  std::string url = config.Variable("AWS_EC2_METADATA_SERVICE_ENDPOINT");
  if (url.empty()) {
    const bool is_ipv6 = config.Variable("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE") == "IPv6";
    url = is_ipv6 ? "http://[fd00:ec2::254]" : "http://169.254.169.254";
  }
  while (url.ends_with('/')) url.pop_back();
  return url;
}

// Returns the body of a response. The metadata service is one hop away or does not exist.
std::string RequestMetadata(http::Client& client, http::Request request) {
  constexpr std::chrono::seconds kTimeout{1};
  request.has_secret = true;
  request.limits = {
      .connect = kTimeout, .first_byte = kTimeout, .stall = kTimeout, .deadline = kTimeout};
  http::Response response = client.Perform(request, nullptr, std::stop_token());
  if (response.status != http::kOk) {
    Fail(EACCES, "metadata service of the instance returned status {}", response.status);
  }
  return std::move(response.body);
}

}  // namespace

CredentialsPtr FromContainer(const CredentialContext& context) {
  const std::string url = GetContainerUrl(context.config);
  if (url.empty()) return nullptr;
  const std::string_view path = std::string_view(url).substr(0, url.find_first_of("?#"));
  if (!IsTrusted(ParseEndpoint(path))) {
    Fail(EACCES, "insecure AWS_CONTAINER_CREDENTIALS_FULL_URI: http:// to another machine");
  }
  const auto prepare = [&] {
    http::Request request;
    request.url = url;
    request.headers = {"Accept: application/json"};
    request.has_secret = true;
    if (const std::string token = GetContainerToken(context.config); !token.empty()) {
      request.headers.push_back("Authorization: " + token);
    }
    return request;
  };
  const http::Response response =
      http::PerformWithRetries(context.client, prepare, context.options);
  if (response.status != http::kOk) {
    Fail(EACCES, "container credentials refused: status {}", response.status);
  }
  return ParseJsonCredentials(response.body, "the container");
}

CredentialsPtr FromInstance(const CredentialContext& context) {
  if (context.config.Variable("AWS_EC2_METADATA_DISABLED") == "true") return nullptr;
  const std::string service = GetMetadataService(context.config);
  std::string token;
  std::string role;
  const auto get = [&](const std::string& path) {
    http::Request request;
    request.url = service + "/latest/meta-data/iam/security-credentials/" + path;
    request.headers = {"X-aws-ec2-metadata-token: " + token};
    return RequestMetadata(context.client, std::move(request));
  };
  try {
    http::Request request;
    request.method = "PUT";
    request.url = service + "/latest/api/token";
    request.headers = {"X-aws-ec2-metadata-token-ttl-seconds: 21600"};
    token = RequestMetadata(context.client, std::move(request));
    if (token.size() > kLongestToken || token.find_first_of("\r\n") != std::string::npos) {
      return nullptr;
    }
    role = get("");
  } catch (const Error&) {
    return nullptr;  // There is no such service, or the instance has no role.
  }
  role = role.substr(0, role.find_first_of("\r\n"));
  if (role.empty() || role.size() > kLongestRole) return nullptr;
  return ParseJsonCredentials(get(PercentEncode(role, "/")), "the instance");
}

}  // namespace ckptfs::s3
