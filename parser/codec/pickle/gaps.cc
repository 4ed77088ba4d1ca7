#include "parser/codec/pickle/gaps.h"

#include <utility>

#include "parser/codec/pickle/lexer.h"
#include "parser/codec/pickle/machine.h"

namespace ckptfs::pickle {

Graph LoadWithGaps(const Extent& data, Budget& budget, const FindGap& find, uint64_t& length) {
  const Resolve none;
  Machine machine({}, budget, none);
  Lexer lexer(data, budget);
  while (true) {
    const uint64_t begin = lexer.position();
    uint8_t opcode = 0;
    while (opcode != kStopOpcode && opcode != kBuildOpcode) opcode = lexer.Next();
    machine.RunPart({data.source, data.offset + begin, lexer.position() - begin}, begin);
    length = lexer.position();
    if (opcode == kStopOpcode) return std::move(machine).TakeGraph();
    const Gap gap = find(machine.top(), lexer.position());
    if (gap.replacement) machine.ReplaceTop(*gap.replacement);
    lexer.SkipRaw(gap.length);
  }
}

}  // namespace ckptfs::pickle
