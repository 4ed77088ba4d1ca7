#include "fs/tensordict_foreign.h"

#include <algorithm>
#include <cstddef>
#include <iterator>

#include "fs/tensordict_names.h"
#include "parser/base/utf8.h"

namespace ckptfs {
namespace {

// What nobody but us may say, wherever it is.
constexpr std::string_view kEverywhere[] = {kSummaryKey, "recipe", "error", "x_dtype", "x_shape"};

// The other members of our entries.
constexpr std::string_view kInEntries[] = {
    "attributes",    "batch_size",    "block_bytes",    "block_elements",
    "byte_order",    "bytes",         "columns",        "complete",
    "conj",          "data_file",     "dims",           "field_types",
    "file_bytes",    "foreign_dtype", "fortran_order",  "ggml_type",
    "key",           "key_hex",       "key_type",       "kind",
    "lines",         "location",      "logical_shape",  "lost_chunks",
    "meta",          "neg",           "not_in_index",   "numpy_dtype",
    "numpy_shape",   "python_type",   "python_types",   "quantizer",
    "requires_grad", "rows",          "saved_device",   "shape_in_python",
    "storage_dtype", "stored_dtype",  "stored_shape",   "stride",
    "tied_to",       "told",          "trailing_bytes", "unknown_type"};

// What an entry is known by.
constexpr std::string_view kMarks[] = {"type", "dtype", "bytes"};

template <typename Names>
bool Has(const Names& names, std::string_view name) {
  return std::ranges::count(names, name) != 0;
}

// Annotations in whose JSON objects at this depth are ours, while names and values in them may be of the
// checkpoint. All other annotations have no objects, or none of ours.
struct OwnDepth {
  std::string_view note;
  size_t depth;
};
constexpr OwnDepth kOwnDepths[] = {{"shards", 2}, {"lost_chunks", 2}};

// Goes through valid JSON, string by string. Nothing else can have a brace or a bracket in it.
class Scanner {
 public:
  // What `json` begins with lies `depth` deep already.
  explicit Scanner(std::string_view json, size_t depth = 0) : json_(json), depth_(depth) {}

  // Moves to the next string; false if there is none before the end of what is open.
  bool Next() {
    for (at_ += token_.size(); at_ < json_.size(); ++at_) {
      const char c = json_[at_];
      if (c == '{' || c == '[') ++depth_;
      if ((c == '}' || c == ']') && --depth_ == 0) return false;
      if (c == '"') {
        token_ = json_.substr(at_, LengthOfString());
        return true;
      }
    }
    return false;
  }

  size_t begin() const { return at_; }                // Of the string.
  size_t end() const { return at_ + token_.size(); }  // Behind its second quote.
  size_t depth() const { return depth_; }             // 1 in the outermost object.

  // Whether the string is the name of a member.
  bool is_name() const {
    const size_t next = json_.find_first_not_of(" \t\r\n", end());
    return next != std::string_view::npos && json_[next] == ':';
  }

  // The string without its quotes and escapes, which our own names do not need.
  std::string Text() const {
    const std::string_view inner = token_.substr(1, token_.size() - 2);
    std::string text;
    for (size_t i = 0; i < inner.size(); ++i) {
      if (inner[i] == '\\' && inner[++i] == 'u') {
        text += utf8::Encode(
            static_cast<char32_t>(std::stoul(std::string(inner.substr(i + 1, 4)), nullptr, 16)));
        i += 4;
      } else {
        text += inner[i];  // Of "\n" this is the wrong character, but no name of ours has one.
      }
    }
    return text;
  }

 private:
  size_t LengthOfString() const {
    size_t end = at_ + 1;
    while (json_[end] != '"') end += json_[end] == '\\' ? 2 : 1;
    return end + 1 - at_;
  }

  std::string_view json_;
  std::string_view token_;
  size_t at_ = 0;
  size_t depth_;
};

// Whether the object that `json` begins with looks like an entry.
bool LooksLikeEntry(std::string_view json) {
  Scanner scanner(json);
  while (scanner.Next()) {
    if (scanner.depth() == 1 && scanner.is_name() && Has(kMarks, scanner.Text())) return true;
  }
  return false;
}

// Appends `json`, whose objects at `own_depth` are ours, with other names for what is called as ours.
// If `are_members`, it is what is in the outermost object, and objects in it stand where entries do.
void AppendRenamed(std::string& out, std::string_view json, size_t own_depth, bool are_members) {
  Scanner scanner(json, are_members ? 1 : 0);
  size_t copied = 0;
  bool is_entry = false;
  while (scanner.Next()) {
    if (!scanner.is_name()) continue;
    const size_t depth = scanner.depth();
    const bool is_member = are_members && depth == 1;
    if (is_member) {
      const size_t value = json.find_first_not_of(" \t\r\n:", scanner.end());
      is_entry = json[value] == '{' && LooksLikeEntry(json.substr(value));
    }
    std::string name = scanner.Text();
    name.resize(name.find_last_not_of('_') + 1);
    const bool is_in_entry = is_entry && depth == 2;
    const bool is_ours =
        is_member ? name == kSummaryKey : Has(kEverywhere, name) || (is_in_entry && IsOurs(name));
    if (!is_ours || depth == own_depth) continue;
    out.append(json.substr(copied, scanner.end() - 1 - copied)) += '_';
    copied = scanner.end() - 1;
  }
  out.append(json.substr(copied));
}

}  // namespace

bool IsOurs(std::string_view name) {
  const auto is_ours = [](std::string_view n) { return Has(kEverywhere, n) || Has(kInEntries, n); };
  return is_ours(name) || (name.ends_with(kAnnotationFileSuffix) &&
                           is_ours(name.substr(0, name.size() - kAnnotationFileSuffix.size())));
}

void AppendForeignMembers(std::string& out, std::string_view members) {
  AppendRenamed(out, members, 0, true);
}

void AppendAnnotation(std::string& out, std::string_view name, std::string_view json) {
  out.append(",\"").append(name).append("\":");
  const auto* own = std::ranges::find(kOwnDepths, name, &OwnDepth::note);
  AppendRenamed(out, json, own == std::end(kOwnDepths) ? 0 : own->depth, false);
}

}  // namespace ckptfs
