// What the JSON of ZANJ keeps outside: the members of the archive that a "$ref" names.

#pragma once

#include <cstdint>
#include <string_view>
#include <unordered_set>

#include "parser/base/budget.h"
#include "parser/codec/json_document.h"
#include "parser/format/archive/members.h"
#include "parser/format/archive/record.h"

namespace ckptfs::zanj {

// Belongs to one thread.
class Externals {
 public:
  // `members`, which must outlive this, are those of an archive of `size` bytes.
  Externals(const Members& members, uint64_t size);

  Budget& budget() const { return members_.budget(); }
  const Members& members() const { return members_; }

  // Where the bytes of the member `reference` are; what is wrong with it, that it is not there
  // included, is its error. A name is looked for as it is: nothing leaves the archive. Throws
  // Error(EFBIG).
  Record Open(std::string_view reference);

  // The value that a member is, and the rows that one is. Throws Error: that of the record, EBADMSG
  // if it is no JSON, EFBIG if all that was read so far is more than honest files have.
  json::Document ReadValue(const Record& record);
  json::Document ReadRows(const Record& record);

  // Whether that much text may still be read.
  bool Allows(uint64_t size) const { return size <= allowance_; }

  // Whether rows may be looked at for arrays in them: they are not too long for that, or members
  // of the archive are called as if they belonged to them ("list/0/w.npy" to "list.jsonl").
  bool IsWorthReading(const Record& record) const;

  // How many rows a member has. Throws as ReadRows does, but for what is no JSON.
  uint64_t CountRows(const Record& record);

  // Returns whether it is called for this member for the first time. Rows may refer to other rows
  // and so to themselves, or share them to an exponential number, but are gone through once.
  bool Enter(std::string_view reference);

  // Members that nothing has opened.
  size_t CountUnused() const;

 private:
  void TakeAllowance(const Record& record);

  const Members& members_;
  uint64_t allowance_;  // Bytes of text that may still be read.
  std::unordered_set<const zip::Member*> opened_;
  std::unordered_set<const zip::Member*> entered_;
};

}  // namespace ckptfs::zanj
