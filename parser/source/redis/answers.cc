#include "parser/source/redis/answers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <initializer_list>

#include "parser/base/error.h"
#include "parser/source/http/attempts.h"

namespace ckptfs::redis {
namespace {

using Kind = resp::Head::Kind;

std::string Command(std::initializer_list<std::string_view> words) {
  std::string command;
  resp::AppendCommand(words, command);
  return command;
}

[[noreturn]] void FailOddly() { Fail(EPROTO, "the server answers something else than was asked"); }

bool BeginsWithAny(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::ranges::any_of(words, [&](std::string_view word) { return text.starts_with(word); });
}

// What the server says, as a part of a sentence.
std::string Said(std::string_view text) {
  if (text.ends_with('.')) text.remove_suffix(1);
  constexpr size_t kLongest = 300;
  return fmt::format("the server says: {}", text.substr(0, kLongest));
}

}  // namespace

std::string Strlen(std::string_view key) { return Command({"STRLEN", key}); }

std::string GetRange(std::string_view key, uint64_t offset, uint64_t length) {
  return Command({"GETRANGE", key, std::to_string(offset), std::to_string(offset + length - 1)});
}

uint64_t NumberOf(const resp::Head& head) {
  RequireNoError(head);
  if (head.kind != Kind::kNumber || head.number < 0) FailOddly();
  return static_cast<uint64_t>(head.number);
}

uint64_t SizeOf(const resp::Head& head, uint64_t most) {
  RequireNoError(head);
  if (head.kind != Kind::kValue || static_cast<uint64_t>(head.number) > most) FailOddly();
  return static_cast<uint64_t>(head.number);
}

void RequireNoError(const resp::Head& head) {
  if (head.kind != resp::Head::Kind::kError) return;
  const std::string_view text = head.text;
  if (BeginsWithAny(text, {"LOADING ", "TRYAGAIN ", "BUSY ", "CLUSTERDOWN ", "MASTERDOWN ",
                           "ERR max number of clients"})) {
    throw http::Fault(EREMOTEIO, Said(text));
  }
  if (BeginsWithAny(text, {"NOAUTH ", "WRONGPASS ", "NOPERM ", "DENIED "})) {
    throw Error(EACCES, Said(text));
  }
  throw Error(text.starts_with("WRONGTYPE ") ? EINVAL : EREMOTEIO, Said(text));
}

}  // namespace ckptfs::redis
