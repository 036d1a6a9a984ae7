// Addresses of remote sources: how they are read, and which machines they may lead to.
#include "src/remote/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <catch2/catch.hpp>

#include "src/base/error.h"

using namespace mxfp4;

namespace {

bool is_private_text(const char* text) {
  sockaddr_in v4 = {};
  v4.sin_family = AF_INET;
  if (::inet_pton(AF_INET, text, &v4.sin_addr) == 1) return is_private_address(reinterpret_cast<sockaddr&>(v4));
  sockaddr_in6 v6 = {};
  v6.sin6_family = AF_INET6;
  REQUIRE(::inet_pton(AF_INET6, text, &v6.sin6_addr) == 1);
  return is_private_address(reinterpret_cast<sockaddr&>(v6));
}

}  // namespace

TEST_CASE("addresses of remote sources") {
  CHECK(!is_remote("/models/x"));
  CHECK(!is_remote("hf:/x"));
  const RemoteAddress hub = parse_remote("hf://openai/gpt-oss-20b@refs/pr/1");
  CHECK(hub.kind == RemoteKind::hub);
  CHECK(hub.place == "openai/gpt-oss-20b");
  CHECK(hub.revision == "refs/pr/1");
  CHECK(parse_remote("hf://openai/gpt-oss-20b").revision == "main");
  CHECK(parse_remote("https://host/a").place == "https://host/a/");
  const RemoteAddress store = parse_remote("s3://bucket/models/x");
  CHECK(store.place == "bucket");
  CHECK(store.prefix == "models/x/");
  CHECK(parse_remote("s3://bucket").prefix.empty());
  for (const char* wrong : {"hf://", "hf://a", "hf://a/b/c", "hf://a/b@", "hf://../b", "hf://a/..", "hf://a/b?x",
                            "s3://", "s3:///x", "s3://a b/x", "https://u:p@host/", "https://host/?a=b",
                            "https://host/#a", "ftp://host/", "file:///etc", "hf://a/b\x1b"})
    CHECK_THROWS_AS(parse_remote(wrong), Error);
}

TEST_CASE("a password in an address is not repeated") {
  for (const char* text : {"https://me:secret@host/", "https://host/?token=secret"}) try {
      parse_remote(text);
      FAIL("was accepted");
    } catch (const Error& e) {
      CHECK(e.lines.front().find("secret") == std::string::npos);
    }
}

TEST_CASE("private addresses") {
  for (const char* text : {"0.0.0.0",
                           "10.1.2.3",
                           "100.64.0.1",
                           "100.127.255.255",
                           "127.0.0.1",
                           "127.255.255.254",
                           "169.254.169.254",
                           "172.16.0.1",
                           "172.31.255.255",
                           "192.168.1.1",
                           "198.18.0.1",
                           "224.0.0.1",
                           "255.255.255.255",
                           "::",
                           "::1",
                           "fe80::1",
                           "fc00::1",
                           "fd12::1",
                           "ff02::1",
                           "::ffff:10.0.0.1",
                           "64:ff9b::7f00:1"})
    CHECK(is_private_text(text));
  for (const char* text : {"1.1.1.1", "11.0.0.1", "100.63.255.255", "100.128.0.1", "128.0.0.1", "169.253.0.1",
                           "172.15.0.1", "172.32.0.1", "192.167.0.1", "192.169.0.1", "198.20.0.1", "223.255.255.255",
                           "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"})
    CHECK(!is_private_text(text));
}

TEST_CASE("hosts that are private by their text") {
  for (const char* host : {"127.0.0.1", "2130706433", "0x7f000001", "0177.0.0.1", "127.1", "127.0.0.1.", "localhost",
                           "LOCALHOST.", "a.localhost", "[::1]", "[::ffff:10.0.0.1]", "[2002:a00:1::]", "[2001::1]",
                           "[fe80::1]", "10.0.0.1", "169.254.169.254"})
    CHECK(has_private_host(std::string("https://") + host + ":8443/x"));
  for (const char* host : {"huggingface.co", "8.8.8.8", "134744072", "[2606:4700::1111]", "[2002:808:808::]",
                           "localhost.example", "10.0.0.1.example"})
    CHECK(!has_private_host(std::string("https://") + host + "/x"));
}

TEST_CASE("percent encoding") {
  CHECK(percent_encoded("a b/c+\xC3\xA9", true) == "a%20b/c%2B%C3%A9");
  CHECK(percent_encoded("a/b", false) == "a%2Fb");
  CHECK(percent_decoded("a%20b%2Fc%C3%A9") == "a b/c\xC3\xA9");
  CHECK(percent_decoded("100%") == "100%");
  CHECK(percent_decoded("%4") == "%4");
  CHECK(percent_decoded("%zz") == "%zz");
  CHECK(percent_decoded("%41") == "A");
}

TEST_CASE("an origin is scheme, host and port") {
  CHECK(origin_of_url("https://host/a") == origin_of_url("https://HOST:443/b?c"));
  CHECK(origin_of_url("https://host/") != origin_of_url("http://host/"));
  CHECK(origin_of_url("https://host/") != origin_of_url("https://host:8443/"));
  CHECK(origin_of_url("https://host/") != origin_of_url("https://host.evil/"));
  CHECK(origin_of_url(resolved_url("https://host/a/b?c", "//other/x")) == "https://other:443");
  CHECK(resolved_url("https://host/a/b?c", "/x?y=1") == "https://host/x?y=1");
  CHECK(resolved_url("https://host/a/b?c", "x") == "https://host/a/x");
  CHECK_THROWS_AS(origin_of_url("no url"), Error);
}
