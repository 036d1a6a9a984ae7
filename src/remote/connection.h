// One HTTP connection: a request at a time, one attempt each, no redirect followed.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace mxfp4 {

/// How the first server knows the user.
struct Credentials {
  std::string bearer = {};                                      // a token
  std::string key = {}, secret = {}, session = {}, sigv4 = {};  // for SigV4; sigv4: "aws:amz:REGION:s3"
};

struct HttpRequest {
  static constexpr int64_t whole = -1, head = -2;  // offsets: all of a file, or the headers alone
  std::string url;
  int64_t offset = whole, bytes = 0;         // a range
  const Credentials* credentials = nullptr;  // null: none are sent
  bool allows_http = false;                  // the first URL of the source is http://
  bool is_redirected = false;                // a server chose the URL
};

/// The status line and headers of an answer. Names of members are those of the headers.
struct HttpHeaders {
  int status = 0;
  int64_t content_length = -1, retry_after = -1;  // seconds
  int64_t first = -1, last = -1, total = -1;      // of Content-Range
  int64_t modified_ns = 0;                        // of Last-Modified
  std::string etag, last_modified, location, link, content_encoding, transfer_encoding, bucket_region;
  std::string error_code;  // "AccessDenied", of an S3 store's answer or the hub's
  std::string from;        // the URL
};

/// Takes a part of the body of an answer 200 or 206. Returns false to end the transfer.
using BodySink = std::function<bool(const HttpHeaders& headers, std::string_view part)>;

struct HttpResult {
  HttpHeaders headers;
  bool is_whole = false;     // the answer arrived with all of its body
  bool is_refused = false;   // the server answered, with a status that is an error
  bool may_pass = false;     // another attempt may succeed
  std::string problem = {};  // why it is not whole
};

/// What all connections of a source share.
struct ConnectionRules {
  std::atomic<bool> is_closing = false;        // ends every transfer
  std::atomic<bool> first_is_private = false;  // the first server has a private address
};

class Connection {
 public:
  explicit Connection(ConnectionRules& rules);
  ~Connection();
  Connection(const Connection&) = delete;

  /// The connection stays open for the next request to the same server.
  HttpResult get(const HttpRequest& request, const BodySink& sink);

 private:
  struct Exchange;
  void set_options(Exchange& exchange);
  void set_credentials(Exchange& exchange);

  ConnectionRules& rules_;
  void* easy_;
};

}  // namespace mxfp4
