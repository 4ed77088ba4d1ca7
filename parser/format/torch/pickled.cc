#include "parser/format/torch/pickled.h"

#include <fmt/format.h>

#include "parser/base/error.h"
#include "parser/format/torch/objects.h"

namespace ckptfs::torch {

void AddPickle(std::string_view name, Context& context, Checkpoint& checkpoint,
               const pickle::Resolve& resolve) try {
  const pickle::Graph graph = pickle::Load(context.pickle, context.budget, resolve);
  context.reading.globals.Add(graph);
  AddObjects(graph.root(), context, checkpoint);
  if (const size_t strays = graph.stray_states().size() / 2; strays > 0) {
    checkpoint.warnings.push_back(
        fmt::format("{}{}{} values that are no objects are given a state, which is left out", name,
                    name.empty() ? "" : ": ", strays));
  }
} catch (const Error& e) {
  if (name.empty()) throw;
  throw WithContext(name, e);
}

}  // namespace ckptfs::torch
