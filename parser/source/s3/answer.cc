#include "parser/source/s3/answer.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <pugixml.hpp>
#include <span>
#include <utility>

#include "parser/base/budget.h"
#include "parser/base/error.h"
#include "parser/codec/json_reader.h"
#include "parser/io/byte_source.h"

namespace ckptfs::s3 {
namespace {

class Text final : public ByteSource {
 public:
  explicit Text(std::string_view text) : text_(text) {}

  std::string name() const override { return "answer"; }
  uint64_t size() const override { return text_.size(); }
  void ReadAt(uint64_t offset, std::span<std::byte> buffer) const override {
    std::ranges::copy(std::as_bytes(std::span(text_)).subspan(offset, buffer.size()),
                      buffer.begin());
  }

 private:
  const std::string_view text_;
};

class TextCollector final : public json::Visitor {
 public:
  void Begin(bool is_object) override {
    if (depth_++ == 0 && !is_object) Fail(EBADMSG, "the answer is no object in JSON");
  }
  void End(bool /*is_object*/) override { --depth_; }
  void Key(std::string& key) override {
    if (depth_ == 1) key_ = std::move(key);
  }
  void Text(std::string& text) override {
    if (depth_ == 1) texts_[key_] = std::move(text);
  }

  std::map<std::string, std::string> Take() { return std::move(texts_); }

 private:
  size_t depth_ = 0;
  std::string key_;
  std::map<std::string, std::string> texts_;
};

// An error code is a word; anything else could be part of a secret.
std::string CodeIn(std::string_view text) {
  const bool is_word = !text.empty() && text.size() <= 64 && std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_';
  });
  return is_word ? std::string(text) : std::string();
}

std::optional<int64_t> ExpiryIn(const std::string& text, const std::string& origin) {
  if (text.empty()) return std::nullopt;
  const std::optional<int64_t> expiry = ParseTime(text);
  if (!expiry) Fail(EBADMSG, "{} says {} for the time when credentials end", origin, Quoted(text));
  return expiry;
}

// The first element of that name below `node`, in whatever namespace.
pugi::xml_node Below(const pugi::xml_node& node, std::string_view name) {
  return node.find_node([name](const pugi::xml_node& found) {
    std::string_view own = found.name();
    if (const size_t colon = own.find(':'); colon != std::string_view::npos) {
      own.remove_prefix(colon + 1);
    }
    return own == name;
  });
}

std::string TextBelow(const pugi::xml_node& node, const char* name) {
  return Below(node, name).child_value();
}

}  // namespace

std::map<std::string, std::string> TextMembers(const std::string& json) {
  const Text source(json);
  Budget budget = Budget::ForFile(source.size());
  TextCollector collector;
  json::Read(source, 0, source.size(), budget, collector, json::Dialect::kPython);
  return collector.Take();
}

CredentialsPtr CredentialsInJson(const std::string& json, const std::string& origin) {
  std::map<std::string, std::string> texts;
  try {
    texts = TextMembers(json);
  } catch (const Error&) {
    Fail(EBADMSG, "{} does not answer with credentials in JSON", origin);
  }
  if (texts["AccessKeyId"].empty() || texts["SecretAccessKey"].empty()) {
    const std::string code = CodeIn(texts["Code"].empty() ? texts["code"] : texts["Code"]);
    Fail(EACCES, "{} has no credentials for us{}{}", origin, code.empty() ? "" : ": ", code);
  }
  const std::string& token = texts["Token"].empty() ? texts["SessionToken"] : texts["Token"];
  return MakeCredentials(texts["AccessKeyId"], texts["SecretAccessKey"], token, origin,
                         ExpiryIn(texts["Expiration"], origin));
}

CredentialsPtr CredentialsInXml(const std::string& xml, const std::string& origin) {
  pugi::xml_document document;
  document.load_buffer(xml.data(), xml.size());
  const pugi::xml_node credentials = Below(document, "Credentials");
  const std::string key = TextBelow(credentials, "AccessKeyId");
  const std::string secret = TextBelow(credentials, "SecretAccessKey");
  if (key.empty() || secret.empty()) {
    const std::string code = CodeIn(TextBelow(document, "Code"));
    Fail(EACCES, "{} has no credentials for us{}{}", origin, code.empty() ? "" : ": ", code);
  }
  return MakeCredentials(key, secret, TextBelow(credentials, "SessionToken"), origin,
                         ExpiryIn(TextBelow(credentials, "Expiration"), origin));
}

Failure FailureIn(const std::string& xml) {
  pugi::xml_document document;
  document.load_buffer(xml.data(), xml.size());
  const pugi::xml_node error = Below(document, "Error");
  return {.code = CodeIn(error.child_value("Code")),
          .message = error.child_value("Message"),
          .region = error.child_value("Region")};
}

std::optional<int64_t> ParseTime(std::string_view text) {
  const std::string terminated(text.substr(0, 40));
  int year = 0;
  unsigned month = 0;
  unsigned day = 0;
  int hour = 0;
  int minute = 0;
  int second = 0;
  int end = 0;
  if (std::sscanf(terminated.c_str(), "%4d-%2u-%2uT%2d:%2d:%2d%n", &year, &month, &day, &hour,
                  &minute, &second, &end) != 6) {
    return std::nullopt;
  }
  const std::chrono::year_month_day date{std::chrono::year(year), std::chrono::month(month),
                                         std::chrono::day(day)};
  if (!date.ok() || hour < 0 || hour > 23 || minute < 0 || minute > 59 || second < 0 ||
      second > 60) {
    return std::nullopt;
  }
  std::string_view rest = std::string_view(terminated).substr(static_cast<size_t>(end));
  if (rest.starts_with('.')) {
    rest.remove_prefix(std::min(rest.find_first_not_of("0123456789", 1), rest.size()));
  }
  int64_t east = 0;  // Seconds.
  if (rest != "Z" && !rest.empty()) {
    char sign = 0;
    int hours = 0;
    int minutes = 0;
    int length = 0;
    if (std::sscanf(std::string(rest).c_str(), "%c%2d:%2d%n", &sign, &hours, &minutes, &length) !=
            3 ||
        static_cast<size_t>(length) != rest.size() || (sign != '+' && sign != '-') || hours < 0 ||
        minutes < 0) {
      return std::nullopt;
    }
    east = (sign == '-' ? -1 : 1) * (int64_t{hours} * 3600 + int64_t{minutes} * 60);
  }
  const auto days = std::chrono::sys_days(date).time_since_epoch().count();
  return int64_t{days} * 86400 + int64_t{hour} * 3600 + int64_t{minute} * 60 + second - east;
}

}  // namespace ckptfs::s3
