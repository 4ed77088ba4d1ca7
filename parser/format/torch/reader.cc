#include "parser/format/torch/reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "parser/base/budget.h"
#include "parser/base/error.h"
#include "parser/codec/pickle/lexer.h"
#include "parser/format/torch/archive.h"
#include "parser/format/torch/legacy.h"
#include "parser/format/torch/numpy.h"
#include "parser/format/torch/objects.h"

namespace ckptfs::torch {
namespace {

// Honest files are nested twice at most: a pickled storage in an object of a checkpoint in several
// files.
constexpr int kMostNesting = 2;

class Deeper {
 public:
  explicit Deeper(Reading& reading) : reading_(reading) {
    if (reading_.depth == kMostNesting) {
      Fail(EFBIG, "files are nested more than {} levels deep", kMostNesting);
    }
    ++reading_.depth;
  }
  Deeper(const Deeper&) = delete;
  Deeper& operator=(const Deeper&) = delete;
  ~Deeper() { --reading_.depth; }

 private:
  Reading& reading_;
};

}  // namespace

Checkpoint ReadSaved(const Extent& data, Reading& reading) {
  const Deeper deeper(reading);
  std::vector<std::byte> head(std::min<uint64_t>(data.length, kLegacyHead));
  if (!head.empty()) data.source->ReadAt(data.offset, head);
  const std::string_view text(reinterpret_cast<const char*>(head.data()), head.size());
  if (text.starts_with("PK\3\4")) return ReadZip(data, reading);
  if (IsLegacy(text)) return ReadLegacy(data, reading);
  return ReadPlainPickle({.data = data, .member = "", .is_in_file = true}, reading);
}

Checkpoint ReadWholePickle(const Record& record, Reading& reading) {
  const Extent& data = record.data;
  const uint64_t length = data.length;
  reading.budget.Charge(length);
  reading.budget.WorkOnBytes(length);
  std::vector<std::byte> bytes(length);
  data.source->ReadAt(data.offset, bytes);
  Storages storages(reading.budget, reading.sidecar, [](std::string_view) {
    return Record{.data = {},
                  .member = "",
                  .is_in_file = false,
                  .error = Error(EBADMSG, "a plain pickle has no storages")};
  });
  Context context{
      .reading = reading, .storages = storages, .pickle = bytes, .pickle_record = record};
  Checkpoint checkpoint;
  AddPickle("", context, checkpoint);
  return checkpoint;
}

Checkpoint ReadPlainPickle(const Record& record, Reading& reading, uint64_t* length) {
  const Extent& data = record.data;
  uint64_t size = 0;
  Checkpoint checkpoint;
  if (const auto found = pickle::LengthUnless(data, kJoblibArray, reading.budget)) {
    size = *found;
    Record whole = record;
    whole.data = {data.source, data.offset, size};
    checkpoint = ReadWholePickle(whole, reading);
  } else {
    checkpoint = ReadJoblib(record, reading, size);
  }
  if (length != nullptr) *length = size;
  return checkpoint;
}

void AddPickle(std::string_view name, Context& context, Checkpoint& checkpoint,
               const pickle::Resolve& resolve) try {
  const pickle::Graph graph = pickle::Load(context.pickle, context.budget, resolve);
  context.reading.globals.Add(graph);
  AddObjects(graph.root(), context, checkpoint);
  if (const size_t strays = graph.stray_states().size() / 2; strays > 0) {
    checkpoint.warnings.push_back(
        fmt::format("{}{}{} values that are not objects have a state, which is ignored", name,
                    name.empty() ? "" : ": ", strays));
  }
} catch (const Error& e) {
  if (name.empty()) throw;
  throw WithContext(name, e);
}

}  // namespace ckptfs::torch
