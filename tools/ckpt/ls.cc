#include "tools/ckpt/commands.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "parser/base/error.h"
#include "parser/base/json.h"
#include "tools/ckpt/entries.h"

namespace ckptfs::ckpt {
namespace {

std::string_view AnnotationOf(const Tensor& tensor, std::string_view name) {
  const auto found = std::ranges::find(tensor.annotations, name, &Annotation::first);
  return found == tensor.annotations.end() ? std::string_view() : std::string_view(found->second);
}

// As in tensors.jsonl of a mount, but for the path there.
std::string JsonOf(const TensorEntry& entry, std::string_view tie) {
  const Tensor& tensor = *entry.tensor;
  const bool is_known = tensor.dtype != Dtype::kOpaque;
  const auto stride = AnnotationOf(tensor, "stride");
  const auto offset = AnnotationOf(tensor, "storage_offset");
  const auto text_or_null = [](std::string_view text) {
    return text.empty() ? std::string("null") : json::String(text);
  };
  const std::pair<std::string_view, std::string> members[] = {
      {"key", json::String(entry.key)},
      {"dtype", is_known ? json::String(fmt::format("torch.{}", Name(tensor.dtype)))
                         : text_or_null(tensor.foreign_dtype)},
      {"shape", fmt::format("[{}]", fmt::join(tensor.shape, ","))},
      {"stride", std::string(stride.empty() ? "null" : stride)},
      {"bytes", fmt::to_string(tensor.data.length)},
      {"member", text_or_null(tensor.member)},
      {"file_offset", tensor.is_in_file ? fmt::to_string(tensor.file_offset) : "null"},
      {"storage_offset", std::string(offset.empty() ? "null" : offset)},
      {"tied_to", text_or_null(tie)},
      {"error", text_or_null(MessageOf(tensor.error))},
  };
  return json::Object(members);
}

// The key of the tensor that has the same bytes; empty if there is none before it.
std::string_view TieOf(std::span<const TensorEntry> tensors, const TensorEntry& entry) {
  const TensorEntry& first = tensors[entry.tied_to];
  return &first == &entry ? std::string_view() : std::string_view(first.key);
}

std::string NoteOf(const Tensor& tensor, std::string_view tie) {
  if (tensor.error) return fmt::format("error: {}", MessageOf(tensor.error));
  return tie.empty() ? "" : fmt::format("= {}", tie);
}

std::string ListJson(std::span<const TensorEntry> tensors, std::span<const size_t> order) {
  std::string text = "[";
  for (const size_t i : order) {
    text += text.size() == 1 ? "\n" : ",\n";
    text += JsonOf(tensors[i], TieOf(tensors, tensors[i]));
  }
  return text + "\n]\n";
}

Table ListTable(std::span<const TensorEntry> tensors, std::span<const size_t> order, bool is_long,
                bool is_csv) {
  std::vector<Table::Column> columns = {{"key", Align::kLeft},
                                        {"dtype", Align::kLeft},
                                        {"shape", Align::kLeft},
                                        {"bytes", Align::kRight}};
  if (is_long) {
    columns.insert(columns.end(), {{"offset", Align::kRight},
                                   {"member", Align::kLeft},
                                   {"stride", Align::kLeft},
                                   {"note", Align::kLeft}});
  }
  Table table(std::move(columns));
  for (const size_t i : order) {
    const Tensor& tensor = *tensors[i].tensor;
    const uint64_t bytes = tensor.data.length;
    std::vector<std::string> cells = {tensors[i].key, DtypeNameOf(tensor), ShapeText(tensor.shape),
                                      is_csv ? fmt::to_string(bytes) : CountText(bytes)};
    if (is_long) {
      cells.push_back(tensor.is_in_file ? fmt::to_string(tensor.file_offset) : "");
      cells.push_back(tensor.member);
      cells.emplace_back(AnnotationOf(tensor, "stride"));
      cells.push_back(NoteOf(tensor, TieOf(tensors, tensors[i])));
    }
    table.Add(std::move(cells));
  }
  return table;
}

// The sums of a module; tied tensors count once.
struct Sum {
  uint64_t tensors = 0;
  uint64_t parameters = 0;
  uint64_t bytes = 0;
};

struct Module {
  std::string name;  // The last of its keys.
  size_t depth = 0;
  Sum sum;
};

// The modules, each followed by those in it, in the order of the checkpoint.
class ModuleTree {
 public:
  void Add(const TensorEntry& entry, bool is_first) {
    Node* node = &root_;
    AddTo(*node, entry, is_first);
    std::string_view key = entry.key;
    constexpr size_t kMostDepth = 64;
    for (size_t depth = 0; depth < kMostDepth; ++depth) {
      const size_t dot = key.find('.');
      if (dot == std::string_view::npos) return;
      node = &node->Child(key.substr(0, dot));
      AddTo(*node, entry, is_first);
      key.remove_prefix(dot + 1);
    }
  }

  std::vector<Module> Modules(bool by_size) const {
    std::vector<Module> modules;
    Append(root_, 0, by_size, modules);
    return modules;
  }

 private:
  struct Node {
    std::string name;
    Sum sum;
    std::vector<std::unique_ptr<Node>> children;
    std::map<std::string, Node*, std::less<>> by_name;

    Node& Child(std::string_view child) {
      if (const auto found = by_name.find(child); found != by_name.end()) return *found->second;
      Node& added = *children.emplace_back(std::make_unique<Node>());
      added.name = child;
      by_name.emplace(added.name, &added);
      return added;
    }
  };

  static void AddTo(Node& node, const TensorEntry& entry, bool is_first) {
    ++node.sum.tensors;
    if (!is_first) return;
    node.sum.parameters += ElementCountOf(*entry.tensor);
    node.sum.bytes += entry.tensor->data.length;
  }

  static void Append(const Node& node, size_t depth, bool by_size, std::vector<Module>& modules) {
    modules.push_back({node.name, depth, node.sum});
    std::vector<const Node*> children;
    for (const auto& child : node.children) children.push_back(child.get());
    if (by_size) {
      std::ranges::stable_sort(children, std::greater(),
                               [](const Node* child) { return child->sum.bytes; });
    }
    for (const Node* child : children) Append(*child, depth + 1, by_size, modules);
  }

  Node root_;
};

Table TreeTable(std::span<const Module> modules, bool is_csv) {
  Table table({{"module", Align::kLeft},
               {"tensors", Align::kRight},
               {"parameters", Align::kRight},
               {"bytes", Align::kRight}});
  const auto number = [&](uint64_t n) { return is_csv ? fmt::to_string(n) : CountText(n); };
  for (const Module& module : modules) {
    const std::string name = module.depth == 0 ? "(all)" : module.name;
    table.Add({std::string(2 * module.depth, ' ') + name, number(module.sum.tensors),
               number(module.sum.parameters),
               is_csv ? number(module.sum.bytes) : SizeText(module.sum.bytes)});
  }
  return table;
}

std::string TreeJson(std::span<const Module> modules) {
  std::string text = "[";
  for (const Module& module : modules) {
    text += text.size() == 1 ? "\n" : ",\n";
    text += fmt::format(R"({{"module":{},"depth":{},"tensors":{},"parameters":{},"bytes":{}}})",
                        json::String(module.name), module.depth, module.sum.tensors,
                        module.sum.parameters, module.sum.bytes);
  }
  return text + "\n]\n";
}

void PrintTable(const Table& table, OutputFormat format) {
  Print(format == OutputFormat::kCsv ? table.Csv() : table.Text(HasColours()));
}

}  // namespace

void List(const Model& model, const LsOptions& options) {
  const std::vector<Entry> entries = EntriesOf(model.checkpoint());
  const std::vector<TensorEntry> tensors = TensorsOf(entries);
  std::vector<size_t> order;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (Matches(tensors[i].key, options.pattern)) order.push_back(i);
  }
  if (order.empty() && !options.pattern.empty()) {
    Fail(ENOENT, "{}: no tensor matches {}", model.name(), Quoted(options.pattern));
  }
  const bool is_csv = options.format == OutputFormat::kCsv;
  if (options.is_tree) {
    ModuleTree tree;
    for (const size_t i : order) tree.Add(tensors[i], tensors[i].tied_to == i);
    const std::vector<Module> modules = tree.Modules(options.by_size);
    if (options.format == OutputFormat::kJson) return Print(TreeJson(modules));
    return PrintTable(TreeTable(modules, is_csv), options.format);
  }
  if (options.by_size) {
    std::ranges::stable_sort(order, std::greater(),
                             [&](size_t i) { return tensors[i].tensor->data.length; });
  }
  if (options.format == OutputFormat::kJson) return Print(ListJson(tensors, order));
  PrintTable(ListTable(tensors, order, options.is_long, is_csv), options.format);
}

}  // namespace ckptfs::ckpt
