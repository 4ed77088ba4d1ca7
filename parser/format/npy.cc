// Arrays that numpy.save wrote, in a file of their own; see parser/codec/npy.h. They have no names.
// numpy.save appends to an open file, so that there may be several, one behind the other. Equinox
// saves the leaves of a model so, often behind a line of JSON with the hyper-parameters.

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "parser/budget.h"
#include "parser/codec/json_document.h"
#include "parser/codec/npy.h"
#include "parser/damaged.h"
#include "parser/error.h"
#include "parser/format.h"
#include "parser/format/numpy/array.h"
#include "parser/format/tensordict/value.h"

namespace ckptfs {
namespace {

// Returns how long the line of JSON is that precedes the first array, its end included; 0 if there
// is none.
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
  Reader(const ByteSourcePtr& file, Budget& budget) : file_(file), budget_(budget) {}

  Checkpoint Read() {
    ReadLine();
    ReadFirst();
    while (IsArrayNext()) ReadNext();
    if (count_ == 1 && !has_line_) {
      checkpoint_.root.members.front().key = {"tensor"};
    } else if (!has_line_) {
      checkpoint_.root.python_type = "list";
    }
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

  void ReadFirst() {
    Tensor tensor;
    Take(tensor);
    Add(std::move(tensor));
  }

  bool IsArrayNext() const {
    std::byte magic[npy::kMagicSize];
    if (!position_ || file_->size() - *position_ < sizeof magic) return false;
    file_->ReadAt(*position_, magic);
    return npy::IsNpy(magic);
  }

  // What is wrong with an array is its error; those behind it may not be found then.
  void ReadNext() {
    Tensor tensor;
    const uint64_t begin = *position_;
    try {
      Take(tensor);
    } catch (const Error& e) {
      if (e.code() == EFBIG || IsLack(e.code())) throw;
      const std::string name = std::to_string(count_);
      WarnOfDamage(name, WithContext(fmt::format("array at byte {}", begin), e), budget_,
                   checkpoint_);
      Add(Damaged(std::move(tensor), e));
      return;
    }
    Add(std::move(tensor));
  }

  // Fills in the array at the position, and goes behind it. Throws Error.
  void Take(Tensor& tensor) {
    const uint64_t begin = *std::exchange(position_, std::nullopt);
    const uint64_t length = file_->size() - begin;
    npy::Header header = npy::ReadHeader(*file_, begin, length, budget_);
    const uint64_t data_offset = header.data_offset;
    const Record rest{
        .data = {file_, begin, length}, .member = "", .is_in_file = true, .error = ""};
    numpy::FillSaved(std::move(header), rest, panels_, tensor);
    position_ = begin + data_offset + tensor.data.length;
    if (IsArrayNext()) std::erase_if(tensor.notes, IsTrailing);
  }

  static bool IsTrailing(const Note& note) { return note.first == "trailing_bytes"; }

  void Add(Content content) {
    constexpr uint64_t kCost = 1024;  // Bytes: a tensor, its notes, and its file in the tree.
    budget_.Charge(kCost);
    checkpoint_.root.members.push_back(
        {{std::to_string(count_++), Key::Kind::kNumber}, std::move(content)});
  }

  const ByteSourcePtr& file_;
  Budget& budget_;
  const std::shared_ptr<PanelCache> panels_ = std::make_shared<PanelCache>();
  Checkpoint checkpoint_;
  bool has_line_ = false;
  size_t count_ = 0;                      // Arrays so far.
  std::optional<uint64_t> position_ = 0;  // Of what comes next; nothing if that is not known.
};

bool Matches(const Probe& probe) { return npy::IsNpy(probe.head) || LengthOfLine(probe.head) > 0; }

Checkpoint Parse(const Source& source, const ReadOptions& options) {
  return Reader(source.file, *options.budget).Read();
}

}  // namespace

extern const Format npy_format{.name = "npy", .matches = Matches, .parse = Parse};

}  // namespace ckptfs
