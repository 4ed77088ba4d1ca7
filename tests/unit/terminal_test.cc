#include "fs/secrets.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <string>

#include "parser/base/error.h"
#include "parser/base/fd.h"
#include "tests/support/encrypter.h"

namespace ckptfs {
namespace {

using testing::HasSubstr;
using testing::Not;

// Reads until `text` or the end, but with a timeout. Returns the input.
std::string ReadUntil(const Fd& file, const std::string& text) {
  std::string read;
  while (read.find(text) == std::string::npos) {
    pollfd event = {.fd = file.number(), .events = POLLIN};
    if (::poll(&event, 1, 20'000) <= 0) break;
    std::array<char, 1000> buffer = {};
    const ssize_t n = ::read(file.number(), buffer.data(), buffer.size());
    if (n <= 0) break;
    read.append(buffer.data(), static_cast<size_t>(n));
  }
  return read;
}

// A terminal, and a process there that asks "who? " and prints the answer.
class TerminalTest : public testing::Test {
 protected:
  void SetUp() override {
    master_ = Fd(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
    ASSERT_GE(master_.number(), 0);
    ASSERT_EQ(::grantpt(master_.number()), 0);
    ASSERT_EQ(::unlockpt(master_.number()), 0);
    name_ = ::ptsname(master_.number());
    slave_ = Fd(::open(name_.c_str(), O_RDWR | O_NOCTTY | O_CLOEXEC));
    ASSERT_GE(slave_.number(), 0);
  }

  // Starts the process; its standard input is the terminal, or else the file `standard_input`.
  void Start(const char* standard_input = nullptr) {
    std::array<int, 2> ends = {};
    ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
    answer_ = Fd(ends[0]);
    const Fd tell(ends[1]);
    process_ = ::fork();
    ASSERT_GE(process_, 0);
    if (process_ == 0) ::_exit(Ask(standard_input, tell));
  }

  // The first terminal that the leader of a session opens is the one that controls it.
  int Ask(const char* standard_input, const Fd& tell) const {
    ::setsid();
    const Fd terminal(::open(name_.c_str(), O_RDWR));
    ::dup2(terminal.number(), STDIN_FILENO);
    if (standard_input != nullptr) {
      const Fd other(::open(standard_input, O_RDONLY));
      ::dup2(other.number(), STDIN_FILENO);
    }
    std::string text;
    try {
      const auto typed = AskAtTerminal("who? ");
      text = typed == nullptr ? "nothing" : "<" + ToHex(typed->bytes()) + ">";
    } catch (const Error& e) {
      text = e.what();
    }
    return ::write(tell.number(), text.data(), text.size()) < 0 ? 1 : 0;
  }

  void Type(const std::string& text) const {
    ASSERT_EQ(::write(master_.number(), text.data(), text.size()), text.size());
  }

  // Returns the answer that the process got, after it has ended.
  std::string Answer() const { return ReadUntil(answer_, "the end"); }

  bool ShowsWhatIsTyped() const {
    termios now = {};
    EXPECT_EQ(::tcgetattr(slave_.number(), &now), 0);
    return (now.c_lflag & ECHO) != 0;
  }

  int Wait() const {
    int status = 0;
    EXPECT_EQ(::waitpid(process_, &status, 0), process_);
    return status;
  }

  std::string name_;
  Fd master_;
  Fd slave_;  // Keeps what is set for the terminal.
  Fd answer_;
  pid_t process_ = -1;
};

TEST_F(TerminalTest, GivesTheLineThatIsTyped) {
  Start();
  EXPECT_EQ(ReadUntil(master_, "who? "), "who? ");
  Type("me, too\n");
  EXPECT_EQ(Answer(), "<6d652c20746f6f>");
  EXPECT_EQ(Wait(), 0);
}

TEST_F(TerminalTest, DoesNotEchoWhileItAsks) {
  Start();
  ReadUntil(master_, "who? ");
  EXPECT_FALSE(ShowsWhatIsTyped());
  Type("secret\n");
  EXPECT_EQ(ReadUntil(master_, "\n"), "\r\n");
  EXPECT_EQ(Wait(), 0);
  EXPECT_TRUE(ShowsWhatIsTyped());
}

TEST_F(TerminalTest, GivesNothingForAnEmptyLine) {
  Start();
  ReadUntil(master_, "who? ");
  Type("\n");
  EXPECT_EQ(Answer(), "nothing");
  EXPECT_EQ(Wait(), 0);
}

TEST_F(TerminalTest, GivesNothingAtTheEndOfTheInput) {
  Start();
  ReadUntil(master_, "who? ");
  Type("\4");
  EXPECT_EQ(Answer(), "nothing");
  EXPECT_EQ(Wait(), 0);
}

TEST_F(TerminalTest, EchoesAgainAfterCtrlC) {
  Start();
  ReadUntil(master_, "who? ");
  Type("sec\3");
  EXPECT_EQ(Answer(), "");
  const int status = Wait();
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGINT);
  EXPECT_TRUE(ShowsWhatIsTyped());
}

TEST_F(TerminalTest, EchoesAgainAfterASignal) {
  Start();
  ReadUntil(master_, "who? ");
  ASSERT_EQ(::kill(process_, SIGTERM), 0);
  const int status = Wait();
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGTERM);
  EXPECT_TRUE(ShowsWhatIsTyped());
}

// Ctrl-Z does not stop a process that no shell would wake.
TEST_F(TerminalTest, AsksAgainAfterASignalThatEndsNothing) {
  Start();
  ReadUntil(master_, "who? ");
  Type("\x1a");
  EXPECT_THAT(ReadUntil(master_, "who? "), HasSubstr("who? "));
  Type("me\n");
  EXPECT_EQ(Answer(), "<6d65>");
  EXPECT_EQ(Wait(), 0);
}

TEST_F(TerminalTest, KeepsSettingsChangedByOthersMeanwhile) {
  Start();
  ReadUntil(master_, "who? ");
  termios theirs = {};
  ASSERT_EQ(::tcgetattr(slave_.number(), &theirs), 0);
  theirs.c_lflag &= ~static_cast<tcflag_t>(ECHONL);
  ASSERT_EQ(::tcsetattr(slave_.number(), TCSANOW, &theirs), 0);
  Type("me\n");
  EXPECT_EQ(Answer(), "<6d65>");
  EXPECT_EQ(Wait(), 0);
  EXPECT_FALSE(ShowsWhatIsTyped());
}

TEST_F(TerminalTest, DoesNotAskIfStandardInputIsAFile) {
  Start("/dev/null");
  EXPECT_EQ(Answer(), "nothing");
  EXPECT_EQ(Wait(), 0);
}

}  // namespace
}  // namespace ckptfs
