#include "fs/verification.h"

#include <fmt/format.h>

#include <string_view>

namespace ckptfs {

std::shared_ptr<const Verification> VerificationFor(Verify verify, Log& log) {
  if (verify == Verify::kOff) return nullptr;
  const auto report = [&log](std::string_view what, Verdict verdict, std::string_view found) {
    const auto level = verdict == Verdict::kRight ? Log::Level::kNotice : Log::Level::kError;
    log.Write(level, fmt::format("{}: {}", what, found));
  };
  return std::make_shared<Verification>(
      Verification{.is_enforced = verify == Verify::kEnforce, .report = report});
}

}  // namespace ckptfs
