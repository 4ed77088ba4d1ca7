#include "parser/codec/json_copy.h"

#include "parser/base/json.h"

namespace ckptfs::json {

void Copy::Separate() {
  if (json_.empty()) return;
  const char last = json_.back();
  if (last != '{' && last != '[' && last != ':') json_ += ',';
}

void Copy::Begin(bool is_object) {
  Separate();
  json_ += is_object ? '{' : '[';
}

void Copy::End(bool is_object) { json_ += is_object ? '}' : ']'; }

void Copy::Key(std::string& key) {
  Separate();
  AppendString(json_, key);
  json_ += ':';
}

void Copy::Text(std::string& text) {
  Separate();
  AppendString(json_, text);
}

void Copy::Whole(uint64_t number) {
  Separate();
  json_ += std::to_string(number);
}

void Copy::Other(std::string_view json) {
  Separate();
  json_ += json;
}

}  // namespace ckptfs::json
