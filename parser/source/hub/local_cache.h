// The cache of the hub's own client on this machine:
//
//   models--org--name/refs/main               the commit of a branch
//   models--org--name/snapshots/COMMIT/PATH   a link to a blob
//   models--org--name/blobs/ID                the bytes of a file, by its ContentId
//
// https://huggingface.co/docs/huggingface_hub/guides/manage-cache

#pragma once

#include <memory>
#include <string>

#include "parser/base/fd.h"
#include "parser/io/remote_object.h"
#include "parser/io/source_options.h"
#include "parser/source/hub/listing.h"
#include "parser/source/hub/location.h"

namespace ckptfs::hub {

// The blobs of one repository. Thread-safe.
//
// A blob is used if it and its directory belong to the mounting user or to root and are not
// writable by everyone, or with -o follow_links.
class BlobCache {
 public:
  // `directory` is that of the whole cache; it may be empty or missing.
  BlobCache(const std::string& directory, const RepositoryId& repository, LinkPolicy policy);

  // Returns an object that reads the blob of `file`, and `remote` if the blob is removed or
  // replaced; `remote` itself if there is no blob of that size.
  RemoteObjectPtr Find(const File& file, RemoteObjectPtr remote) const;

 private:
  const LinkPolicy policy_;
  std::shared_ptr<const Fd> blobs_;  // Null if the directory is missing or not trusted.
};

// Returns the path of the snapshot of the repository's revision in the cache `directory`. Throws
// Error(ENOENT) if it is not there.
std::string FindSnapshot(const std::string& directory, const RepositoryId& repository);

}  // namespace ckptfs::hub
