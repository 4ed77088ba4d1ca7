// TorchScript: what torch.jit.save writes. data.pkl has the module as an object of a class
// "__torch__...", whose attributes are its parameters, buffers, submodules and everything else;
// constants.pkl is a tuple of the tensors that the code mentions. Each has storages of its own,
// whose keys both begin at 0. The code itself is text, and no concern of ours.

#include <utility>

#include "parser/format/torch/archives.h"

namespace ckptfs::torch {

void AddScript(const Archive& archive, bool is_big_endian, Reading& reading,
               Checkpoint& checkpoint) {
  AddPickleOf(archive, {.record = "data.pkl", .storages = "data/", .is_big_endian = is_big_endian},
              reading, checkpoint);
  Checkpoint constants;
  AddPickleOf(archive,
              {.record = "constants.pkl", .storages = "constants/", .is_big_endian = is_big_endian},
              reading, constants);
  if (!constants.root.members.empty()) {
    AddPart(std::move(constants), "constants", checkpoint.root, checkpoint);
  }
  AddExtraFiles(archive, "extra/", reading, checkpoint);
}

}  // namespace ckptfs::torch
