// Loads libcurl when the first remote source is opened. It depends on some 30 libraries (TLS, LDAP,
// Kerberos, ...), which take half of the start-up time and of the memory of a mount of a local
// file.

#pragma once

#include <curl/curl.h>

namespace ckptfs {

// The functions of libcurl that are used, without the prefix "curl_".
struct Curl {
  decltype(&::curl_easy_cleanup) easy_cleanup = nullptr;
  decltype(&::curl_easy_getinfo) easy_getinfo = nullptr;
  decltype(&::curl_easy_init) easy_init = nullptr;
  decltype(&::curl_easy_perform) easy_perform = nullptr;
  decltype(&::curl_easy_recv) easy_recv = nullptr;
  decltype(&::curl_easy_send) easy_send = nullptr;
  decltype(&::curl_easy_setopt) easy_setopt = nullptr;
  decltype(&::curl_easy_strerror) easy_strerror = nullptr;
  decltype(&::curl_free) free = nullptr;
  decltype(&::curl_getdate) getdate = nullptr;
  decltype(&::curl_global_init) global_init = nullptr;
  decltype(&::curl_share_cleanup) share_cleanup = nullptr;
  decltype(&::curl_share_init) share_init = nullptr;
  decltype(&::curl_share_setopt) share_setopt = nullptr;
  decltype(&::curl_slist_append) slist_append = nullptr;
  decltype(&::curl_slist_free_all) slist_free_all = nullptr;
  decltype(&::curl_url) url = nullptr;
  decltype(&::curl_url_cleanup) url_cleanup = nullptr;
  decltype(&::curl_url_get) url_get = nullptr;
  decltype(&::curl_url_set) url_set = nullptr;
  decltype(&::curl_url_strerror) url_strerror = nullptr;
};

// Returns the functions. The first call loads and initialises libcurl for the lifetime of the
// process, and throws Error(ENOPKG) if that fails; the next call then tries again. Thread-safe.
const Curl& LibCurl();

}  // namespace ckptfs
