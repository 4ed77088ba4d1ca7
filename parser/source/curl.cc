#include "parser/source/curl.h"

#include <dlfcn.h>

#include <cerrno>
#include <mutex>

#include "parser/base/error.h"

namespace ckptfs {
namespace {

constexpr const char* kLibrary = "libcurl.so.4";

std::once_flag loaded;
Curl functions;

template <typename Function>
void Find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  if (function == nullptr) Fail(ENOPKG, "{}: function {} not found", kLibrary, name);
}

void Load() {
  void* const library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    Fail(ENOPKG, "cannot load libcurl, which remote checkpoints need: {}", ::dlerror());
  }
  Curl found;
  Find(library, "curl_easy_cleanup", found.easy_cleanup);
  Find(library, "curl_easy_getinfo", found.easy_getinfo);
  Find(library, "curl_easy_init", found.easy_init);
  Find(library, "curl_easy_perform", found.easy_perform);
  Find(library, "curl_easy_recv", found.easy_recv);
  Find(library, "curl_easy_send", found.easy_send);
  Find(library, "curl_easy_setopt", found.easy_setopt);
  Find(library, "curl_easy_strerror", found.easy_strerror);
  Find(library, "curl_free", found.free);
  Find(library, "curl_getdate", found.getdate);
  Find(library, "curl_global_init", found.global_init);
  Find(library, "curl_share_cleanup", found.share_cleanup);
  Find(library, "curl_share_init", found.share_init);
  Find(library, "curl_share_setopt", found.share_setopt);
  Find(library, "curl_slist_append", found.slist_append);
  Find(library, "curl_slist_free_all", found.slist_free_all);
  Find(library, "curl_url", found.url);
  Find(library, "curl_url_cleanup", found.url_cleanup);
  Find(library, "curl_url_get", found.url_get);
  Find(library, "curl_url_set", found.url_set);
  Find(library, "curl_url_strerror", found.url_strerror);
  found.global_init(CURL_GLOBAL_DEFAULT);
  functions = found;
}

}  // namespace

const Curl& LibCurl() {
  std::call_once(loaded, Load);
  return functions;
}

}  // namespace ckptfs
