#include "parser/format/tensordict/pickled.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <span>

#include "parser/base/error.h"
#include "parser/base/json.h"
#include "parser/codec/pickle.h"
#include "parser/format/tensordict/collection.h"
#include "parser/format/torch/value.h"
#include "parser/io/byte_source.h"

namespace ckptfs::tensordict {
namespace {

using pickle::ItemsOf;
using pickle::Kind;

constexpr int kMostDepth = 64;  // Of stacks; torch has no more dimensions.

// A pickle in memory, which is charged to `budget` while it is there.
class Bytes {
 public:
  Bytes(const Record& record, Budget& budget) : budget_(budget) {
    if (!record.error.empty()) throw Error(record.error_code, record.error);
    budget.Grow(StoredSize(record.data));
    budget.Charge(record.data.length);
    budget.WorkOnBytes(record.data.length);
    bytes_.resize(record.data.length);
    if (!bytes_.empty()) record.data.source->ReadAt(record.data.offset, bytes_);
  }
  Bytes(const Bytes&) = delete;
  Bytes& operator=(const Bytes&) = delete;
  ~Bytes() { budget_.Refund(bytes_.size()); }

  std::span<const std::byte> get() const { return bytes_; }

 private:
  Budget& budget_;
  std::vector<std::byte> bytes_;
};

bool IsOfLists(std::span<const pickle::Value> items) {
  return std::ranges::all_of(items, [&](const pickle::Value& item) {
    return item.kind == Kind::kList && ItemsOf(item).size() == ItemsOf(items.front()).size();
  });
}

std::unique_ptr<Group> StackOf(const pickle::Value& list, int depth, Budget& budget) {
  if (depth == kMostDepth) Fail(EFBIG, "lists lie in one another more than {} deep", kMostDepth);
  const auto items = ItemsOf(list);
  const bool is_of_lists = IsOfLists(items);
  budget.Work(items.size() + 1);
  auto stack = std::make_unique<Group>();
  stack->python_type = ClassOf(kNonTensorStackType);
  stack->collection.text = "\"stack_dim\":0,\"_type\":" + json::String(kNonTensorStackType);
  for (const pickle::Value& item : items) {
    constexpr uint64_t kCostOfGroup = 512;  // Bytes, with the texts above.
    budget.Charge(sizeof(Member) + (is_of_lists ? kCostOfGroup : 0));
    Key key{std::to_string(stack->members.size()), Key::Kind::kWhole};
    if (is_of_lists) {
      stack->members.push_back({std::move(key), StackOf(item, depth + 1, budget)});
    } else {
      stack->members.push_back({std::move(key), torch::ValueOf(item, budget)});
    }
  }
  return stack;
}

}  // namespace

std::vector<std::pair<std::string, Value>> ReadFields(const Record& record, Budget& budget) {
  const Bytes bytes(record, budget);
  const pickle::Graph graph = pickle::Load(bytes.get(), budget);
  std::vector<std::pair<std::string, Value>> fields;
  if (graph.root().kind != Kind::kDict) return fields;
  const auto items = ItemsOf(graph.root());
  for (size_t i = 0; i + 1 < items.size(); i += 2) {
    if (items[i].kind != Kind::kText) continue;
    budget.Charge(sizeof fields.front() + 4 * items[i].text().size());
    fields.emplace_back(items[i].text(), torch::ValueOf(items[i + 1], budget));
  }
  return fields;
}

std::unique_ptr<Group> ReadStack(const Record& record, Budget& budget) {
  const Bytes bytes(record, budget);
  const pickle::Graph graph = pickle::Load(bytes.get(), budget);
  if (graph.root().kind != Kind::kList) Fail(EBADMSG, "there is no list in it");
  return StackOf(graph.root(), 0, budget);
}

}  // namespace ckptfs::tensordict
