// The oracle: an input runs or throws Error, and all texts of the graph are within it. LengthOf
// returns the length of a pickle that runs, which also runs in parts.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "parser/base/budget.h"
#include "parser/base/error.h"
#include "parser/codec/pickle.h"
#include "parser/codec/pickle/lexer.h"
#include "parser/io/simple_sources.h"

namespace {

namespace pickle = ckptfs::pickle;
using pickle::Kind;
using pickle::Value;

// The sum of the bytes of all reachable values.
class Walk {
 public:
  uint64_t From(const Value& root) {
    Visit(root);
    while (!pending_.empty()) {
      const Value value = pending_.back();
      pending_.pop_back();
      VisitAll(pickle::ItemsOf(value));
      if (!pickle::IsObject(value)) continue;
      const pickle::Object& object = pickle::ObjectOf(value);
      Visit(object.target);
      Visit(object.arguments);
      Visit(object.keywords());
      Visit(object.state());
      VisitAll(object.states());
      VisitAll(object.pairs());
    }
    return sum_;
  }

 private:
  void VisitAll(std::span<const Value> values) {
    for (const Value& value : values) Visit(value);
  }

  void Visit(const Value& value) {
    switch (value.kind) {
      case Kind::kNone:
        return;
      case Kind::kBool:
      case Kind::kInt:
      case Kind::kFloat:
        sum_ += static_cast<uint64_t>(value.integer);
        return;
      case Kind::kBigInt:
      case Kind::kDecimal:
      case Kind::kText:
      case Kind::kBytes:
      case Kind::kByteArray:
        for (const char c : value.text()) sum_ += static_cast<unsigned char>(c);
        return;
      default:
        if (seen_.insert(value.node).second) pending_.push_back(value);
    }
  }

  uint64_t sum_ = 0;
  std::vector<Value> pending_;
  std::unordered_set<const pickle::Node*> seen_;
};

volatile uint64_t sink;  // So that the compiler keeps the walk.

// Returns the result of pickle::LengthOf; 0 if it throws.
uint64_t LengthOf(std::span<const uint8_t> bytes) {
  const auto source =
      std::make_shared<ckptfs::MemorySource>(std::string(bytes.begin(), bytes.end()));
  try {
    ckptfs::Budget budget = ckptfs::Budget::ForFile(bytes.size());
    return pickle::LengthOf({source, 0, bytes.size()}, budget);
  } catch (const ckptfs::Error&) {
    return 0;
  }
}

// Runs the pickle in parts, and returns what it imports and whether there is no error.
std::pair<size_t, bool> RunPartly(std::span<const uint8_t> bytes) {
  const auto source =
      std::make_shared<ckptfs::MemorySource>(std::string(bytes.begin(), bytes.end()));
  ckptfs::Budget budget(uint64_t{64} << 20U);
  const pickle::PartialRun run = pickle::RunPartly({source, 0, bytes.size()}, budget);
  if (run.length > bytes.size()) __builtin_trap();
  Walk walk;
  for (const Value& call : run.graph.calls()) sink = walk.From(call);
  return {run.graph.globals().size(), !run.error};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const uint64_t length = LengthOf({data, size});
  const auto [imports, runs_in_parts] = RunPartly({data, size});
  ckptfs::Budget budget(uint64_t{64} << 20U);
  try {
    const pickle::Graph graph = pickle::Load(std::as_bytes(std::span(data, size)), budget);
    if (graph.consumed() > size || graph.consumed() != length) __builtin_trap();
    if (!runs_in_parts || graph.globals().size() != imports) __builtin_trap();
    Walk walk;
    sink = walk.From(graph.root());
    for (const Value& value : graph.stray_states()) sink = walk.From(value);
  } catch (const ckptfs::Error&) {
  }
  if (budget.used() != 0) __builtin_trap();
  return 0;
}
