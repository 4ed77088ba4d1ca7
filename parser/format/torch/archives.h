// What is in the archives of PyTorch, one function for each kind (archive.h). They add to the root,
// the annotations and the warnings of `checkpoint`, and throw Error.

#pragma once

#include <string>
#include <string_view>

#include "parser/checkpoint.h"
#include "parser/format/torch/archive.h"
#include "parser/format/torch/reading.h"

namespace ckptfs::torch {

// A pickle that is a record, and where the storages are that it names: `storages` KEY `suffix`.
struct PickleOfArchive {
  std::string record;
  std::string_view storages;
  std::string_view suffix = {};
  bool is_big_endian = false;
};

// Adds the objects of one pickle.
void AddPickleOf(const Archive& archive, const PickleOfArchive& which, Reading& reading,
                 Checkpoint& checkpoint);

// Puts what was read of one part of an archive into `group`, which is in `checkpoint`, as the
// member `name`, and its warnings to those of all.
void AddPart(Checkpoint part, std::string name, Group& group, Checkpoint& checkpoint);

// The object of a TorchScript archive, and its constants as the member "constants".
void AddScript(const Archive& archive, bool is_big_endian, Reading& reading,
               Checkpoint& checkpoint);

// The objects of a torch.package, by package and resource.
void AddPackage(const Archive& archive, bool is_big_endian, Reading& reading,
                Checkpoint& checkpoint);

// The weights and constants of a torch.export, and of one before 2.9.
void AddExport(const Archive& archive, bool is_big_endian, Reading& reading,
               Checkpoint& checkpoint);
void AddOldExport(const Archive& archive, Reading& reading, Checkpoint& checkpoint);

// The files below `folder` ("extra/") that its writer has put there, as the member "extra".
void AddExtraFiles(const Archive& archive, std::string_view folder, Reading& reading,
                   Checkpoint& checkpoint);

// The weights of a model that AOTInductor has compiled, as the member "weights" of each model.
// Returns whether there are any.
bool AddCompiled(const Archive& archive, bool is_big_endian, Reading& reading,
                 Checkpoint& checkpoint);

}  // namespace ckptfs::torch
