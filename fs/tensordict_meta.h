// The texts in meta.json.
//
//   {"weight":{"device":"cpu","shape":[4,3],"dtype":"torch.float32","is_nested":false,...},
//    "attn":{"type":"TensorDict",...},
//    "step":{"type":"NonTensorData",...},
//    "shape":[],"device":"cpu","_type":"<class 'tensordict._td.TensorDict'>"}
//
// tensordict reads the members shown and ignores all others, which ckptfs adds. tensordict rejects
// a whole directory for four reasons, so such members are not written: a tensor with a member
// "type", a dtype that it does not know, a shape that torch cannot count, and any member of ckptfs
// in the meta.json of a value.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "parser/checkpoint.h"

namespace ckptfs {

// The name of an entry, here and in the checkpoint.
struct EntryName {
  std::string_view key;       // Valid UTF-8, different from all others of its directory.
  std::string_view original;  // The key, or the rest of it in this directory. Any bytes.
  Key::Kind kind = Key::Kind::kText;
  bool is_index = false;  // Of a list, whose keys are always numbers.

  // Whether the entry must record the original key.
  bool must_record_key() const {
    const bool is_text = kind == Key::Kind::kText || kind == Key::Kind::kWhole;
    return key != original || !(is_text || is_index);
  }
};

// The meta.json of one directory. Appends to a text that keeps its memory from one directory to the
// next.
class DirectoryMeta {
 public:
  void Clear();

  // `view` is the text of AppendView.
  void AddTensor(const EntryName& name, const Tensor& tensor, std::string_view view);
  void AddValue(const EntryName& name, const Value& value);
  void AddGroup(const EntryName& name, const Group& group);
  void AddTable(const EntryName& name, const Table& table);

  // A directory that is not a group of the checkpoint, but comes from dots in its keys.
  void AddLevel(const EntryName& name);

  // Ends the text and returns it. `collection` is that of the group if this is its directory, else
  // empty; `summary` becomes the last member if it is not empty.
  std::string_view Finish(std::string_view collection, std::string_view summary);

 private:
  void Begin(std::string_view key, std::string_view what);
  void AppendLines(const Table& table);
  void End(const EntryName& name, const std::vector<Annotation>& annotations);

  std::string text_;
};

// Appends the shape and the type of a tensor for its entry: equal texts mean equal shapes and
// types. Types that tensordict cannot load are listed as bytes, with "x_dtype" and "x_shape"; the
// shape of a nested tensor is that of its sizes, as in tensordict.
void AppendView(std::string& out, const Tensor& tensor);

// The meta.json of the directory of a value.
std::string ValueMeta(const Value& value);

// The meta.json of a collection that describes all members: a closed one, or an empty one.
std::string CollectionMeta(std::string_view collection);

// The object that describes a group that is a tensor. Precondition: `about` is not empty.
std::string AboutText(const std::vector<Annotation>& about);

// The object that describes the checkpoint as a whole. Does not look at the members of its root.
std::string SummaryText(const Checkpoint& checkpoint, std::string_view version);

// Whether the annotation is about the bytes of a tensor, their location and storage, or about the
// file, and not about the content: such annotations are not in a meta.json.
bool IsAboutBytes(std::string_view name);

// Appends a text of the checkpoint, which may be any bytes, as a string. Unlike json::AppendString
// it writes no lone surrogates: some readers of JSON refuse the whole text for them.
void AppendText(std::string& out, std::string_view text);

// Appends `shape` as a list.
void AppendShape(std::string& out, const std::vector<uint64_t>& shape);

// Members of a meta.json that ckptfs adds.
//
// ckptfs writes members of its own into a meta.json: "_ckptfs" beside the keys, and "recipe",
// "x_dtype", "error", "key" and others in the entries of keys. Programs trust them: a recipe is
// evaluated. JSON of the checkpoint stands beside them: the meta.json of a TensorDict, attributes
// of Python objects, metadata of a file. These functions append all such JSON, except plain strings
// and the "data" of a value, so that no part of it is taken for an entry of ckptfs:
//
//   A member with a name of ckptfs gets an underscore appended, as does one whose name differs
//   from it by trailing underscores only: "recipe" is "recipe_", "recipe_" is "recipe__". So
//   different names stay different, and the original ones can be restored.
//
// This applies to names of instructions and checks at any depth, and to all names of ckptfs in
// objects that look like an entry.

// The member of an entry instead of an annotation `x` in a file of its own: "x_file", the name of
// the file.
constexpr std::string_view kAnnotationFileSuffix = "_file";

// Whether `name` is a member that ckptfs adds to entries beside those of tensordict.
bool IsOurs(std::string_view name);

// Appends members of a checkpoint to a meta.json: "a":1,"b":{}. They stand where keys do, so
// objects in them could be taken for entries. `members` with braces around it is valid JSON.
void AppendForeignMembers(std::string& out, std::string_view members);

// Appends ,"name":json. Of ours is the name, and in `json` no member but what is known of that
// note.
void AppendAnnotation(std::string& out, std::string_view name, std::string_view json);

}  // namespace ckptfs
