// Reads files from a server: follows redirects, repeats what failed, and notices files that change.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "src/remote/connection.h"

namespace mxfp4 {

/// A file on a server. Members are known from a listing, or from the first answer.
struct RemoteFile {
  std::string name;  // relative to the source
  std::string url = {};
  int64_t bytes = -1;        // -1: unknown
  std::string version = {};  // what changes if the contents do: an ETag, or a hash
  int64_t modified_ns = 0;
  bool is_known = false;  // an answer has given the members that no listing gave
  bool is_fixed = false;  // the URL contains a commit: only answers of one server are compared
};

/// How many requests a process has at once: 32, or fewer if it may open only few descriptors.
int most_requests();

class Client {
 public:
  /// shown: the source's address, for messages. url: of the source; only its server gets the credentials.
  Client(std::string shown, const std::string& url, Credentials credentials);
  ~Client();

  struct Text {
    std::string text;
    HttpHeaders headers;
    std::string absent = {};  // why the server has no such file: it answers 404, or 403, as stores without a list do
  };
  /// The text at a URL. A text without `end` was cut off: it is asked for again. Throws Error{io} or Error{input}.
  Text text(const std::string& name, const std::string& url, int64_t limit, std::string_view end = {});
  /// The size of a file; -1 if the server does not say it, none if the server has no such file.
  std::optional<int64_t> size(const std::string& name, const std::string& url);
  /// Takes a part of a range. offset: in the file.
  using RangeSink = std::function<void(int64_t offset, std::string_view part)>;
  /// Reads a range, in order. Members of `file` that are unknown become known; they are compared otherwise. From any
  /// thread, but only from one until they are known. A range that ends behind the file is shortened. Returns the bytes
  /// read.
  int64_t read(RemoteFile& file, int64_t offset, int64_t bytes, const RangeSink& sink);

  const std::string& shown() const { return shown_; }
  bool is_of_source(const std::string& url) const;
  /// Ends all transfers: they fail.
  void close() { rules_.is_closing = true; }

 private:
  class Lease;
  class Patience;
  HttpResult attempt(const std::string& url, int64_t offset, int64_t bytes, const BodySink& sink);
  HttpResult follow(std::string url, int64_t offset, int64_t bytes, const BodySink& sink);
  std::string known_place(const std::string& url) const;
  void set_place(const std::string& url, const std::string& place);
  std::string advice(const HttpHeaders& headers) const;
  void judge(HttpResult& result) const;
  std::string check_range(const HttpHeaders& h, int64_t offset, int64_t bytes, RemoteFile& file);
  std::string expected_version(const RemoteFile& file, const HttpHeaders& h);

  std::string shown_, origin_;
  Credentials credentials_;
  bool allows_http_;
  ConnectionRules rules_;
  std::atomic<bool> has_answered_ = false, has_noted_ = false;  // has_noted_: a long pause, since the last bytes
  mutable std::mutex mutex_;                                    // guards the following members
  std::vector<std::unique_ptr<Connection>> idle_;
  std::map<std::string, std::string> places_;    // of a URL: the one that its redirects led to
  std::map<std::string, std::string> versions_;  // of a file at a server
};

}  // namespace mxfp4
