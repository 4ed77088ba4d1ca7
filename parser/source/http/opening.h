// The first request for an object, which tells all about it.

#pragma once

#include <cstddef>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "parser/source/http/object.h"
#include "parser/source/http/spool.h"
#include "parser/source/http/version.h"

namespace ckptfs::http {

struct Opened {
  Version version;
  std::string identity;         // As of RemoteObject.
  std::vector<std::byte> head;  // The first bytes.
  std::unique_ptr<Spool> all;   // All bytes, if they had to be fetched; else null.
};

// Throws Error as OpenObject does.
Opened Open(const std::string& name, Client& client, Access& access, const SourceOptions& options);

}  // namespace ckptfs::http
