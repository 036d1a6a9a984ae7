// Addresses of remote sources, and the URLs that they lead to.
#pragma once

#include <string>
#include <string_view>

struct sockaddr;

namespace mxfp4 {

/// hub: hf://OWNER/NAME[@REVISION]; web: https://HOST/DIR/; store: s3://BUCKET/PREFIX.
enum class RemoteKind { hub, web, store };

struct RemoteAddress {
  RemoteKind kind;
  std::string shown;     // as the user gave it, for messages
  std::string place;     // OWNER/NAME, the folder's URL with a slash at its end, or the bucket
  std::string revision;  // of a repository: a branch, tag or commit
  std::string prefix;    // in a bucket: empty, or with a slash at its end
};

/// Whether a text begins with the scheme of a remote source.
bool is_remote(std::string_view text);
/// Parses an address. Throws Error{usage}, with the expected form, if it is none.
RemoteAddress parse_remote(const std::string& text);

/// The text with every byte as %XX, except letters, digits and -._~. slashes: they stay, too.
std::string percent_encoded(std::string_view text, bool slashes);
std::string percent_decoded(std::string_view text);

/// The scheme, host and port of a URL. Throws Error{input} for a text that is no URL.
std::string origin_of_url(const std::string& url);
/// The URL that a redirect leads to. Throws Error{input} for a text that is no URL.
std::string resolved_url(const std::string& base, const std::string& location);

/// Whether an address is not of the public internet: loopback, private, link-local, multicast or reserved.
bool is_private_address(const sockaddr& address);

/// Whether the host in a URL is localhost or a literal address that is_private_address() is true for, in any form that
/// libcurl accepts. Other names are not resolved.
bool has_private_host(const std::string& url);

}  // namespace mxfp4
