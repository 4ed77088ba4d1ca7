// Whose the members of a meta.json are.
//
// ckptfs writes members of its own into a meta.json: "_ckptfs" beside the keys, and "recipe",
// "x_dtype", "error", "key" and others in the entries of keys. Programs trust them: a recipe is
// evaluated. JSON of the checkpoint stands beside them: what a TensorDict has in its own meta.json,
// attributes of Python objects, metadata of a file. Here is decided that none of that can be taken
// for ours; all texts of a meta.json that come from a checkpoint and are no plain strings are
// appended by these functions, but for the "data" of a value, in which nothing is ever ours.
//
//   A member that is called as one of ours is, gets an underscore behind its name, as does one that
//   is called like that but for underscores behind it: "recipe" is "recipe_", "recipe_" is
//   "recipe__". So different names stay different, and all can be had back.
//
// That goes for the names that say what to do or what is right, at any depth, and in objects that
// look like an entry for all names of ours.

#pragma once

#include <string>
#include <string_view>

namespace ckptfs {

// What an entry has instead of a note `x` that is a file of its own: "x_file", the name of the file.
constexpr std::string_view kAnnotationFileSuffix = "_file";

// Whether `name` is one that an entry of ours may have beside those of tensordict.
bool IsOurs(std::string_view name);

// Appends members of a meta.json that the checkpoint says: "a":1,"b":{}. They stand where keys do,
// so objects in them could be taken for entries. `members` with braces around it is valid JSON.
void AppendForeignMembers(std::string& out, std::string_view members);

// Appends ,"name":json. Of ours is the name, and in `json` no member but what is known of that note.
void AppendAnnotation(std::string& out, std::string_view name, std::string_view json);

}  // namespace ckptfs
