// A link between this machine and a network namespace, under the kernel's own TCP:
//
//   tunlink NUMBER LATENCY_MS MBIT LOSS_PERCENT QUEUE_KIB
//
// connects 10.77.NUMBER.1 here with 10.77.NUMBER.2 in a new network namespace. The kernel needs no
// sch_netem for it. LATENCY_MS is that of one direction; each direction has the whole rate, and a
// queue that drops the packets that do not fit.
//
// The first line of output is "ready"; then processes enter the namespace with
// `nsenter --net=/proc/PID/ns/net`. Lines of input:
//
//   (empty)                                   prints packets, bytes of TCP payload, dropped packets
//                                             from here to the namespace, then the same three back
//   LATENCY_MS MBIT LOSS_PERCENT QUEUE_KIB    changes the link, and prints "ready"
//
// SIGUSR1 turns the link into a black hole, and back. The program exits at the end of its input;
// then the link and the namespace disappear. The exit status is 16 (EBUSY) if NUMBER is in use.

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>

#include "parser/base/error.h"
#include "parser/base/fd.h"
#include "tests/link/direction.h"
#include "tests/link/tun_device.h"

namespace ckptfs {
namespace {

// By default the kernel delays timers by up to 50 µs to merge them.
constexpr unsigned long kTimerSlack = 1000;  // In nanoseconds.

// Changes a setting of TCP in the network namespace of the calling thread.
void SetTcp(const std::string& name, std::string_view value) {
  const Fd file(::open(("/proc/sys/net/ipv4/" + name).c_str(), O_WRONLY | O_CLOEXEC));
  if (file.number() < 0 || ::write(file.number(), value.data(), value.size()) < 0) {
    FailErrno("{}", name);
  }
}

// Moves the calling thread to a new network namespace.
void EnterNewNamespace() {
  if (::unshare(CLONE_NEWNET) < 0) FailErrno("network namespace");
  BringUpLoopback();
  // Each connection has its own slow start, whatever the ones before it have found out.
  SetTcp("tcp_no_metrics_save", "1");
  // As on servers for long distances: one connection can fill a link of 1 Gbit/s and 150 ms.
  SetTcp("tcp_wmem", "4096 16384 33554432");
}

class Link {
 public:
  explicit Link(int number)
      : here_(fmt::format("ckptfs{}", number), fmt::format("10.77.{}.1", number)),
        there_((EnterNewNamespace(), "ckptfs"), fmt::format("10.77.{}.2", number)) {}

  void SetShape(const LinkShape& shape) {
    // A lost packet must not be a large segment, which is dozens of packets on the wire.
    const bool are_large = shape.loss_percent == 0;
    here_.AllowLargeSegments(are_large);
    there_.AllowLargeSegments(are_large);
    to_there_.SetShape(shape);
    to_here_.SetShape(shape);
  }

  void Close(bool is_closed) {
    to_there_.Close(is_closed);
    to_here_.Close(is_closed);
  }

  // Forwards packets for as long as the process runs.
  void Start() {
    for (Direction* direction : {&to_there_, &to_here_}) {
      std::thread([direction] {
        ::prctl(PR_SET_TIMERSLACK, kTimerSlack);
        direction->Run();
      }).detach();
    }
  }

  std::string Counters() const {
    const Traffic a = to_there_.traffic(), b = to_here_.traffic();
    return fmt::format("{} {} {} {} {} {}", a.packets, a.bytes, a.dropped, b.packets, b.bytes,
                       b.dropped);
  }

 private:
  TunDevice here_, there_;
  Direction to_there_{here_.file(), there_.file(), 1}, to_here_{there_.file(), here_.file(), 2};
};

LinkShape ParseShape(const std::string& text) {
  std::istringstream words(text);
  LinkShape shape;
  words >> shape.latency_ms >> shape.mbit >> shape.loss_percent >> shape.queue_kib;
  if (!words || shape.mbit <= 0 || shape.latency_ms < 0) Fail(EINVAL, "{}: invalid link", text);
  return shape;
}

// Toggles the black hole on SIGUSR1, in a thread of its own. Must be called before other threads
// start.
void ToggleOnSignal(Link& link) {
  sigset_t signals = {};
  ::sigaddset(&signals, SIGUSR1);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::thread([&link, signals] {
    bool is_closed = false;
    for (int signal = 0; ::sigwait(&signals, &signal) == 0;) link.Close(is_closed = !is_closed);
  }).detach();
}

void Answer(const std::string& text) {
  fmt::print("{}\n", text);
  std::fflush(stdout);
}

// Does not destroy the link, which other threads use until the process ends.
[[noreturn]] void Serve(int number, const LinkShape& shape) {
  auto& link = *new Link(number);
  link.SetShape(shape);
  ToggleOnSignal(link);
  link.Start();
  Answer("ready");
  for (std::string line; std::getline(std::cin, line);) {
    if (line.empty()) {
      Answer(link.Counters());
    } else {
      link.SetShape(ParseShape(line));
      Answer("ready");
    }
  }
  std::_Exit(0);
}

}  // namespace
}  // namespace ckptfs

int main(int argc, char** argv) {
  try {
    if (argc != 6) ckptfs::Fail(EINVAL, "usage: tunlink NUMBER MS MBIT LOSS_PERCENT QUEUE_KIB");
    const std::string shape = fmt::format("{} {} {} {}", argv[2], argv[3], argv[4], argv[5]);
    ckptfs::Serve(std::atoi(argv[1]), ckptfs::ParseShape(shape));
  } catch (const ckptfs::Error& error) {
    fmt::print(stderr, "tunlink: {}\n", error.what());
    std::_Exit(error.code() == EBUSY ? EBUSY : 1);
  }
}
