// The zip archives of PyTorch: in all of them each name begins with one folder, and the members
// below it are called records.

#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "parser/codec/zip.h"
#include "parser/format/archive/members.h"
#include "parser/format/archive/record.h"

namespace ckptfs::torch {

// Belongs to one thread.
class Archive {
 public:
  // What wrote an archive shows in the records it has.
  enum class Kind {
    kSaved,      // torch.save: data.pkl
    kScript,     // torch.jit.save: data.pkl and constants.pkl
    kPackage,    // torch.package: .data/extern_modules
    kExport,     // torch.export.save: archive_format
    kOldExport,  // torch.export.save before 2.9: serialized_state_dict.pt, without a folder
  };

  // Throws Error: EBADMSG and ENOTSUP for what is no archive of PyTorch, or not one alone.
  explicit Archive(Members members);

  Kind kind() const { return kind_; }

  // "folder/"
  const std::string& prefix() const { return prefix_; }

  // All members, those outside of the folder included.
  std::span<const zip::Member> members() const { return members_.list(); }

  // Returns null if there is no such record.
  const zip::Member* Find(std::string_view record) const {
    return members_.Find(prefix_ + std::string(record));
  }

  // Where the bytes of a record are: the same extent each time, so that tensors which share it can
  // be seen to. What is wrong with it is its error. Throws Error(EFBIG) if that is too much to
  // keep.
  Record Open(const std::string& record) const;

  // The same, but throws Error if there is no such record, or it cannot be read.
  Record Require(const std::string& record) const;

  // The bytes of a record that is read whole. Throws Error.
  std::vector<std::byte> Read(const std::string& record) const;

  // Whether the storages are big-endian. Throws Error(EBADMSG) if that is not clear.
  bool IsBigEndian() const;

 private:
  bool FindPickle();
  void FindKind();

  Members members_;
  std::string prefix_;
  Kind kind_ = Kind::kSaved;
};

}  // namespace ckptfs::torch
