// Credentials that a program prints: "credential_process" of a profile.
//
// The program is the user's, as good as a command that he types, but nothing says that it ends, or
// stops printing. No shell runs it.

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <string>
#include <thread>
#include <vector>

#include "parser/base/cancellation.h"
#include "parser/base/error.h"
#include "parser/base/fd.h"
#include "parser/codec/shell_words.h"
#include "parser/source/s3/answer.h"
#include "parser/source/s3/providers.h"

namespace ckptfs::s3 {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kLook = 100;  // Milliseconds from one look at the clock to the next.
constexpr size_t kMostOutput = size_t{1} << 16U;

// A process, which is gone with this.
class Child {
 public:
  // Throws Error if there is no such program. What it prints goes to `output`.
  Child(std::vector<std::string> words, const Fd& output, std::chrono::seconds patience)
      : program_(words.front()), patience_(patience), deadline_(Clock::now() + patience) {
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
    // A group of its own, so that what it starts ends with it, and signals as programs expect them.
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
        ::posix_spawnp(&pid_, program_.c_str(), &actions, &attributes, arguments.data(), environ);
    ::posix_spawn_file_actions_destroy(&actions);
    ::posix_spawnattr_destroy(&attributes);
    if (failure != 0) {
      pid_ = -1;
      Fail(EACCES, "cannot run the credential_process {}: {}", Quoted(program_),
           ErrnoText(failure));
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

  // Waits for its end. Throws Error if that was no success, or does not come.
  void Wait() {
    int status = 0;
    while (true) {
      const pid_t ended = ::waitpid(pid_, &status, WNOHANG);
      if (ended == pid_) break;
      if (ended < 0 && errno != EINTR) {
        // Somebody else has waited for it, and knows how it ended.
        pid_ = -1;
        FailErrno("cannot wait for the credential_process {}", Quoted(program_));
      }
      LookAtTheClock();
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    pid_ = -1;
    if (WIFSIGNALED(status)) {
      Fail(EACCES, "the credential_process {} was ended by signal {}", Quoted(program_),
           WTERMSIG(status));
    }
    if (WEXITSTATUS(status) != 0) {
      Fail(EACCES, "the credential_process {} ended with status {}", Quoted(program_),
           WEXITSTATUS(status));
    }
  }

  // Throws Error if there is no use in waiting any longer.
  void LookAtTheClock() const {
    if (Cancellation::IsRequested()) Fail(ECANCELED, "the request was given up");
    if (Clock::now() < deadline_) return;
    Fail(EACCES, "the credential_process {} has printed no credentials in {} s", Quoted(program_),
         patience_.count());
  }

 private:
  const std::string program_;
  const std::chrono::seconds patience_;
  const Clock::time_point deadline_;
  pid_t pid_ = -1;
};

}  // namespace

CredentialsPtr FromProcess(const std::string& command_line, std::chrono::seconds patience) {
  std::vector<std::string> words;
  try {
    words = ShellWords(command_line);
  } catch (const Error& e) {
    throw WithContext("credential_process", e);
  }
  if (words.empty()) Fail(EACCES, "the credential_process is empty");
  const std::string program = words.front();
  std::array<int, 2> ends = {};
  if (::pipe2(ends.data(), O_CLOEXEC) < 0) FailErrno("cannot make a pipe");
  const Fd output(ends[0]);
  Fd input(ends[1]);
  Child child(std::move(words), input, patience);
  { const Fd closed = std::move(input); }
  std::string printed;
  while (true) {
    pollfd wait = {.fd = output.number(), .events = POLLIN, .revents = 0};
    const int ready = ::poll(&wait, 1, kLook);
    child.LookAtTheClock();
    if (ready <= 0) continue;
    std::array<char, 4096> piece = {};
    const ssize_t n = ::read(output.number(), piece.data(), piece.size());
    if (n == 0) break;
    if (n > 0) printed.append(piece.data(), static_cast<size_t>(n));
    if (printed.size() > kMostOutput) {
      Fail(EACCES, "the credential_process {} prints more than {} bytes", Quoted(program),
           kMostOutput);
    }
  }
  child.Wait();
  return CredentialsInJson(printed, "credential_process " + Quoted(program));
}

}  // namespace ckptfs::s3
