// Opens an object with one request, and downloads it if its server does not support range requests.

#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "parser/source/http/download.h"
#include "parser/source/http/first_bytes.h"
#include "parser/source/http/headers.h"
#include "parser/source/http/object.h"

namespace ckptfs::http {

struct Opened {
  Version version;
  std::string identity;  // As of RemoteObject.
  std::optional<std::array<std::byte, 32>> sha256;
  std::unique_ptr<FirstBytes> first;        // Null if there are none.
  std::chrono::microseconds round_trip{0};  // To the server; 0 if not known.
  std::chrono::microseconds latency{0};     // Of the response.
  std::unique_ptr<Download> download;       // All bytes, if they had to be fetched; else null.
};

// Sends no request. Throws Error as Access::Prepare does.
Opened OpenListed(const std::string& name, Access& access, Listed listed);

// `client` must outlive the result. Throws Error as OpenObject does.
Opened Open(const std::string& name, Client& client, Access& access, const SourceOptions& options);

}  // namespace ckptfs::http
