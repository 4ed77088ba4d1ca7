#include "parser/format/torch/objects.h"

#include <fmt/format.h>

#include <cerrno>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "parser/error.h"
#include "parser/format/torch/python.h"
#include "parser/format/torch/tensor.h"
#include "parser/format/torch/value.h"
#include "parser/json.h"

namespace ckptfs::torch {
namespace {

using pickle::Kind;

bool HasNode(const pickle::Value& value) {
  return value.kind == Kind::kTuple || value.kind == Kind::kList || value.kind == Kind::kSet ||
         value.kind == Kind::kFrozenSet || value.kind == Kind::kDict || pickle::IsObject(value);
}

// The recursion is as deep as objects lie in one another, which CheckDepth bounds.
class Walk {
 public:
  Walk(Context& context, Checkpoint& checkpoint) : context_(context), checkpoint_(checkpoint) {}

  void AddRoot(const pickle::Value& root);

 private:
  using Content = std::variant<std::unique_ptr<Group>, Tensor, ckptfs::Value>;

  // What a member takes in our memory until the tree is built, in bytes, without its texts.
  static constexpr uint64_t kCostOfMember = sizeof(Member);

  // A tensor that cannot be read is shown as a file of its size up to here, else as a value.
  static constexpr uint64_t kMostForDamaged = uint64_t{1} << 40;

  static void CheckDepth(int depth) {
    if (depth > kMaxDepth) {
      Fail(EFBIG, "objects lie in one another more than {} deep", kMaxDepth);
    }
  }

  bool HasTensor(const pickle::Value& value, int depth);
  void FillGroup(const Meaning& meaning, Group& group, int depth);
  std::unique_ptr<Group> MakeGroup(const pickle::Value& value, int depth);
  Content MakeContent(const pickle::Value& value, int depth);
  Content MakeTensor(const pickle::Value& value);
  Content MakeDamaged(Tensor tensor, const Error& error);

  Context& context_;
  Checkpoint& checkpoint_;
  std::unordered_map<const pickle::Node*, bool> has_tensor_;  // False also while being looked at.
  std::unordered_set<const pickle::Node*> ancestors_;         // Of what is being made.
  std::string path_;                                          // To it: keys joined by dots.
  size_t readable_ = 0;                                       // Tensors with bytes.
  std::optional<Error> first_damage_;
};

bool Walk::HasTensor(const pickle::Value& value, int depth) {
  CheckDepth(depth);
  if (TensorFormOf(value) != TensorForm::kNone) return true;
  if (!HasNode(value)) return false;
  const auto [known, is_new] = has_tensor_.try_emplace(value.node, false);
  if (!is_new) return known->second;
  context_.budget.Charge(4 * sizeof(void*));
  const Meaning meaning = Understand(value, context_.budget);
  bool has_tensor = false;
  for (const Child& child : meaning.children) {
    // All children are looked at, so that depth is checked everywhere.
    has_tensor = HasTensor(child.value, depth + 1) || has_tensor;
  }
  has_tensor_[value.node] = has_tensor;
  return has_tensor;
}

Walk::Content Walk::MakeDamaged(Tensor tensor, const Error& error) {
  checkpoint_.warnings.push_back(
      fmt::format("tensor {}: {}: reading it will fail", Quoted(path_), error.what()));
  context_.budget.Charge(checkpoint_.warnings.back().size());
  if (!first_damage_) first_damage_ = WithContext("tensor " + Quoted(path_), error);
  const bool has_size = [&] {
    try {
      return tensor.data.length == ByteSize(tensor.dtype, tensor.shape);
    } catch (const Error&) {
      return false;
    }
  }();
  if (has_size && tensor.data.length <= kMostForDamaged) {
    tensor.data = {.source = nullptr, .offset = 0, .length = tensor.data.length};
    tensor.error = error.what();
    tensor.is_in_file = false;
    return tensor;
  }
  ckptfs::Value value{
      .json = fmt::format(R"({{"class":"torch.Tensor","error":{}}})", json::String(error.what())),
      .python_type = "tensor",
      .notes = {}};
  value.notes.emplace_back("error", json::String(error.what()));
  return value;
}

Walk::Content Walk::MakeTensor(const pickle::Value& value) {
  context_.budget.Charge(kCostOfMember);  // Once more: shape, notes, and its files in the tree.
  Tensor tensor;
  try {
    FillTensor(value, context_, tensor);
  } catch (const Error& e) {
    if (e.code() == EFBIG) throw;  // The budget: it concerns all.
    return MakeDamaged(std::move(tensor), e);
  }
  if (tensor.data.length > 0) ++readable_;
  return tensor;
}

Walk::Content Walk::MakeContent(const pickle::Value& value, int depth) {
  CheckDepth(depth);
  switch (TensorFormOf(value)) {
    case TensorForm::kDense:
      return MakeTensor(value);
    case TensorForm::kComposite:
      return ckptfs::Value{
          .json = DescribeComposite(value, context_.budget), .python_type = "tensor", .notes = {}};
    case TensorForm::kNone:
      break;
  }
  if (!HasTensor(value, depth)) return ValueOf(value, context_.budget);
  if (ancestors_.contains(value.node)) {
    return ckptfs::Value{.json = "\"...\"", .python_type = "cycle", .notes = {}};
  }
  return MakeGroup(value, depth);
}

std::unique_ptr<Group> Walk::MakeGroup(const pickle::Value& value, int depth) {
  auto group = std::make_unique<Group>();
  ancestors_.insert(value.node);
  FillGroup(Understand(value, context_.budget), *group, depth);
  ancestors_.erase(value.node);
  return group;
}

void Walk::FillGroup(const Meaning& meaning, Group& group, int depth) {
  const bool has_items = meaning.form == Form::kSequence || meaning.form == Form::kMapping;
  if (meaning.type != "dict") group.python_type = meaning.type;
  context_.budget.Charge(meaning.children.size() * kCostOfMember);
  group.members.reserve(meaning.children.size());
  std::string attributes;  // Of a container: what is none of its items.
  for (const Child& child : meaning.children) {
    Key key = KeyOf(child.key);
    const size_t length = path_.size();
    if (!path_.empty()) path_ += '.';
    path_ += key.text;
    Content content = MakeContent(child.value, depth + 1);
    path_.resize(length);
    auto* value = std::get_if<ckptfs::Value>(&content);
    if (has_items && child.role == Child::Role::kAttribute && value != nullptr) {
      if (!attributes.empty()) attributes += ',';
      attributes += fmt::format("{}:{}", json::String(key.text), value->json);
    } else {
      context_.budget.Charge(key.text.size());
      group.members.push_back({std::move(key), std::move(content)});
    }
  }
  if (!attributes.empty())
    group.notes.emplace_back("attributes", fmt::format("{{{}}}", attributes));
}

void Walk::AddRoot(const pickle::Value& root) {
  const bool is_tensor = TensorFormOf(root) != TensorForm::kNone;
  bool is_container = false;
  if (!is_tensor && HasNode(root)) {
    const Meaning meaning = Understand(root, context_.budget);
    is_container = meaning.form == Form::kSequence || meaning.form == Form::kMapping ||
                   (meaning.form != Form::kLeaf && HasTensor(root, 0));
    ancestors_.insert(root.node);
    if (is_container) FillGroup(meaning, checkpoint_.root, 0);
  }
  if (!is_container) {
    path_ = is_tensor ? "tensor" : "value";
    Content content = MakeContent(root, 0);
    checkpoint_.root.members.push_back({{path_, Key::Kind::kText}, std::move(content)});
  }
  if (first_damage_ && readable_ == 0) throw Error(EBADMSG, first_damage_->what());
}

}  // namespace

void AddObjects(const pickle::Value& root, Context& context, Checkpoint& checkpoint) {
  Walk(context, checkpoint).AddRoot(root);
}

}  // namespace ckptfs::torch
