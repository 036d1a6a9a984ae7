#include "src/remote/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "src/base/error.h"
#include "src/remote/libcurl.h"

namespace mxfp4 {

namespace {

constexpr std::string_view hub_scheme = "hf://", store_scheme = "s3://";

bool is_unreserved(unsigned char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.' ||
         c == '_' || c == '~';
}

/// Whether a text can be a part of a repository's or bucket's name.
bool is_plain_name(std::string_view text) {
  return !text.empty() && text.front() != '.' && std::all_of(text.begin(), text.end(), is_unreserved);
}

RemoteAddress parse_hub(const std::string& text) {
  RemoteAddress a{RemoteKind::hub, text, text.substr(hub_scheme.size()), "main", {}};
  if (const size_t at = a.place.find('@'); at != a.place.npos) {
    a.revision = a.place.substr(at + 1);
    a.place.erase(at);
  }
  const size_t slash = a.place.find('/');
  const bool is_name = slash != a.place.npos && is_plain_name(a.place.substr(0, slash)) &&
                       is_plain_name(a.place.substr(slash + 1)) && !a.revision.empty() && is_printable(a.revision);
  if (!is_name) fail(ErrorKind::usage, "{}: hf://OWNER/NAME or hf://OWNER/NAME@REVISION was expected", text);
  return a;
}

RemoteAddress parse_web(const std::string& text) {
  if (text.find_first_of("?#") != text.npos)
    fail(ErrorKind::usage, "{}: a folder's address was expected, without ? and #", text.substr(0, text.find('?')));
  const std::string host = text.substr(0, text.find('/', text.find("://") + 3));
  if (host.find('@') != host.npos)
    fail(ErrorKind::usage, "{}: a password in an address; it would be seen in lists of processes",
         text.substr(0, text.find("://") + 3));
  origin_of_url(text);
  return {RemoteKind::web, text, text.ends_with('/') ? text : text + "/", {}, {}};
}

RemoteAddress parse_store(const std::string& text) {
  RemoteAddress a{RemoteKind::store, text, text.substr(store_scheme.size()), {}, {}};
  if (const size_t slash = a.place.find('/'); slash != a.place.npos) {
    a.prefix = a.place.substr(slash + 1);
    a.place.erase(slash);
  }
  if (!a.prefix.empty() && !a.prefix.ends_with('/')) a.prefix += '/';
  if (!is_plain_name(a.place)) fail(ErrorKind::usage, "{}: s3://BUCKET/PREFIX was expected", text);
  return a;
}

class ParsedUrl {
 public:
  ParsedUrl() : url_(libcurl().url(), libcurl().url_cleanup) {}
  void set(const std::string& text) {
    if (libcurl().url_set(url_.get(), CURLUPART_URL, text.c_str(), 0) != CURLUE_OK)
      fail(ErrorKind::input, "{}: no URL", text.substr(0, text.find('?')));
  }
  /// In lower case.
  std::string host() const {
    std::string text = get(CURLUPART_HOST);
    for (char& c : text)
      if (c >= 'A' && c <= 'Z') c = char(c - 'A' + 'a');
    return text;
  }
  std::string get(CURLUPart part) const {
    char* text = nullptr;
    if (libcurl().url_get(url_.get(), part, &text, part == CURLUPART_PORT ? CURLU_DEFAULT_PORT : 0) != CURLUE_OK)
      return {};
    std::string out = text;
    libcurl().free(text);
    return out;
  }

 private:
  std::unique_ptr<CURLU, decltype(&::curl_url_cleanup)> url_;
};

bool is_private_v4(uint32_t a) {
  const auto in = [a](uint32_t net, int bits) { return (a ^ net) >> (32 - bits) == 0; };
  return in(0x00000000, 8) || in(0x0A000000, 8) || in(0x64400000, 10) || in(0x7F000000, 8) || in(0xA9FE0000, 16) ||
         in(0xAC100000, 12) || in(0xC0000000, 24) || in(0xC0A80000, 16) || in(0xC6120000, 15) || a >= 0xE0000000;
}

bool is_private_v6(const uint8_t* a) {
  const auto v4 = [](const uint8_t* p) {
    return is_private_v4(uint32_t(p[0]) << 24 | uint32_t(p[1]) << 16 | uint32_t(p[2]) << 8 | p[3]);
  };
  static constexpr uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF};
  static constexpr uint8_t translated[12] = {0, 0x64, 0xFF, 0x9B};
  if (std::memcmp(a, mapped, 12) == 0 || std::memcmp(a, translated, 12) == 0) return v4(a + 12);
  if (a[0] == 0x20 && a[1] == 0x02) return v4(a + 2);                             // 6to4
  if (a[0] == 0x20 && a[1] == 0x01 && a[2] == 0x00 && a[3] == 0x00) return true;  // Teredo
  return (a[0] & 0xE0) != 0x20;  // only 2000::/3 is public: not ::1, fc00::/7, fe80::/10, ff00::/8
}

}  // namespace

bool is_remote(std::string_view text) {
  return text.starts_with(hub_scheme) || text.starts_with(store_scheme) || text.starts_with("https://") ||
         text.starts_with("http://");
}

RemoteAddress parse_remote(const std::string& text) {
  if (!is_printable(text)) fail(ErrorKind::usage, "{}: an address of printable characters was expected", text);
  if (text.starts_with(hub_scheme)) return parse_hub(text);
  if (text.starts_with(store_scheme)) return parse_store(text);
  if (is_remote(text)) return parse_web(text);
  fail(ErrorKind::usage, "{}: hf://OWNER/NAME, https://HOST/DIR/ or s3://BUCKET/PREFIX was expected", text);
}

std::string percent_encoded(std::string_view text, bool slashes) {
  std::string out;
  for (const unsigned char c : text)
    if (is_unreserved(c) || (slashes && c == '/'))
      out += char(c);
    else
      out += fmt::format("%{:02X}", c);
  return out;
}

std::string percent_decoded(std::string_view text) {
  const auto digit = [](char c) {
    return c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
  };
  std::string out;
  for (size_t i = 0; i < text.size(); ++i)
    if (text[i] == '%' && i + 2 < text.size() && digit(text[i + 1]) >= 0 && digit(text[i + 2]) >= 0) {
      out += char(digit(text[i + 1]) * 16 + digit(text[i + 2]));
      i += 2;
    } else {
      out += text[i] == '+' ? ' ' : text[i];
    }
  return out;
}

std::string origin_of_url(const std::string& url) {
  ParsedUrl parsed;
  parsed.set(url);
  return fmt::format("{}://{}:{}", parsed.get(CURLUPART_SCHEME), parsed.host(), parsed.get(CURLUPART_PORT));
}

std::string resolved_url(const std::string& base, const std::string& location) {
  ParsedUrl parsed;
  parsed.set(base);
  parsed.set(location);
  return parsed.get(CURLUPART_URL);
}

bool is_private_address(const sockaddr& address) {
  if (address.sa_family == AF_INET)
    return is_private_v4(ntohl(reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr));
  if (address.sa_family == AF_INET6)
    return is_private_v6(reinterpret_cast<const sockaddr_in6&>(address).sin6_addr.s6_addr);
  return true;
}

bool has_private_host(const std::string& url) {
  ParsedUrl parsed;
  parsed.set(url);
  std::string host = parsed.host();
  if (host.starts_with('[')) {
    host = host.substr(1, host.find_first_of("]%") - 1);
    in6_addr v6;
    return ::inet_pton(AF_INET6, host.c_str(), &v6) != 1 || is_private_v6(v6.s6_addr);
  }
  while (host.ends_with('.')) host.pop_back();
  const auto is_ascii = [](unsigned char c) { return c < 0x80; };
  if (!std::all_of(host.begin(), host.end(), is_ascii)) return true;  // a form of IDN may stand for digits
  if (host.empty() || host == "localhost" || host.ends_with(".localhost")) return true;
  in_addr v4;
  return ::inet_aton(host.c_str(), &v4) == 1 && is_private_v4(ntohl(v4.s_addr));
}

}  // namespace mxfp4
