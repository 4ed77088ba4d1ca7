#include "parser/codec/pickle/length.h"

#include "parser/codec/pickle/lexer.h"

namespace ckptfs::pickle {

uint64_t LengthOf(const Extent& data, Budget& budget) {
  Lexer lexer(data, budget);
  while (lexer.Next() != kStopOpcode) {
  }
  return lexer.position();
}

std::optional<uint64_t> LengthUnless(const Extent& data, std::string_view name, Budget& budget) {
  Lexer lexer(data, budget);
  while (lexer.Next() != kStopOpcode) {
    if (lexer.name() == name) return std::nullopt;
  }
  return lexer.position();
}

}  // namespace ckptfs::pickle
