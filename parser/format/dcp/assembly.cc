#include "parser/format/dcp/assembly.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "parser/base/error.h"
#include "parser/base/json.h"
#include "parser/format/common/placeholder.h"
#include "parser/io/simple_sources.h"

namespace ckptfs::dcp {
namespace {

std::string BoxText(const Region& box) {
  return fmt::format(R"("offsets":[{}],"sizes":[{}])", fmt::join(box.offsets, ","),
                     fmt::join(box.sizes, ","));
}

void AddAnnotation(Tensor& tensor, std::string_view name, std::string text, Budget& budget) {
  if (std::ranges::count(tensor.annotations, name, &Annotation::first) != 0) return;
  budget.Charge(sizeof(Annotation) + text.size());
  tensor.annotations.emplace_back(name, std::move(text));
}

// Assembles one tensor.
class Assembly {
 public:
  Assembly(const Item& item, std::string_view index, const StringTable& files,
           const ReadChunk& read, LossReport& losses, Budget& budget)
      : item_(item), index_(index), files_(files), read_(read), losses_(losses), budget_(budget) {}

  Content Run();

 private:
  // A chunk of which no copy can be read.
  struct Lost {
    const Region& box;
    std::string why;
  };

  bool IsWhole(const Region& box) const { return box.sizes == item_.shape; }
  void Lose(std::string_view file, std::string_view why);
  void ReadChunks(const Tiling& tiling);
  bool TryChunk(size_t chunk, std::string& why);
  void Take(const Region& box, Content content);
  Content Assembled(Tensor tensor, const Tiling& tiling);
  std::string ChunksAnnotation(const Tiling& tiling) const;
  std::string LostAnnotation() const;

  const Item& item_;
  const std::string_view index_;
  const StringTable& files_;
  const ReadChunk& read_;
  LossReport& losses_;
  Budget& budget_;

  std::vector<Piece> pieces_;
  std::vector<Lost> lost_;
  std::optional<Content> whole_;  // The chunk that is all of the tensor.
};

void Assembly::Lose(std::string_view file, std::string_view why) {
  losses_.Add(file, item_.name, why);
}

// Of the box `box`.
void Assembly::Take(const Region& box, Content content) {
  Tensor* tensor = std::get_if<Tensor>(&content);
  if (tensor == nullptr) {
    if (!IsWhole(box)) Fail(ENOTSUP, "is not a tensor with bytes of its own, but a part of one");
    whole_ = std::move(content);
    return;
  }
  if (tensor->error) throw Error(EBADMSG, tensor->error->what());
  if (tensor->dtype != item_.dtype) {
    Fail(EBADMSG, "is of {}, but should be of {}", Name(tensor->dtype), item_.dtype_name);
  }
  const bool is_opaque = item_.dtype == Dtype::kOpaque;  // Then its shape counts bytes.
  if (!is_opaque && tensor->shape != box.sizes) {
    Fail(EBADMSG, "has the shape [{}], but should have [{}]", fmt::join(tensor->shape, ","),
         fmt::join(box.sizes, ","));
  }
  if (IsWhole(box)) {
    whole_ = std::move(content);
    return;
  }
  if (is_opaque || ElementsPerItem(item_.dtype) > 1) {
    Fail(ENOTSUP, "is a part of a tensor of {}, whose chunks cannot be assembled",
         item_.dtype_name);
  }
  budget_.Charge(4 * sizeof(Piece));
  pieces_.push_back({.box = box, .data = std::move(tensor->data)});
}

// Adds a chunk; returns whether it could be read.
bool Assembly::TryChunk(size_t chunk, std::string& why) {
  const auto& place = item_.places[chunk];
  try {
    if (!place) {
      Fail(EBADMSG, "the location of its chunk at [{}] is missing",
           fmt::join(item_.boxes[chunk].offsets, ","));
    }
    Take(item_.boxes[chunk], read_(chunk));
    return true;
  } catch (const Error& e) {
    if (IsFatal(e)) throw;
    why = e.what();
    return false;
  }
}

void Assembly::ReadChunks(const Tiling& tiling) {
  for (size_t i = 0; i < tiling.order.size();) {
    const size_t first = tiling.order[i];
    const Region& box = item_.boxes[first];
    std::string why;
    bool is_read = false;
    for (; i < tiling.order.size() && item_.boxes[tiling.order[i]] == box; ++i) {
      if (!is_read) is_read = TryChunk(tiling.order[i], why);
    }
    if (is_read) continue;
    const auto& place = item_.places[first];
    Lose(place ? files_.TextOf(place->file) : index_, why);
    budget_.Charge(sizeof(Lost) + why.size());
    lost_.push_back({.box = box, .why = std::move(why)});
  }
}

std::string Assembly::ChunksAnnotation(const Tiling& tiling) const {
  constexpr size_t kMost = 1000;
  std::string note = "[";
  for (const size_t chunk : std::span(tiling.order).first(std::min(kMost, tiling.order.size()))) {
    if (note.size() > 1) note += ',';
    note += '{';
    if (const auto& place = item_.places[chunk]) {
      fmt::format_to(std::back_inserter(note), R"("file":{},"offset":{},"length":{},)",
                     json::String(files_.TextOf(place->file)), place->offset, place->length);
    }
    note.append(BoxText(item_.boxes[chunk])) += '}';
  }
  return note + ']';
}

std::string Assembly::LostAnnotation() const {
  constexpr size_t kMost = 100;
  std::string note = "[";
  for (const Lost& lost : std::span(lost_).first(std::min(kMost, lost_.size()))) {
    fmt::format_to(std::back_inserter(note), R"({}{{{},"error":{}}})", note.size() > 1 ? "," : "",
                   BoxText(lost.box), json::String(lost.why));
  }
  return note + ']';
}

Content Assembly::Assembled(Tensor tensor, const Tiling& tiling) {
  if (whole_) {
    Tensor* whole = std::get_if<Tensor>(&*whole_);
    if (whole == nullptr) return *std::move(whole_);
    for (auto& [name, text] : tensor.annotations)
      AddAnnotation(*whole, name, std::move(text), budget_);
    tensor = std::move(*whole);
  } else {
    tensor.data.source = MakeAssembled(tensor.shape, ItemSize(tensor.dtype), std::move(pieces_));
  }
  if (tiling.order.size() > 1) AddAnnotation(tensor, "chunks", ChunksAnnotation(tiling), budget_);
  if (tiling.is_complete && lost_.empty()) return tensor;
  tensor.is_complete = false;
  if (!lost_.empty()) AddAnnotation(tensor, "lost_chunks", LostAnnotation(), budget_);
  if (!tiling.is_complete) Lose(index_, "missing chunks");
  return tensor;
}

Content Assembly::Run() {
  Tensor tensor{.dtype = item_.dtype, .foreign_dtype = "", .shape = item_.shape};
  if (tensor.dtype == Dtype::kOpaque) tensor.foreign_dtype = item_.dtype_name;
  if (item_.requires_grad) AddAnnotation(tensor, "requires_grad", "true", budget_);
  try {
    tensor.data.length = ByteSize(tensor.dtype, tensor.shape);
    const Tiling tiling = TilingOf(item_.shape, item_.boxes, budget_);
    if (tensor.data.length == 0) {
      tensor.data.source = std::make_shared<MemorySource>("");
      return tensor;
    }
    ReadChunks(tiling);
    if (pieces_.empty() && !whole_) {
      if (lost_.empty()) Fail(EBADMSG, "no chunks");
      return LostTensor(std::move(tensor), lost_[0].why);
    }
    const bool is_incomplete = !tiling.is_complete || !lost_.empty();
    if (is_incomplete && tensor.data.length > kMaxPlaceholderSize) {
      Fail(EOVERFLOW, "incomplete, and too large to show ({} bytes)", tensor.data.length);
    }
    return Assembled(std::move(tensor), tiling);
  } catch (const Error& e) {
    if (IsFatal(e)) throw;
    Lose(index_, e.what());
    return LostTensor(std::move(tensor), e.what());
  }
}

}  // namespace

Content AssembleTensor(const Item& item, std::string_view index, const StringTable& files,
                       const ReadChunk& read, LossReport& losses, Budget& budget) {
  return Assembly(item, index, files, read, losses, budget).Run();
}

Content LostTensor(Tensor tensor, std::string_view error) {
  tensor.data = {};
  try {
    tensor.data.length = ByteSize(tensor.dtype, tensor.shape);
  } catch (const Error&) {  // Then it has no size that a file could have.
  }
  return MakePlaceholder(std::move(tensor), Error(EBADMSG, error));
}

Content LostValue(std::string_view error) {
  return Value{
      .json = "null", .python_type = "", .error = Error(EBADMSG, error), .annotations = {}};
}

bool IsLost(const Content& content) {
  return std::visit(Overloaded{[](const std::unique_ptr<Group>& /*group*/) { return false; },
                               [](const auto& other) { return other.error.has_value(); }},
                    content);
}

void LossReport::Add(std::string_view file, std::string_view item, std::string_view why) {
  constexpr size_t kMostItems = 1000;
  Loss& loss = by_file_[Quoted(file)];
  if (loss.count++ == 0) {
    loss.first = Quoted(item);
    loss.why = why;
    budget_.Charge(sizeof(Loss) + loss.why.size());
  }
  if (count_ == kMostItems || (count_ > 0 && last_ == item)) return;
  ++count_;
  budget_.Charge(item.size());
  last_ = item;
  if (!items_.empty()) items_ += ',';
  json::AppendString(items_, item);
}

std::string LossReport::Sentence(const std::pair<const std::string, Loss>& loss) {
  const auto& [file, what] = loss;
  if (what.count == 1) return fmt::format("{}: missing {}: {}", file, what.first, what.why);
  return fmt::format("{}: {} missing parts, first {}: {}", file, what.count, what.first, what.why);
}

void LossReport::AddTo(Checkpoint& checkpoint) const {
  if (empty()) return;
  for (const auto& loss : by_file_) checkpoint.warnings.push_back(Sentence(loss));
  checkpoint.annotations.emplace_back("lost", fmt::format("[{}]", items_));
}

}  // namespace ckptfs::dcp
