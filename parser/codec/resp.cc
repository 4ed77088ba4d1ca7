#include "parser/codec/resp.h"

#include <cerrno>
#include <iterator>

#include "parser/base/error.h"
#include "parser/base/text.h"

namespace ckptfs::resp {
namespace {

int64_t NumberIn(std::string_view line) {
  const auto number = ParseNumber<int64_t>(line.substr(1));
  if (!number) Fail(EPROTO, "no number in the reply {}", Quoted(line));
  return *number;
}

Head HeadOf(std::string_view line) {
  Head head{.text = {}, .size = line.size() + kEnd.size()};
  switch (line.empty() ? '\0' : line[0]) {
    case '+':
      head.kind = Head::Kind::kWord;
      head.text = line.substr(1);
      break;
    case '-':
      head.kind = Head::Kind::kError;
      head.text = line.substr(1);
      break;
    case ':':
      head.kind = Head::Kind::kNumber;
      head.number = NumberIn(line);
      break;
    case '$':
      head.number = NumberIn(line);
      if (head.number < -1) Fail(EPROTO, "invalid length of a value in the reply: {}", head.number);
      head.kind = head.number < 0 ? Head::Kind::kNothing : Head::Kind::kValue;
      break;
    default:
      Fail(EPROTO, "not a Redis reply: {}", Quoted(line));
  }
  return head;
}

// The checksum of XMODEM: polynomial 0x1021, most significant bit first.
uint16_t Crc16(std::string_view bytes) {
  constexpr uint32_t kPolynomial = 0x1021;
  constexpr uint32_t kTopBit = 0x8000;
  uint32_t sum = 0;
  for (const char c : bytes) {
    sum ^= uint32_t{static_cast<unsigned char>(c)} << 8U;
    for (int bit = 0; bit < 8; ++bit) {
      sum = (sum & kTopBit) != 0 ? (sum << 1U) ^ kPolynomial : sum << 1U;
    }
  }
  return static_cast<uint16_t>(sum);
}

}  // namespace

std::optional<Head> ReadHead(std::string_view bytes) {
  const size_t end = bytes.substr(0, kLongestLine).find('\n');
  if (end == std::string_view::npos) {
    if (bytes.size() < kLongestLine) return std::nullopt;
    Fail(EPROTO, "line of a reply too long: more than {} bytes", kLongestLine);
  }
  std::string_view line = bytes.substr(0, end);
  if (!line.ends_with('\r')) {
    Fail(EPROTO, "not a Redis reply: {}", Quoted(line));
  }
  line.remove_suffix(1);
  return HeadOf(line);
}

void AppendCommand(std::initializer_list<std::string_view> words, std::string& out) {
  fmt::format_to(std::back_inserter(out), "*{}{}", words.size(), kEnd);
  for (const std::string_view word : words) {
    fmt::format_to(std::back_inserter(out), "${}{}", word.size(), kEnd);
    out.append(word).append(kEnd);
  }
}

std::optional<Redirect> ReadRedirect(std::string_view error) {
  constexpr std::string_view kMoved = "MOVED ";
  constexpr std::string_view kAsk = "ASK ";
  Redirect redirect{.is_once = error.starts_with(kAsk), .host = {}};
  if (!redirect.is_once && !error.starts_with(kMoved)) return std::nullopt;
  const std::string_view rest = error.substr((redirect.is_once ? kAsk : kMoved).size());
  const size_t space = rest.find(' ');
  const size_t colon = rest.rfind(':');  // Before it may be an IPv6 address.
  if (space < colon && colon != std::string_view::npos) {
    const auto slot = ParseNumber<uint16_t>(rest.substr(0, space));
    const auto port = ParseNumber<uint16_t>(rest.substr(colon + 1));
    if (slot && *slot < kSlots && port && *port != 0) {
      redirect.slot = *slot;
      redirect.host = rest.substr(space + 1, colon - space - 1);
      redirect.port = *port;
      return redirect;
    }
  }
  Fail(EPROTO, "invalid redirect {}", Quoted(error));
}

uint16_t SlotOf(std::string_view key) {
  if (const size_t open = key.find('{'); open != std::string_view::npos) {
    const size_t close = key.find('}', open + 1);
    if (close != std::string_view::npos && close > open + 1) {
      key = key.substr(open + 1, close - open - 1);
    }
  }
  return Crc16(key) % kSlots;
}

}  // namespace ckptfs::resp
