#include "src/remote/client.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/signals.h"
#include "src/base/slots.h"
#include "src/remote/address.h"

namespace mxfp4 {

namespace {

constexpr int most_redirects = 8, most_attempts = 8;
constexpr int first_attempts = 3;  // of a server that has never answered
constexpr std::chrono::milliseconds first_pause(250), last_pause(30'000);
constexpr std::chrono::milliseconds longest_wait(15 * 60'000);  // of a request, without progress
constexpr int64_t least_progress = 64 << 10;                    // bytes of an answer
constexpr std::chrono::milliseconds long_pause(5'000);          // a longer one is printed

/// Whether an answer says that the server has no such file, or none that this user may see.
bool is_absent(const HttpResult& r) {
  const int status = r.headers.status;
  return (status == 403 || status == 404 || status == 410) && r.is_refused && !r.may_pass;
}

bool is_redirect(int status) { return status >= 301 && status <= 308 && status != 304 && status != 305; }

/// "ETag or date" of an answer.
std::string version_in(const HttpHeaders& h) { return !h.etag.empty() ? h.etag : h.last_modified; }

}  // namespace

int most_requests() {
  constexpr int usual = 32, share = 16;  // a connection of libcurl has three descriptors
  rlimit files = {};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return usual;
  return int(std::clamp<rlim_t>(files.rlim_cur / share, 2, usual));
}

/// A connection that no other thread uses.
class Client::Lease {
 public:
  explicit Lease(Client& client) : client_(client) {
    const std::lock_guard lock(client.mutex_);
    if (client.idle_.empty()) {
      connection_ = std::make_unique<Connection>(client.rules_);
    } else {
      connection_ = std::move(client.idle_.back());
      client.idle_.pop_back();
    }
  }
  ~Lease() {
    const std::lock_guard lock(client_.mutex_);
    client_.idle_.push_back(std::move(connection_));
  }
  Lease(const Lease&) = delete;
  Connection* operator->() { return connection_.get(); }

 private:
  Client& client_;
  std::unique_ptr<Connection> connection_;
};

/// Waits longer after each failure without progress; throws after the last, or if the waiting takes too long.
class Client::Patience {
 public:
  Patience(Client& client, const std::string& name) : client_(client), name_(name) {}
  void progress(int64_t bytes) {
    if (bytes < least_progress) return;
    failures_ = 0;
    waited_ = {};
    client_.has_noted_ = false;
  }
  void fail_or_wait(const HttpResult& r) {
    throw_if_interrupted();
    const std::string what = fmt::format("{}: {}: {}", client_.shown_, name_, r.problem);
    if (!r.may_pass || client_.rules_.is_closing) fail(ErrorKind::io, "{}", what);
    if (++failures_ >= (client_.has_answered_ ? most_attempts : first_attempts))
      fail(ErrorKind::io, "{}, {} times; give the same command again later", what, failures_);
    std::chrono::milliseconds pause = std::min(first_pause * (1 << (failures_ - 1)), last_pause);
    if (r.headers.retry_after >= 0) pause = std::chrono::seconds(std::min<int64_t>(r.headers.retry_after, 1'000'000));
    if (waited_ + pause > longest_wait)
      fail(ErrorKind::io, "{}, and asks to wait {} s; give the same command again then", what, pause.count() / 1000);
    if (pause > long_pause && !client_.has_noted_.exchange(true))  // one of many threads that wait
      note(fmt::format("{}; asked again in {} s, for at most {} min", what, pause.count() / 1000,
                       std::chrono::ceil<std::chrono::minutes>(longest_wait - waited_).count()));
    waited_ += pause;
    constexpr std::chrono::milliseconds step(100);
    for (; pause.count() > 0 && !client_.rules_.is_closing; pause -= step) {
      throw_if_interrupted();
      std::this_thread::sleep_for(std::min(pause, step));
    }
  }

 private:
  Client& client_;
  const std::string& name_;
  int failures_ = 0;
  std::chrono::milliseconds waited_ = {};  // since progress
};

Client::Client(std::string shown, const std::string& url, Credentials credentials)
    : shown_(std::move(shown)),
      origin_(origin_of_url(url)),
      credentials_(std::move(credentials)),
      allows_http_(url.starts_with("http://")) {}

Client::~Client() = default;

bool Client::is_of_source(const std::string& url) const { return origin_of_url(url) == origin_; }

std::string Client::known_place(const std::string& url) const {
  const std::lock_guard lock(mutex_);
  const auto found = places_.find(url);
  return found == places_.end() ? url : found->second;
}

void Client::set_place(const std::string& url, const std::string& place) {
  const std::lock_guard lock(mutex_);
  if (place == url)
    places_.erase(url);
  else
    places_[url] = place;
}

std::string Client::advice(const HttpHeaders& h) const {
  if (!h.bucket_region.empty() && (is_redirect(h.status) || h.status == 400))
    return fmt::format("; the bucket is in {}: set AWS_REGION", printable(h.bucket_region));
  if (h.error_code == "AuthorizationHeaderMalformed") return "; check AWS_REGION";
  if (h.status != 401 && h.status != 403) return {};
  if (!credentials_.sigv4.empty()) return "; check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN";
  if (shown_.starts_with("s3://")) return "; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY";
  if (!shown_.starts_with("hf://")) return {};
  return credentials_.bearer.empty() ? "; no such repository, or it needs a token in HF_TOKEN"
                                     : "; the token may not read it, or its license must be accepted first";
}

/// Decides about an answer that is neither a file nor a redirect.
void Client::judge(HttpResult& r) const {
  const int status = r.headers.status;
  if (!r.is_whole || status == 200 || status == 206) return;
  r.is_whole = false;
  r.is_refused = true;
  r.may_pass = status == 408 || status == 425 || status == 429 || status >= 500;
  const std::string code = r.headers.error_code.empty() ? "" : fmt::format(" ({})", r.headers.error_code);
  r.problem = fmt::format("the server answers {}{}{}", status, code, advice(r.headers));
}

/// One attempt, with redirects. The server that a redirect leads to is asked first at the next attempt.
HttpResult Client::follow(std::string url, int64_t offset, int64_t bytes, const BodySink& sink) {
  const std::string from = url;
  url = known_place(from);
  Lease connection(*this);
  for (int redirects = 0; redirects <= most_redirects; ++redirects) {
    const bool is_redirected = url != from, is_own = is_of_source(url);
    HttpResult r = connection->get({.url = url,
                                    .offset = offset,
                                    .bytes = bytes,
                                    .credentials = is_own ? &credentials_ : nullptr,
                                    .allows_http = allows_http_,
                                    .is_redirected = is_redirected && !is_own},
                                   sink);
    if (!r.is_whole || !is_redirect(r.headers.status) || r.headers.location.empty()) {
      if (r.headers.status != 0) has_answered_ = true;
      judge(r);
      const bool is_stale = is_redirected && redirects == 0 && !r.is_whole && r.headers.status / 100 == 4;
      set_place(from, is_stale || !r.is_whole ? from : url);
      r.may_pass |= is_stale;  // a signature has expired: the first server makes another
      return r;
    }
    try {
      url = resolved_url(url, r.headers.location);
      origin_of_url(url);
    } catch (const Error& e) {
      r.is_whole = false;
      r.problem = "redirected to " + e.lines.front();
      return r;
    }
  }
  HttpResult r;
  r.problem = fmt::format("more than {} redirects", most_redirects);
  return r;
}

HttpResult Client::attempt(const std::string& url, int64_t offset, int64_t bytes, const BodySink& sink) {
  const Slots::Left slot;
  return follow(url, offset, bytes, sink);
}

std::optional<int64_t> Client::size(const std::string& name, const std::string& url) {
  Patience patience(*this, name);
  while (true) {
    const HttpResult r = attempt(url, HttpRequest::head, 0, {});
    if (r.is_whole) return r.headers.content_length;
    if (is_absent(r)) return std::nullopt;
    patience.fail_or_wait(r);
  }
}

Client::Text Client::text(const std::string& name, const std::string& url, int64_t limit, std::string_view end) {
  Patience patience(*this, name);
  while (true) {
    Text out;
    bool is_long = false;
    HttpResult r = attempt(url, HttpRequest::whole, 0, [&](const HttpHeaders&, std::string_view part) {
      is_long = int64_t(out.text.size() + part.size()) > limit;
      if (!is_long) out.text += part;
      return !is_long;
    });
    if (is_long) fail(ErrorKind::input, "{}: {}: more than {} bytes", shown_, name, limit);
    out.headers = r.headers;
    if (is_absent(r)) return out.absent = r.problem, out;
    if (r.is_whole && r.headers.content_length < 0 && r.headers.transfer_encoding.empty())
      fail(ErrorKind::input, "{}: {}: sent without its length, so it may be cut off", shown_, name);
    if (r.is_whole && !r.headers.content_encoding.empty())
      fail(ErrorKind::input, "{}: {}: sent as {}, plain bytes expected", shown_, name, r.headers.content_encoding);
    if (r.is_whole && out.text.find(end) == std::string::npos) {
      r.is_whole = false, r.may_pass = true;
      r.problem = fmt::format("has no {}, so it was cut off", end);
    }
    if (r.is_whole) return out;
    patience.fail_or_wait(r);
  }
}

/// The version of an answer, if nothing has changed. Servers behind one commit may have ETags of their own.
std::string Client::expected_version(const RemoteFile& file, const HttpHeaders& h) {
  const std::string version = version_in(h);
  if (!file.is_fixed) return file.version;
  if (version.empty()) return version;
  const std::string origin = origin_of_url(h.from);
  const std::lock_guard lock(mutex_);
  return versions_.emplace(file.name + "\n" + origin, version).first->second;
}

/// Whether the headers are those of the wanted range of this file. Sets unknown members of `file`. Returns a problem,
/// or an empty text.
std::string Client::check_range(const HttpHeaders& h, int64_t offset, int64_t bytes, RemoteFile& file) {
  if (h.status == 200)
    return "sent whole, a range was expected; the server cannot send ranges; download the checkpoint and convert the "
           "copy";
  if (!h.content_encoding.empty()) return fmt::format("sent as {}, plain bytes expected", h.content_encoding);
  if (h.total < 0) return "sent without its whole size in Content-Range; download the checkpoint and convert the copy";
  if (h.first != offset || h.last != std::min(offset + bytes, h.total) - 1)
    return fmt::format("bytes {} to {} of {} were sent, {} to {} expected", h.first, h.last, h.total, offset,
                       offset + bytes - 1);
  if (!file.is_known) {
    file.is_known = true;
    if (file.bytes < 0) file.bytes = h.total, file.modified_ns = h.modified_ns;
    if (file.version.empty()) file.version = version_in(h);
  }
  if (file.bytes != h.total) return fmt::format("has {} bytes, {} expected; did it change?", h.total, file.bytes);
  if (const std::string expected = expected_version(file, h); version_in(h) != expected)
    return fmt::format("changed while it was read: {} instead of {}; start again", version_in(h), expected);
  return {};
}

int64_t Client::read(RemoteFile& file, int64_t offset, int64_t bytes, const RangeSink& to) {
  Patience patience(*this, file.name);
  int64_t done = 0;
  while (done < bytes) {
    const int64_t before = done;
    std::string wrong;
    bool is_checked = false;
    const auto sink = [&](const HttpHeaders& h, std::string_view part) {
      if (!is_checked) wrong = check_range(h, offset + before, bytes - before, file);
      is_checked = true;
      if (wrong.empty() && int64_t(part.size()) > bytes - done) wrong = "sent more bytes than it announced";
      if (!wrong.empty()) return false;
      to(offset + done, part);
      done += int64_t(part.size());
      return true;
    };
    HttpResult r = attempt(file.url, offset + done, bytes - done, sink);
    if (!wrong.empty()) fail(ErrorKind::input, "{}: {}: {}", shown_, file.name, wrong);
    if (file.bytes >= 0) bytes = std::min(bytes, file.bytes - offset);
    if (done >= bytes) break;
    if (r.headers.status == 416)
      fail(ErrorKind::input, "{}: {}: ends before byte {}; did it change?", shown_, file.name, offset + done);
    patience.progress(done - before);
    if (r.is_whole) r.may_pass = true, r.problem = "the answer was shorter than announced";
    patience.fail_or_wait(r);
  }
  return bytes;
}

}  // namespace mxfp4
