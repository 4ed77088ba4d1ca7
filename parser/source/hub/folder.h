// Folders of a repository.

#pragma once

#include <memory>
#include <string>

#include "parser/io/remote_object.h"
#include "parser/source/hub/listing.h"
#include "parser/source/hub/repository.h"

namespace ckptfs::hub {

// Returns the folder `path` of the repository, which is empty or ends with '/' and which `listing`
// contains. Sends no request, and neither do its files before they are read.
RemoteFolderPtr MakeFolder(RepositoryPtr repository, std::shared_ptr<const Listing> listing,
                           std::string path);

}  // namespace ckptfs::hub
