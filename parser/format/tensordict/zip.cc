#include "parser/format/tensordict/zip.h"

#include "parser/base/error.h"
#include "parser/format/tensordict/directory.h"
#include "parser/format/tensordict/tree.h"

namespace ckptfs::tensordict {

bool IsZip(const Members& members) { return members.Find(kMetaName) != nullptr; }

Checkpoint ReadZip(const Source& /*source*/, Members members, const ReadOptions& /*options*/) try {
  return ReadTree(*MakeDirectory(members), members.budget());
} catch (const Error& e) {
  throw WithContext(kMetaName, e);
}

}  // namespace ckptfs::tensordict
