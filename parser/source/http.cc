// Files on web servers.

#include <cerrno>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "parser/base/encoding.h"
#include "parser/base/error.h"
#include "parser/io/folder.h"
#include "parser/scheme.h"
#include "parser/source/http/client.h"
#include "parser/source/http/object.h"
#include "parser/source/http/url.h"
#include "parser/source/http/web_access.h"

namespace ckptfs {
namespace {

// The client and the credentials that all files of a checkpoint share.
class Server {
 public:
  Server(const http::Url& url, const SourceOptions& options)
      : options_(options),
        client_(std::make_shared<http::Client>(
            http::Client::Options{.ca_file = options.ca_file, .user_agent = options.user_agent})),
        authorization_(std::make_shared<http::Authorization>(url, options)) {}

  RemoteObjectPtr Open(const http::Url& url) const {
    files_.Add();
    auto access = std::make_shared<http::WebAccess>(url, authorization_);
    return http::OpenObject(WithoutQuery(url), client_, std::move(access), options_);
  }

 private:
  const SourceOptions options_;
  const std::shared_ptr<http::Client> client_;
  const std::shared_ptr<http::Authorization> authorization_;
  mutable FileCount files_;
};

// The directory of a file on a web server. HTTP has no listings.
class WebFolder final : public RemoteFolder {
 public:
  // `url` ends with '/' and has no query.
  WebFolder(std::string url, std::shared_ptr<const Server> server)
      : url_(std::move(url)), server_(std::move(server)) {}

  std::string name() const override { return url_; }

  std::vector<std::string> List() const override { FailUnlisted(); }
  std::vector<std::string> ListFolders() const override { FailUnlisted(); }

  RemoteObjectPtr Open(const std::string& name) const override {
    return server_->Open(http::ParseUrl(url_ + EncodeName(name)));
  }

  RemoteFolderPtr OpenFolder(const std::string& name) const override {
    return std::make_shared<WebFolder>(url_ + EncodeName(name) + "/", server_);
  }

  std::optional<EntryInfo> Find(const std::string& /*name*/) const override { FailUnlisted(); }

 private:
  [[noreturn]] static void FailUnlisted() {
    Fail(ENOTSUP,
         "directory listings are not supported over HTTP: name the index of the checkpoint");
  }

  // Returns the name as it appears in a URL.
  static std::string EncodeName(const std::string& name) {
    if (!IsPlainName(name)) Fail(EBADMSG, "invalid file name");
    return PercentEncode(name);
  }

  const std::string url_;
  const std::shared_ptr<const Server> server_;
};

SchemeSource OpenHttp(const Location& location, const SourceOptions& options) {
  const http::Url url = http::ParseUrl(location.text);
  if (url.path.ends_with('/')) {
    Fail(ENOTSUP,
         "is a directory, and directory listings are not supported over HTTP: name the checkpoint "
         "or its index");
  }
  auto server = std::make_shared<const Server>(url, options);
  RemoteObjectPtr object = server->Open(url);
  const std::string shown = WithoutQuery(url);
  const size_t last = shown.rfind('/') + 1;
  return RemoteSource{.object = std::move(object),
                      .folder = std::make_shared<WebFolder>(shown.substr(0, last), server),
                      .file_name = PercentDecode(std::string_view(shown).substr(last))};
}

constexpr std::string_view kHttpNames[] = {"http", "https"};

}  // namespace

extern const Scheme http_scheme{.names = kHttpNames, .open = OpenHttp};

}  // namespace ckptfs
