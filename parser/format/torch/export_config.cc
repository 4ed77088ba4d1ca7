#include "parser/format/torch/export_config.h"

#include <cerrno>
#include <string_view>
#include <utility>

#include "parser/base/error.h"
#include "parser/checkpoint.h"
#include "parser/codec/json_reader.h"

namespace ckptfs::torch {
namespace {

// `path_` has the key of each object around the place where we are, an empty one for a list:
// "config", NAME, "tensor_meta", "sizes", "", "as_int".
class Reader final : public json::Visitor {
 public:
  explicit Reader(const std::function<void(ExportedTensor)>& add) : add_(add) {}

  void Begin(bool /*is_object*/) override {
    if (IsInTable()) {
      tensor_ = {};
      tensor_.name = path_[1];
    }
    path_.emplace_back();
  }

  void End(bool is_object) override {
    path_.pop_back();
    if (is_object && IsInTable()) add_(std::move(tensor_));
  }

  void Key(std::string& key) override { path_.back() = std::move(key); }

  void Text(std::string& text) override {
    if (IsAt(3, "path_name")) tensor_.record = text;
    if (IsAt(5, "type") && path_[3] == "device") tensor_.device = text;
  }

  void Whole(uint64_t number) override {
    if (IsAt(4, "dtype")) tensor_.dtype = number;
    if (IsAt(4, "layout")) tensor_.layout = number;
    if (IsAt(5, "as_int") && path_[3] == "storage_offset") tensor_.offset = number;
    if (!IsAt(6, "as_int")) return;
    if (path_[3] == "sizes") Append(tensor_.sizes, number);
    if (path_[3] == "strides") Append(tensor_.strides, number);
  }

  void Other(std::string_view json) override {
    const bool is_true = json == "true";
    if (IsAt(3, "is_param")) tensor_.is_parameter = is_true;
    if (IsAt(3, "use_pickle")) tensor_.is_pickled = is_true;
    if (IsAt(4, "requires_grad")) tensor_.requires_grad = is_true;
    if (IsAt(5, "as_int") || IsAt(6, "as_int")) {
      Fail(EBADMSG, "tensor {}: a size, stride or offset is {}", Quoted(tensor_.name),
           Quoted(json));
    }
  }

 private:
  // Whether the next value is what the table tells of one tensor.
  bool IsInTable() const { return path_.size() == 2 && path_[0] == "config"; }

  // Whether it is what the table calls `name`, in `depth` objects and lists.
  bool IsAt(size_t depth, std::string_view name) const {
    return path_.size() == depth && path_.back() == name && path_[0] == "config" &&
           (depth < 4 || path_[2] == "tensor_meta");
  }

  void Append(std::vector<uint64_t>& numbers, uint64_t number) const {
    if (numbers.size() == kMaxDimensions) {
      Fail(EBADMSG, "tensor {}: has more than {} dimensions", Quoted(tensor_.name), kMaxDimensions);
    }
    numbers.push_back(number);
  }

  const std::function<void(ExportedTensor)>& add_;
  std::vector<std::string> path_;
  ExportedTensor tensor_;
};

}  // namespace

void ReadExportConfig(const Extent& json, Budget& budget,
                      const std::function<void(ExportedTensor)>& add) {
  Reader reader(add);
  json::Read(*json.source, json.offset, json.length, budget, reader);
}

}  // namespace ckptfs::torch
