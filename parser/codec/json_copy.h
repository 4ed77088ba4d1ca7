// Text in JSON, checked and written again.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "parser/codec/json_reader.h"

namespace ckptfs::json {

// Writes what it is told of as strict JSON in ASCII and without white space.
class Copy final : public Visitor {
 public:
  void Begin(bool is_object) override;
  void End(bool is_object) override;
  void Key(std::string& key) override;
  void Text(std::string& text) override;
  void Whole(uint64_t number) override;
  void Other(std::string_view json) override;

  // What it was told so far; empty if that is nothing.
  const std::string& json() const { return json_; }

 private:
  // Puts a comma before what comes next if something has come before.
  void Separate();

  std::string json_;
};

}  // namespace ckptfs::json
