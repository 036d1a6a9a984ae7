#include "src/remote/connection.h"

#include <strings.h>
#include <sys/socket.h>

#include <algorithm>
#include <ctime>

#include "src/base/error.h"
#include "src/base/number.h"
#include "src/base/process.h"
#include "src/base/signals.h"
#include "src/remote/address.h"
#include "src/remote/libcurl.h"

namespace mxfp4 {

namespace {

constexpr long connect_seconds = 15;
constexpr long slow_bytes_per_second = 1000, slow_seconds = 20;  // a slower transfer is begun again
constexpr long receive_bytes = 512 << 10;
constexpr const char* redirected_to_private = "redirected to a private address";

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && std::string_view(" \t\r\n").find(text.back()) != text.npos) text.remove_suffix(1);
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  return text;
}

/// "bytes 0-31/4096"; the total may be *.
void read_content_range(std::string_view text, HttpHeaders& h) {
  constexpr std::string_view unit = "bytes ";
  const size_t dash = text.find('-'), slash = text.find('/');
  if (!text.starts_with(unit) || slash == text.npos) return;
  h.total = whole_number(text.substr(slash + 1));
  if (dash == text.npos || dash > slash) return;  // "bytes */4096", with 416
  h.first = whole_number(text.substr(unit.size(), dash - unit.size()));
  h.last = whole_number(text.substr(dash + 1, slash - dash - 1));
}

/// "Wed, 21 Oct 2015 07:28:00 GMT" in nanoseconds; 0 if it is no date.
int64_t date_in(const std::string& text) {
  struct tm t = {};
  const char* end = ::strptime(text.c_str(), "%a, %d %b %Y %H:%M:%S", &t);
  return end ? int64_t(::timegm(&t)) * 1'000'000'000 : 0;
}

/// A number of seconds, or the seconds until a date; -1 if it is neither.
int64_t seconds_in(const std::string& text) {
  const int64_t date = date_in(text) / 1'000'000'000;
  return date > 0 ? std::max<int64_t>(0, date - ::time(nullptr)) : whole_number(text);
}

/// The text if it can be the code of an error, else an empty one.
std::string code_in(std::string_view text) {
  const auto is_letter = [](unsigned char c) { return std::isalnum(c) != 0; };
  return text.size() <= 64 && std::all_of(text.begin(), text.end(), is_letter) ? std::string(text) : "";
}

void read_header_line(std::string_view line, HttpHeaders& h) {
  if (line.starts_with("HTTP/")) {  // also of each answer before the last: 100 Continue
    h = {};
    const size_t space = line.find(' ');
    h.status = space == line.npos ? 0 : int(whole_number(line.substr(space + 1, 3)));
    return;
  }
  const size_t colon = line.find(':');
  if (colon == line.npos) return;
  const std::string name(line.substr(0, colon)), value(trimmed(line.substr(colon + 1)));
  const auto is = [&](const char* known) { return ::strcasecmp(name.c_str(), known) == 0; };
  if (is("content-length")) h.content_length = whole_number(value);
  if (is("content-range")) read_content_range(value, h);
  if (is("retry-after")) h.retry_after = seconds_in(value);
  if (is("etag")) h.etag = value;
  if (is("last-modified")) h.last_modified = value, h.modified_ns = date_in(value);
  if (is("location")) h.location = value;
  if (is("link")) h.link += (h.link.empty() ? "" : ", ") + value;
  if (is("content-encoding") && value != "identity") h.content_encoding = value;
  if (is("transfer-encoding")) h.transfer_encoding = value;
  if (is("x-amz-bucket-region")) h.bucket_region = value;
  if (is("x-error-code")) h.error_code = code_in(value);
}

/// Whether https:// may go through a proxy.
bool has_proxy() {
  constexpr const char* names[] = {"https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"};
  return std::any_of(std::begin(names), std::end(names), [](auto* name) { return !environment_text(name).empty(); });
}

/// Whether the cause may be gone at the next attempt. problem: libcurl's text, which tells a broken TLS connection from
/// one that was refused.
bool may_pass(CURLcode code, const std::string& problem) {
  switch (code) {
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
    case CURLE_PARTIAL_FILE:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
      return true;
    case CURLE_SSL_CONNECT_ERROR:
      return problem.find("SSL routines") == problem.npos || problem.find("eof") != problem.npos;
    default:
      return false;
  }
}

}  // namespace

struct Connection::Exchange {
  const HttpRequest& request;
  const BodySink& sink;
  ConnectionRules& rules;
  HttpResult result = {};
  std::string refused = {};     // why an address was not connected to
  std::string error_text = {};  // the beginning of an answer that is an error
  bool is_ended = false;        // by the sink
  curl_slist* lines = nullptr;
  char error[CURL_ERROR_SIZE] = {};

  ~Exchange() { libcurl().slist_free_all(lines); }

  static size_t on_header(char* data, size_t, size_t bytes, void* self) {
    read_header_line({data, bytes}, static_cast<Exchange*>(self)->result.headers);
    return bytes;
  }

  static size_t on_body(char* data, size_t, size_t bytes, void* self) {
    auto& e = *static_cast<Exchange*>(self);
    const int status = e.result.headers.status;
    if (status != 200 && status != 206) return e.take_error({data, bytes}), bytes;
    e.result.headers.from = e.request.url;
    e.is_ended = !e.sink(e.result.headers, {data, bytes});
    return e.is_ended ? 0 : bytes;
  }

  /// Reads "<Code>AccessDenied</Code>" in the answer of an S3 store.
  void take_error(std::string_view part) {
    constexpr std::string_view open = "<Code>", close = "</Code>";
    error_text += part.substr(0, CURL_ERROR_SIZE * 8 - std::min<size_t>(error_text.size(), CURL_ERROR_SIZE * 8));
    const size_t begin = error_text.find(open), end = error_text.find(close, begin);
    if (end != std::string::npos)
      result.headers.error_code =
          code_in(std::string_view(error_text).substr(begin + open.size(), end - begin - open.size()));
  }

  static int on_progress(void* self, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
    return static_cast<Exchange*>(self)->rules.is_closing || pending_signal() != 0;
  }

  bool is_http() const { return request.url.starts_with("http://"); }

  /// Connects, unless an address is not to be reached: a public one by http://, or a private one by a redirect. A
  /// proxy's address says nothing: then only has_private_host() counts.
  static curl_socket_t on_connect(void* self, curlsocktype, curl_sockaddr* to) {
    auto& e = *static_cast<Exchange*>(self);
    const bool is_private = is_private_address(to->addr);
    const bool is_judged = e.is_http() || !has_proxy();
    if (!e.request.is_redirected && is_private && is_judged) e.rules.first_is_private = true;
    if (!is_private && e.is_http())
      e.refused = "http:// reaches only private addresses; use https://";
    else if (is_private && is_judged && e.request.is_redirected && !e.rules.first_is_private)
      e.refused = redirected_to_private;
    if (!e.refused.empty()) return CURL_SOCKET_BAD;
    return ::socket(to->family, to->socktype | SOCK_CLOEXEC, to->protocol);
  }
};

Connection::Connection(ConnectionRules& rules) : rules_(rules), easy_(libcurl().easy_init()) {
  if (!easy_) throw std::bad_alloc();
}

Connection::~Connection() { libcurl().easy_cleanup(easy_); }

void Connection::set_options(Exchange& e) {
  const auto set = [this](CURLoption option, auto value) { libcurl().easy_setopt(easy_, option, value); };
  libcurl().easy_reset(easy_);  // keeps the open connection
  set(CURLOPT_URL, e.request.url.c_str());
  set(CURLOPT_PROTOCOLS_STR, e.request.allows_http ? "http,https" : "https");
  if (e.is_http()) set(CURLOPT_PROXY, "");                 // a proxy would hide the address that on_connect() judges
  set(CURLOPT_HTTP_VERSION, long(CURL_HTTP_VERSION_1_1));  // a connection for each range is faster than one for all
  set(CURLOPT_ACCEPT_ENCODING, "identity");
  set(CURLOPT_USERAGENT, "mxfp4-pack/" MXFP4_VERSION);
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_CONNECTTIMEOUT, connect_seconds);
  set(CURLOPT_LOW_SPEED_LIMIT, slow_bytes_per_second);
  set(CURLOPT_LOW_SPEED_TIME, slow_seconds);
  set(CURLOPT_BUFFERSIZE, receive_bytes);
  set(CURLOPT_TCP_KEEPALIVE, 1L);
  set(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);  // those of a proxy
  set(CURLOPT_ERRORBUFFER, e.error);
  set(CURLOPT_HEADERFUNCTION, &Exchange::on_header);
  set(CURLOPT_HEADERDATA, &e);
  set(CURLOPT_WRITEFUNCTION, &Exchange::on_body);
  set(CURLOPT_WRITEDATA, &e);
  set(CURLOPT_NOPROGRESS, 0L);
  set(CURLOPT_XFERINFOFUNCTION, &Exchange::on_progress);
  set(CURLOPT_XFERINFODATA, &e);
  set(CURLOPT_OPENSOCKETFUNCTION, &Exchange::on_connect);
  set(CURLOPT_OPENSOCKETDATA, &e);
  for (const char* name : {"CURL_CA_BUNDLE", "SSL_CERT_FILE"})  // the curl command reads them, libcurl does not
    if (const std::string bundle = environment_text(name); !bundle.empty()) {
      set(CURLOPT_CAINFO, bundle.c_str());
      break;
    }
  if (e.request.offset == HttpRequest::head) set(CURLOPT_NOBODY, 1L);
  if (e.request.offset >= 0)
    set(CURLOPT_RANGE, fmt::format("{}-{}", e.request.offset, e.request.offset + e.request.bytes - 1).c_str());
  if (e.request.credentials) set_credentials(e);
}

void Connection::set_credentials(Exchange& e) {
  const auto set = [this](CURLoption option, auto value) { libcurl().easy_setopt(easy_, option, value); };
  const Credentials& c = *e.request.credentials;
  if (!c.bearer.empty()) {
    set(CURLOPT_HTTPAUTH, long(CURLAUTH_BEARER));
    set(CURLOPT_XOAUTH2_BEARER, c.bearer.c_str());
  }
  if (c.sigv4.empty()) return;
  set(CURLOPT_AWS_SIGV4, c.sigv4.c_str());
  set(CURLOPT_USERNAME, c.key.c_str());
  set(CURLOPT_PASSWORD, c.secret.c_str());
  const auto add = [&](const std::string& line) { e.lines = libcurl().slist_append(e.lines, line.c_str()); };
  // S3 demands it; libcurl adds it only from 8.0 on. The hash is that of an empty body.
  add("x-amz-content-sha256: e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  if (!c.session.empty()) add("x-amz-security-token: " + c.session);
  set(CURLOPT_HTTPHEADER, e.lines);
}

HttpResult Connection::get(const HttpRequest& request, const BodySink& sink) {
  Exchange e{request, sink, rules_};
  const bool is_private = has_private_host(request.url);
  if (is_private && !request.is_redirected) rules_.first_is_private = true;
  if (is_private && !rules_.first_is_private) {
    e.result.problem = redirected_to_private;
    return e.result;
  }
  set_options(e);
  const CURLcode code = libcurl().easy_perform(easy_);
  HttpResult& r = e.result;
  r.is_whole = code == CURLE_OK;
  if (r.is_whole) return r;
  r.problem = !e.refused.empty() ? e.refused : e.error[0] ? e.error : libcurl().easy_strerror(code);
  r.may_pass = may_pass(code, r.problem) && e.refused.empty();
  const bool is_unknown = r.problem.find("issuer") != r.problem.npos || r.problem.find("self") != r.problem.npos;
  if ((code == CURLE_PEER_FAILED_VERIFICATION && is_unknown) || code == CURLE_SSL_CACERT_BADFILE)
    r.problem += "; name your authority's certificates in SSL_CERT_FILE";
  if (code == CURLE_UNSUPPORTED_PROTOCOL)
    r.problem =
        request.is_redirected ? "redirected to an address that is not https://" : "an address of https:// was expected";
  return r;
}

}  // namespace mxfp4
