// libcurl, loaded when the first remote source is opened. It brings some 30 libraries (TLS, LDAP,
// Kerberos, ...), which would be half of the start and of the memory of a mount of a local file.

#pragma once

#include <curl/curl.h>

namespace ckptfs {

// The functions of libcurl that we call, without "curl_" in their names.
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
  decltype(&::curl_slist_append) slist_append = nullptr;
  decltype(&::curl_slist_free_all) slist_free_all = nullptr;
  decltype(&::curl_url) url = nullptr;
  decltype(&::curl_url_cleanup) url_cleanup = nullptr;
  decltype(&::curl_url_get) url_get = nullptr;
  decltype(&::curl_url_set) url_set = nullptr;
  decltype(&::curl_url_strerror) url_strerror = nullptr;
};

// Returns the functions. The first call loads and initialises libcurl, for the rest of the process;
// it throws Error(ENOPKG) if there is none, and then so does the next. Later calls do not throw.
// Thread-safe.
const Curl& LibCurl();

}  // namespace ckptfs
