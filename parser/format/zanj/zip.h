// The zip archives of ZANJ (https://github.com/mivanit/ZANJ) and of its predecessor muutils.zanj.

#pragma once

#include <cstdint>
#include <string_view>
#include <unordered_set>

#include "parser/base/budget.h"
#include "parser/checkpoint.h"
#include "parser/codec/json_document.h"
#include "parser/format/archive/members.h"
#include "parser/format/archive/record.h"
#include "parser/io/folder.h"
#include "parser/read_options.h"

namespace ckptfs::zanj {

// Returns whether `members` include __zanj__.json, the root of the object.
bool IsZip(const Members& members);

// Reads the archive `source`, which has these members. Throws Error.
Checkpoint ReadZip(const Source& source, Members members, const ReadOptions& options);

// The members of the archive that the JSON refers to by "$ref". Belongs to one thread.
class Externals {
 public:
  // `members`, which must outlive this, are those of an archive of `size` bytes.
  Externals(const Members& members, uint64_t size);

  Budget& budget() const { return members_.budget(); }
  const Members& members() const { return members_; }

  // Opens the member `reference`. If it is missing or corrupt, the error is in the record. The name
  // is matched exactly, so a reference cannot leave the archive. Throws Error(EFBIG).
  Record Open(std::string_view reference);

  // Parse a member as one JSON value and as JSON lines. Throw Error: the record's own, EBADMSG for
  // invalid JSON, EFBIG if the JSON that was read so far exceeds the allowance of the file.
  json::Document ReadValue(const Record& record);
  json::Document ReadRows(const Record& record);

  // Returns whether the allowance covers `size` more bytes of JSON.
  bool Allows(uint64_t size) const { return size <= allowance_; }

  // Returns whether the rows of a member are to be searched for arrays: they are short, or other
  // members have names below the member's own ("list/0/w.npy" for "list.jsonl").
  bool IsWorthReading(const Record& record) const;

  // Returns the number of rows of a member. Throws as ReadRows does, except for invalid JSON.
  uint64_t CountRows(const Record& record);

  // Returns whether this is the first call for the member. Rows may refer to each other in cycles
  // or share rows exponentially often; each member is therefore expanded once.
  bool Enter(std::string_view reference);

  // Returns the number of members that were never opened.
  size_t CountUnused() const;

 private:
  void TakeAllowance(const Record& record);

  const Members& members_;
  uint64_t allowance_;  // Bytes of JSON that may still be read.
  std::unordered_set<const zip::Member*> opened_;
  std::unordered_set<const zip::Member*> entered_;
};

}  // namespace ckptfs::zanj
