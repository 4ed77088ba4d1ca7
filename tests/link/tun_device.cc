#include "tests/link/tun_device.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "parser/base/error.h"

namespace ckptfs {
namespace {

// In packets. The default of 500 would be a bottleneck of its own.
constexpr int kDeviceQueue = 20'000;
constexpr int kEthernetMtu = 1500;

ifreq RequestFor(const std::string& name) {
  ifreq request = {};
  if (name.size() >= sizeof request.ifr_name) Fail(EINVAL, "{}: device name too long", name);
  std::memcpy(request.ifr_name, name.data(), name.size());
  return request;
}

// Configures a device of the network namespace of the calling thread.
class Settings {
 public:
  explicit Settings(const std::string& name)
      : name_(name), socket_(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    if (socket_.number() < 0) FailErrno("socket");
  }

  void SetAddress(unsigned long command, const std::string& address) const {
    ifreq request = RequestFor(name_);
    sockaddr_in in = {.sin_family = AF_INET, .sin_port = 0, .sin_addr = {}, .sin_zero = {}};
    if (::inet_pton(AF_INET, address.c_str(), &in.sin_addr) != 1) {
      Fail(EINVAL, "{}: invalid address", address);
    }
    std::memcpy(&request.ifr_addr, &in, sizeof in);
    Apply(command, request);
  }

  void SetMtu(int bytes) const {
    ifreq request = RequestFor(name_);
    request.ifr_mtu = bytes;
    Apply(SIOCSIFMTU, request);
  }

  void SetQueue(int packets) const {
    ifreq request = RequestFor(name_);
    request.ifr_qlen = packets;
    Apply(SIOCSIFTXQLEN, request);
  }

  void BringUp() const {
    ifreq request = RequestFor(name_);
    Apply(SIOCGIFFLAGS, request);
    request.ifr_flags = static_cast<int16_t>(request.ifr_flags | IFF_UP);
    Apply(SIOCSIFFLAGS, request);
  }

 private:
  void Apply(unsigned long command, ifreq& request) const {
    if (::ioctl(socket_.number(), command, &request) < 0) FailErrno("{}", name_);
  }

  std::string name_;
  Fd socket_;
};

}  // namespace

TunDevice::TunDevice(const std::string& name, const std::string& address)
    : file_(::open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC)) {
  if (file() < 0) FailErrno("/dev/net/tun");
  ifreq request = RequestFor(name);
  request.ifr_flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR;
  if (::ioctl(file(), TUNSETIFF, &request) < 0) FailErrno("{}", name);
  const Settings settings(name);
  settings.SetAddress(SIOCSIFADDR, address);
  settings.SetAddress(SIOCSIFNETMASK, "255.255.255.0");
  settings.SetMtu(kEthernetMtu);
  settings.SetQueue(kDeviceQueue);
  settings.BringUp();
}

void TunDevice::AllowLargeSegments(bool are_allowed) const {
  const unsigned long features = are_allowed ? TUN_F_CSUM | TUN_F_TSO4 : 0;
  if (::ioctl(file(), TUNSETOFFLOAD, features) < 0) FailErrno("TUNSETOFFLOAD");
}

void BringUpLoopback() { Settings("lo").BringUp(); }

}  // namespace ckptfs
