// Each thread that makes a request leases a handle of libcurl, which keeps the connections that it
// has made, and gives it back. Handles share nothing, so threads do not wait for each other.

#include "parser/source/http/client.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>

#include "parser/source/http/pool.h"
#include "parser/source/http/transfer.h"

namespace ckptfs::http {
namespace {

std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// They are read again for each connection, wherever the program is then.
std::string Absolute(const std::string& path) {
  return path.empty() ? path : std::filesystem::absolute(path).string();
}

// What the user says, or where the curl program looks: libcurl itself does not.
Trust TrustOf(const std::string& ca_file) {
  if (!ca_file.empty()) return {.file = Absolute(ca_file), .directory = ""};
  std::string bundle = Variable("CURL_CA_BUNDLE");
  if (!bundle.empty()) return {.file = Absolute(bundle), .directory = ""};
  return {.file = Absolute(Variable("SSL_CERT_FILE")),
          .directory = Absolute(Variable("SSL_CERT_DIR"))};
}

}  // namespace

std::string_view Response::Find(std::string_view name) const {
  const auto found = std::ranges::find(headers, name, &std::pair<std::string, std::string>::first);
  return found == headers.end() ? std::string_view() : found->second;
}

Client::Client(const Options& options)
    : pool_(std::make_unique<Pool>(TrustOf(options.ca_file), options.user_agent)) {}

Client::~Client() = default;

Response Client::Perform(const Request& request, Receiver* receiver, const std::stop_token& stop) {
  std::unique_ptr<Connection> connection = pool_->Take();
  Transfer transfer(request, receiver, stop);
  Response response;
  {
    const std::stop_callback end(stop, [&connection] { connection->ShutDown(); });
    response = transfer.Run(*connection);
  }
  if (transfer.is_clean() && !stop.stop_requested()) pool_->Return(std::move(connection));
  return response;
}

}  // namespace ckptfs::http
