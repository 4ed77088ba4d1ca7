// Blobs in Azure Storage: az/container.h describes the URIs.

#include <memory>
#include <string>
#include <string_view>

#include "parser/scheme.h"
#include "parser/source/az/container.h"
#include "parser/source/s3/config.h"
#include "parser/source/s3/folder.h"

namespace ckptfs {
namespace {

SchemeSource OpenAzure(const Location& location, const SourceOptions& options) {
  const az::BlobId id = az::ParseUri(location);
  return s3::OpenInBucket(std::make_shared<az::Container>(id, s3::ProcessEnvironment, options),
                          id.blob, id.Root(), id.Root() + id.blob.key);
}

constexpr std::string_view kAzureNames[] = {"az"};

}  // namespace

extern const Scheme az_scheme{.names = kAzureNames, .open = OpenAzure};

}  // namespace ckptfs
