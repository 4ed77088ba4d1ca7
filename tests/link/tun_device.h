// A TUN device: the program reads each packet that the kernel sends through the device, and each
// packet that the program writes arrives at the kernel.

#pragma once

#include <string>

#include "parser/base/fd.h"

namespace ckptfs {

class TunDevice {
 public:
  // Creates the device in the network namespace of the calling thread, with an IPv4 address in a
  // network of 256 addresses, and brings it up. The device disappears with this object. Throws
  // Error: EBUSY if the name is in use.
  TunDevice(const std::string& name, const std::string& address);

  // Non-blocking. Each packet begins with a virtio_net_hdr.
  int file() const { return file_.number(); }

  // Whether the kernel may send and receive TCP segments that are larger than the MTU, as with a
  // network card that splits and merges them (TSO, GRO). This saves most of the CPU time.
  void AllowLargeSegments(bool are_allowed) const;

 private:
  Fd file_;
};

// Brings up the loopback device of the network namespace of the calling thread.
void BringUpLoopback();

}  // namespace ckptfs
