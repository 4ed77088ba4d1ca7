#include "tools/ckpt/facts.h"

#include <fmt/format.h>

#include "parser/base/json.h"

namespace ckptfs::ckpt {
namespace {

void AddTo(DtypeSum& sum, const Tensor& tensor, bool is_tied) {
  ++sum.tensors;
  if (is_tied) return;
  sum.parameters += ElementCountOf(tensor);
  sum.bytes += tensor.data.length;
}

}  // namespace

Facts FactsOf(const Checkpoint& checkpoint) {
  Facts facts;
  facts.entries = EntriesOf(checkpoint);
  facts.tensors = TensorsOf(facts.entries);
  for (size_t i = 0; i < facts.tensors.size(); ++i) {
    const Tensor& tensor = *facts.tensors[i].tensor;
    const bool is_tied = facts.tensors[i].tied_to != i;
    AddTo(facts.sum, tensor, is_tied);
    AddTo(facts.dtypes[DtypeNameOf(tensor)], tensor, is_tied);
    if (is_tied) facts.ties[facts.tensors[i].tied_to].push_back(i);
    if (tensor.error) ++facts.errors;
  }
  return facts;
}

std::string DtypesJson(const Facts& facts) {
  std::vector<std::string> dtypes;
  for (const auto& [name, sum] : facts.dtypes) {
    dtypes.push_back(fmt::format(R"({}:{{"tensors":{},"parameters":{},"bytes":{}}})",
                                 json::String(name), sum.tensors, sum.parameters, sum.bytes));
  }
  return fmt::format("{{{}}}", fmt::join(dtypes, ","));
}

std::string JsonList(const std::vector<std::string>& items) {
  return fmt::format("[{}]", fmt::join(items, ","));
}

}  // namespace ckptfs::ckpt
