// Where the files of a saved TensorDict are: in a directory, or in an archive that is one.

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

// One directory. Belongs to one thread. Names may be anything: what is no name of a file in it is
// not there.
class Directory {
 public:
  virtual ~Directory() = default;

  // The path of `name` from where the TensorDict was saved.
  virtual std::string PathOf(const std::string& name) const = 0;

  // Opens the file `name`; nothing if there is none. What is wrong with it is its error. Throws
  // Error if it is this process that lacks something, and EFBIG.
  virtual std::optional<Record> Open(const std::string& name) const = 0;

  // The directory `name` in it, which may turn out to be without files; null if there is none.
  virtual std::unique_ptr<Directory> Below(const std::string& name) const = 0;

  // Whether it is known what directories there are. If not, only those are found that have a
  // meta.json.
  virtual bool is_listed() const = 0;

  // The names of directories that there are no entries of, as tensordict 0.3 left them.
  virtual std::vector<std::string> Unlisted() const = 0;
};

// A folder; `folder` and `budget` must outlive the result. Each file that is opened lets the budget
// grow, and what is kept of it is charged to it.
std::unique_ptr<Directory> MakeDirectory(const Folder& folder, Budget& budget);

// All of an archive; `members` must outlive the result.
std::unique_ptr<Directory> MakeDirectory(const Members& members);

}  // namespace ckptfs::tensordict
