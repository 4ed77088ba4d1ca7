// Access tokens of Google Cloud, which expire after an hour.

#pragma once

#include "parser/io/source_options.h"
#include "parser/source/http/client.h"
#include "parser/source/s3/config.h"
#include "parser/source/s3/credentials.h"

namespace ckptfs::gs {

// Returns a token as the session token of credentials: that of -o token_file; else of
// CKPTFS_GCS_TOKEN; else what the program in CKPTFS_GCS_TOKEN_COMMAND prints; else that of the
// service account of this virtual machine, from its metadata service, which takes a second where
// there is none. Null: anonymous. Throws Error: EACCES, EINVAL, or the error of reading the file.
s3::CredentialsPtr FindToken(const s3::Environment& environment, http::Client& client,
                             const SourceOptions& options);

}  // namespace ckptfs::gs
