// The directory of a saved TensorDict, on a disk, on a server or in an archive.

#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "parser/base/budget.h"
#include "parser/format/archive/members.h"
#include "parser/format/archive/record.h"
#include "parser/io/folder.h"

namespace ckptfs::tensordict {

constexpr const char* kMetaName = "meta.json";

// One directory. Belongs to one thread. Names may be any text; a name that is not a valid file name
// is not found.
class Directory {
 public:
  virtual ~Directory() = default;

  // Returns the path of `name` relative to the root of the TensorDict.
  virtual std::string PathOf(const std::string& name) const = 0;

  // Opens the file `name`; returns nothing if it is missing. If it cannot be read, the error is in
  // the record. Throws Error only for transient errors and EFBIG.
  virtual std::optional<Record> Open(const std::string& name) const = 0;

  // Returns the directory `name`, which may be empty; null if it is missing.
  virtual std::unique_ptr<Directory> Below(const std::string& name) const = 0;

  // Returns whether directories can be listed. If not, only directories with a meta.json are found.
  virtual bool is_listed() const = 0;

  // Returns the names of directories without an entry in meta.json, which tensordict 0.3 left.
  virtual std::vector<std::string> Unlisted() const = 0;
};

// Returns a folder as a directory; `folder` and `budget` must outlive the result. Each file that is
// opened raises the limits of the budget, and is charged to it.
std::unique_ptr<Directory> MakeDirectory(const Folder& folder, Budget& budget);

// Returns an archive as a directory; `members` must outlive the result.
std::unique_ptr<Directory> MakeDirectory(const Members& members);

}  // namespace ckptfs::tensordict
