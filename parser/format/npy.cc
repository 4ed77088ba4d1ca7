// Arrays that numpy.save wrote, in a file of their own; see parser/codec/npy.h. They have no names.
// numpy.save appends to an open file, so there may be several, one after another. Equinox saves the
// leaves of a model so, often after a line of JSON with the hyper-parameters. numpy.save converts
// other objects, such as a dict, to an array of Python objects, which is a pickle after the header.

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "parser/base/budget.h"
#include "parser/base/error.h"
#include "parser/codec/json_document.h"
#include "parser/codec/npy.h"
#include "parser/codec/pickle/lexer.h"
#include "parser/format.h"
#include "parser/format/common/placeholder.h"
#include "parser/format/numpy/array.h"
#include "parser/format/tensordict/value.h"
#include "parser/format/torch/reader.h"

namespace ckptfs {
namespace {

// Returns the length of the line of JSON before the first array, with its line feed; 0 if it is
// missing.
size_t LengthOfLine(std::span<const std::byte> head) {
  const std::string_view text(reinterpret_cast<const char*>(head.data()), head.size());
  if (!text.starts_with('{')) return 0;
  const size_t end = text.find('\n');
  if (end == std::string_view::npos || !npy::IsNpy(head.subspan(end + 1))) return 0;
  return end + 1;
}

// Reads the arrays of one file.
class Reader {
 public:
  Reader(const Source& source, const ReadOptions& options, Budget& budget)
      : file_(source.file), budget_(budget), pickles_(budget, source, options) {}

  Checkpoint Read() {
    ReadLine();
    if (!has_line_ && IsOneOfObjects()) return ReadObjects();
    pickles_.is_part = true;
    ReadFirst();
    while (IsArrayNext()) ReadNext();
    if (count_ == 1 && !has_line_) {
      checkpoint_.root.members.front().key = {"tensor"};
    } else if (!has_line_) {
      checkpoint_.root.python_type = "list";
    }
    pickles_.Report(checkpoint_);
    return std::move(checkpoint_);
  }

 private:
  void ReadLine() {
    std::vector<std::byte> head(std::min<uint64_t>(kProbeHead, file_->size()));
    file_->ReadAt(0, head);
    position_ = LengthOfLine(head);
    has_line_ = *position_ > 0;
    if (!has_line_) return;
    try {
      const auto document = json::Document::Of({file_, 0, *position_}, budget_);
      Member member{{"hyperparameters"}, tensordict::ValueOf(document.root(), budget_)};
      checkpoint_.root.members.push_back(std::move(member));
    } catch (const Error& e) {
      throw WithContext("first line", e);
    }
  }

  Record From(uint64_t begin) const {
    return {.data = {file_, begin, file_->size() - begin}, .member = "", .is_in_file = true};
  }

  // Whether the file is one array, of objects.
  bool IsOneOfObjects() {
    const npy::ArrayHeader header = npy::ReadHeader(*file_, 0, file_->size(), budget_);
    if (!header.type.has_objects) return false;
    const Record pickle = numpy::ElementsOf(header, From(0));
    position_ = header.data_offset + pickle::LengthOf(pickle.data, budget_);
    const bool is_last = !IsArrayNext();
    position_ = 0;
    return is_last;
  }

  // Returns the array of objects as a pickle of its own.
  Checkpoint ReadObjects() {
    const npy::ArrayHeader header = npy::ReadHeader(*file_, 0, file_->size(), budget_);
    Checkpoint checkpoint = torch::ReadPlainPickle(numpy::ElementsOf(header, From(0)), pickles_);
    pickles_.Report(checkpoint);
    return checkpoint;
  }

  void ReadFirst() {
    Tensor tensor;
    Add(Take(tensor));
  }

  bool IsArrayNext() const {
    std::byte magic[npy::kMagicSize];
    if (!position_ || file_->size() - *position_ < sizeof magic) return false;
    file_->ReadAt(*position_, magic);
    return npy::IsNpy(magic);
  }

  // The error of an array is kept with it; arrays after it may then be unknown.
  void ReadNext() {
    Tensor tensor;
    const uint64_t begin = *position_;
    try {
      Add(Take(tensor));
    } catch (const Error& e) {
      if (IsFatal(e)) throw;
      const std::string name = std::to_string(count_);
      WarnOfUnreadable(name, WithContext(fmt::format("array at byte {}", begin), e), budget_,
                       checkpoint_);
      Add(MakePlaceholder(std::move(tensor), e));
    }
  }

  // Returns the array at the position, and advances to its end. Sets the known properties of
  // `tensor` even if this throws Error.
  Content Take(Tensor& tensor) {
    const uint64_t begin = *std::exchange(position_, std::nullopt);
    const uint64_t length = file_->size() - begin;
    npy::ArrayHeader header = npy::ReadHeader(*file_, begin, length, budget_);
    const uint64_t data_offset = header.data_offset;
    const Record rest = From(begin);
    if (header.type.has_objects) {
      const Record pickle = numpy::ElementsOf(header, rest);
      position_ = begin + data_offset + pickle::LengthOf(pickle.data, budget_);
      Checkpoint objects = torch::ReadPlainPickle(pickle, pickles_);
      std::ranges::move(objects.warnings, std::back_inserter(checkpoint_.warnings));
      return std::move(objects.root.members.at(0).content);
    }
    numpy::FillSaved(std::move(header), rest, blocks_, tensor);
    position_ = begin + data_offset + tensor.data.length;
    if (IsArrayNext()) std::erase_if(tensor.annotations, IsTrailing);
    return std::move(tensor);
  }

  static bool IsTrailing(const Annotation& note) { return note.first == "trailing_bytes"; }

  void Add(Content content) {
    constexpr uint64_t kCost = 1024;  // Bytes: a tensor, its annotations, and its file in the tree.
    budget_.Charge(kCost);
    checkpoint_.root.members.push_back(
        {{std::to_string(count_++), Key::Kind::kNumber}, std::move(content)});
  }

  const ByteSourcePtr& file_;
  Budget& budget_;
  torch::Reading pickles_;  // Of the arrays of objects.
  const std::shared_ptr<BlockCache> blocks_ = std::make_shared<BlockCache>();
  Checkpoint checkpoint_;
  bool has_line_ = false;
  size_t count_ = 0;                      // Arrays so far.
  std::optional<uint64_t> position_ = 0;  // Of the next array; nothing if unknown.
};

bool MatchesNpy(const Probe& probe) {
  return npy::IsNpy(probe.head) || LengthOfLine(probe.head) > 0;
}

Checkpoint ParseNpy(const Source& source, const ReadOptions& options) {
  return Reader(source, options, *options.budget).Read();
}

}  // namespace

extern const Format npy_format{.name = "npy", .matches = MatchesNpy, .parse = ParseNpy};

}  // namespace ckptfs
