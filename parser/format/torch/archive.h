// The zip archives of PyTorch: in all of them each name begins with one folder, and the members
// below it are called records.

#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "parser/checkpoint.h"
#include "parser/codec/zip.h"
#include "parser/format/archive/members.h"
#include "parser/format/archive/record.h"
#include "parser/format/torch/reader.h"
#include "parser/io/folder.h"
#include "parser/read_options.h"

namespace ckptfs::torch {

// An archive and its records. Belongs to one thread.
class Archive {
 public:
  // The writer of an archive, detected by its records.
  enum class Kind {
    kSaved,      // torch.save: data.pkl
    kScript,     // torch.jit.save: data.pkl and constants.pkl
    kPackage,    // torch.package: .data/extern_modules
    kExport,     // torch.export.save: archive_format
    kOldExport,  // torch.export.save before 2.9: serialized_state_dict.pt, without a folder
  };

  // Throws Error: EBADMSG or ENOTSUP if it is not exactly one archive of PyTorch.
  explicit Archive(Members members);

  Kind kind() const { return kind_; }

  // "folder/"
  const std::string& prefix() const { return prefix_; }

  // All members, including those outside the folder.
  std::span<const zip::Member> members() const { return members_.list(); }

  // Returns null if there is no such record.
  const zip::Member* Find(std::string_view record) const {
    return members_.Find(prefix_ + std::string(record));
  }

  // Opens a record. Returns the same extent each time, so that tied tensors are detected. A record
  // that is missing or corrupt has an error. Throws Error(EFBIG) if the budget is exceeded.
  Record Open(const std::string& record) const;

  // The same, but throws Error if there is no such record, or it cannot be read.
  Record Require(const std::string& record) const;

  // The bytes of a record that is read whole. Throws Error.
  std::vector<std::byte> Read(const std::string& record) const;

  // Whether the storages are big-endian. Throws Error(EBADMSG) if the record byteorder is invalid.
  bool IsBigEndian() const;

 private:
  bool FindPickle();
  void FindKind();

  Members members_;
  std::string prefix_;
  Kind kind_ = Kind::kSaved;
};

// Whether `members` look like those of an archive of PyTorch, complete or not.
bool IsZip(const Members& members);

// Reads the archive `data` of torch.save, TorchScript, torch.package or torch.export, without its
// format and globals, as ReadSaved does. Throws Error.
Checkpoint ReadZip(const Extent& data, Reading& reading);

// Reads the archive `source`, which has these `members`. Throws Error.
Checkpoint ReadZip(const Source& source, Members members, const ReadOptions& options);

// Adds one part of an archive to `group` of `checkpoint`, as the member `name`, and its warnings to
// `checkpoint`.
void AddPart(Checkpoint part, std::string name, Group& group, Checkpoint& checkpoint);

// Adds the files below `folder` ("extra/") as the member "extra". Throws Error.
void AddExtraFiles(const Archive& archive, std::string_view folder, Reading& reading,
                   Checkpoint& checkpoint);

}  // namespace ckptfs::torch
