#include "src/remote/libcurl.h"

#include <dlfcn.h>

#include "src/base/error.h"

namespace mxfp4 {

namespace {

template <class F>
void find_function(void* library, const char* name, F& function) {
  function = reinterpret_cast<F>(::dlsym(library, name));
  if (!function) fail(ErrorKind::io, "libcurl.so.4: has no {}; remote sources need libcurl 7.88 or later", name);
}

Libcurl load_libcurl() {
  void* library = ::dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);
  if (!library) library = ::dlopen("libcurl-gnutls.so.4", RTLD_NOW | RTLD_LOCAL);
  if (!library)
    fail(ErrorKind::io, "remote sources need libcurl: apt install libcurl4, or download the checkpoint first");
  Libcurl c;
  find_function(library, "curl_global_init", c.global_init);
  find_function(library, "curl_easy_init", c.easy_init);
  find_function(library, "curl_easy_reset", c.easy_reset);
  find_function(library, "curl_easy_setopt", c.easy_setopt);
  find_function(library, "curl_easy_perform", c.easy_perform);
  find_function(library, "curl_easy_getinfo", c.easy_getinfo);
  find_function(library, "curl_easy_strerror", c.easy_strerror);
  find_function(library, "curl_easy_cleanup", c.easy_cleanup);
  find_function(library, "curl_slist_append", c.slist_append);
  find_function(library, "curl_slist_free_all", c.slist_free_all);
  find_function(library, "curl_url", c.url);
  find_function(library, "curl_url_set", c.url_set);
  find_function(library, "curl_url_get", c.url_get);
  find_function(library, "curl_url_cleanup", c.url_cleanup);
  find_function(library, "curl_free", c.free);
  decltype(&::curl_version_info) version;
  find_function(library, "curl_version_info", version);
  constexpr unsigned oldest = 0x075800;  // 7.88, whose SigV4 covers every header
  const auto* is = version(CURLVERSION_NOW);
  if (is->version_num < oldest)
    fail(ErrorKind::io, "libcurl {}: remote sources need 7.88 or later; download the checkpoint first", is->version);
  if (c.global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) fail(ErrorKind::io, "libcurl: cannot be initialised");
  return c;
}

}  // namespace

const Libcurl& libcurl() {
  static const Libcurl functions = load_libcurl();
  return functions;
}

}  // namespace mxfp4
