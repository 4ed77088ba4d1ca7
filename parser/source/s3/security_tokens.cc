// Roles that the security token service of AWS, STS, lets us take on: it answers with credentials
// that last an hour.

#include <fmt/format.h>

#include <cerrno>
#include <chrono>
#include <ctime>
#include <string>
#include <utility>

#include "parser/base/error.h"
#include "parser/source/http/object.h"
#include "parser/source/s3/answer.h"
#include "parser/source/s3/endpoint.h"
#include "parser/source/s3/providers.h"
#include "parser/source/s3/sigv4.h"
#include "parser/source/s3/small_file.h"

namespace ckptfs::s3 {
namespace {

constexpr int kOk = 200;

struct Service {
  Endpoint endpoint;
  std::string region;
};

Service ServiceFor(const Config& config) {
  const std::string region = config.region();
  if (const std::string url = config.EndpointOf("sts"); !url.empty()) {
    return {ParseEndpoint(url), region.empty() ? "us-east-1" : region};
  }
  if (!IsRegion(region)) return {ParseEndpoint("sts.amazonaws.com"), "us-east-1"};
  return {ParseEndpoint(fmt::format("sts.{}.{}", region, DomainOfAws(region))), region};
}

Query Form(std::string action, const Role& role) {
  Query form = {{"Action", std::move(action)},
                {"Version", "2011-06-15"},
                {"RoleArn", role.arn},
                {"RoleSessionName", role.session.empty() ? "ckptfs" : role.session}};
  if (!role.external_id.empty()) form.emplace_back("ExternalId", role.external_id);
  return form;
}

// `by` is null where the form says who we are.
CredentialsPtr Ask(const Surroundings& around, const Query& form, const Credentials* by,
                   const std::string& origin) {
  const Service service = ServiceFor(around.config);
  const auto prepare = [&] {
    Unsigned post{.method = "POST",
                  .host = service.endpoint.host,
                  .path = service.endpoint.path + "/",
                  .query = "",
                  .headers = {{"content-type", "application/x-www-form-urlencoded"}},
                  .body = CanonicalQuery(form)};
    http::Request request;
    request.method = post.method;
    request.url = fmt::format("{}://{}{}", service.endpoint.scheme, post.host, post.path);
    request.body = post.body;
    request.has_secret = by == nullptr || !by->session_token.empty();
    if (by != nullptr) {
      request.headers =
          Sign(post, {.region = service.region, .service = "sts"}, *by, std::time(nullptr));
    } else {
      request.headers = {"content-type: application/x-www-form-urlencoded"};
    }
    return request;
  };
  const http::Response response = http::Call(around.client, prepare, around.options);
  if (response.status != kOk) {
    const Failure failure = FailureIn(response.body);
    Fail(EACCES, "{} is refused by the security token service: status {}{}{}", origin,
         response.status, failure.code.empty() ? "" : ", ", failure.code);
  }
  return CredentialsInXml(response.body, origin);
}

}  // namespace

CredentialsPtr TakeRole(const Surroundings& around, const Role& role, const Credentials& by) {
  return Ask(around, Form("AssumeRole", role), &by, "role " + Quoted(role.arn));
}

CredentialsPtr TakeRoleByToken(const Surroundings& around, const Role& role,
                               const std::string& token_file) {
  Query form = Form("AssumeRoleWithWebIdentity", role);
  form.emplace_back("WebIdentityToken", ReadToken(token_file));
  return Ask(around, form, nullptr, "role " + Quoted(role.arn));
}

}  // namespace ckptfs::s3
