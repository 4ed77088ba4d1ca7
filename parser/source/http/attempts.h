// Doing something until it works.

#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <string_view>

#include "parser/base/error.h"
#include "parser/io/source_options.h"
#include "parser/source/http/client.h"
#include "parser/source/http/patience.h"

namespace ckptfs::http {

// What may pass, and so is worth another attempt.
class Fault : public Error {
 public:
  // `wait` is what the server asks for.
  Fault(int code, std::string_view message, Patience::Duration wait = Patience::Duration(0))
      : Error(code, message), wait_(wait) {}

  Patience::Duration wait() const { return wait_; }

 private:
  Patience::Duration wait_;
};

// Throws a Fault if the status of `response` says that the server may do better in a while.
void RequireNoFault(const Response& response);

// Attempts to do one thing. Belongs to one thread.
class Attempts {
 public:
  // While a checkpoint is opened, what a typing mistake causes is not waited out.
  enum class Phase : uint8_t { kOpening, kReading };

  // `subject` and `part` are what messages call it: "https://host/m.pth", "bytes 0 to 99", of which
  // the latter may be empty. `options` must outlive this.
  Attempts(const SourceOptions& options, Phase phase, std::string subject, std::string part);

  // Calls `attempt` until it returns true, and waits where it throws what may pass. At once, but
  // not for ever, where it returns false. Throws its other errors; ECANCELED soon after `stop`
  // wants it; once the time is up, an Error with the last fault's sentence: ETIMEDOUT if it was the
  // clock's, else EREMOTEIO.
  void Run(const std::function<bool()>& attempt, const std::stop_token& stop);

  // Sets the limits of time of a request that is to bring `length` bytes.
  void Limit(Request& request, uint64_t length) const;

  // Says how many bytes are there. Throws Fault if they took too long.
  void Received(uint64_t bytes);

 private:
  bool MayPass(int code) const;
  void WaitAfter(const Error& fault, Patience::Duration asked_for, const std::stop_token& stop);

  const SourceOptions& options_;
  const Phase phase_;
  const std::string subject_;
  const std::string part_;
  Patience patience_;
};

}  // namespace ckptfs::http
