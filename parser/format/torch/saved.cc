#include "parser/format/torch/saved.h"

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <vector>

#include "parser/base/error.h"

namespace ckptfs::torch {
namespace {

// Honest files lie in one another twice at most: a storage that was pickled in an object that a
// checkpoint in several files has.
constexpr int kMostDepth = 2;

class Deeper {
 public:
  explicit Deeper(Reading& reading) : reading_(reading) {
    if (reading_.depth == kMostDepth) {
      Fail(EFBIG, "files lie in one another more than {} deep", kMostDepth);
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
  return ReadPlainPickle({.data = data, .member = "", .is_in_file = true, .error = ""}, reading);
}

}  // namespace ckptfs::torch
