#include "src/checkpoint/remote_listing.h"

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <set>

#include "src/base/error.h"
#include "src/base/file.h"
#include "src/base/log.h"
#include "src/base/process.h"
#include "src/checkpoint/field.h"
#include "src/io/sha256.h"
#include "src/remote/address.h"

namespace mxfp4 {

namespace {

constexpr int64_t max_page_bytes = int64_t(64) << 20, max_token_bytes = 4096;
constexpr size_t max_files = 100'000, max_pages = 10'000;

std::string or_else(const std::string& text, const std::string& other) { return text.empty() ? other : text; }

/// "2025-08-26T17:25:47.000Z" in nanoseconds; 0 if it is no time.
int64_t time_in(const std::string& text) {
  struct tm t = {};
  return ::strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &t) ? int64_t(::timegm(&t)) * 1'000'000'000 : 0;
}

Client::Text needed_text(Client& client, const std::string& name, const std::string& url, std::string_view end = {}) {
  auto found = client.text(name, url, max_page_bytes, end);
  if (!found.absent.empty())
    fail(ErrorKind::input, "{}: {}: {}{}", client.shown(), name, found.absent,
         found.headers.status == 403 ? "" : "; does it exist?");
  return found;
}

/// The hashes of SHA256SUMS, if the source has that file.
PublishedList published_sums(Client& client, const std::string& url) {
  const auto found = client.text(sums_name, url, max_page_bytes);
  if (!found.absent.empty()) return {};
  PublishedList list = parse_published_list(found.text, fmt::format("{}: {}", client.shown(), sums_name));
  for (PublishedFile& f : list) f.by = client.shown() + (client.shown().ends_with('/') ? "" : "/") + sums_name;
  return list;
}

/// As the hub's own tools read it.
bool is_true(std::string text) {
  for (char& c : text) c = char(std::toupper(static_cast<unsigned char>(c)));
  return text == "1" || text == "ON" || text == "YES" || text == "TRUE";
}

std::string hub_token() {
  if (const std::string token = environment_text("HF_TOKEN"); !token.empty()) return token;
  const std::string home = or_else(environment_text("HF_HOME"), environment_text("HOME") + "/.cache/huggingface");
  const std::string path = or_else(environment_text("HF_TOKEN_PATH"), home + "/token");
  std::error_code ec;
  if (!std::filesystem::is_regular_file(path, ec)) return {};
  std::string token = read_text(path, max_token_bytes);
  token.erase(token.find_last_not_of(" \t\r\n") + 1);
  return token;
}

/// The URL of the next page, in a header: <https://..>; rel="next".
std::string next_page(const std::string& link, const std::string& url) {
  const size_t rel = link.find("rel=\"next\""), open = link.rfind('<', rel), close = link.find('>', open);
  if (rel == link.npos || open == link.npos || close == link.npos || close > rel) return {};
  return resolved_url(url, link.substr(open + 1, close - open - 1));
}

/// The hub's interface for a repository.
struct Hub {
  const RemoteAddress& address;
  std::string url, api;
  Client& client;
};

struct Revision {
  std::string commit;
  int64_t modified_ns;
};

Revision revision_of(const Hub& hub) {
  const RemoteAddress& a = hub.address;
  const auto about =
      needed_text(hub.client, "revision " + a.revision, hub.api + "/revision/" + percent_encoded(a.revision, false));
  const Document document{a.shown + ": its revision"};
  const Json json = parse_json(about.text, document.name);
  const std::string commit = Field(json, document).at("sha").text();
  if (!is_published_hash(commit)) fail(ErrorKind::input, "{}: '{}' is no commit", document.name, commit);
  if (is_published_hash(a.revision) && commit.size() == a.revision.size() && commit != a.revision)
    fail(ErrorKind::input, "{}: the hub answers with commit {}, {} expected", a.shown, commit, a.revision);
  return {commit, time_in(json_string(json, "lastModified"))};
}

/// The files of a commit, by name.
PublishedList files_of(const Hub& hub, const std::string& commit) {
  const RemoteAddress& a = hub.address;
  PublishedList files;
  std::set<std::string> pages;
  for (std::string url = hub.api + "/tree/" + commit + "?recursive=true&expand=false"; !url.empty();) {
    const auto page = needed_text(hub.client, "list of files", url);
    for (PublishedFile& f : parse_published_list(page.text, a.shown + ": its list of files")) {
      f.by = fmt::format("hf://{}@{}", a.place, commit);
      files.push_back(std::move(f));
    }
    if (files.size() > max_files) fail(ErrorKind::input, "{}: more than {} files", a.shown, max_files);
    if (!pages.insert(url).second || pages.size() > max_pages)
      fail(ErrorKind::input, "{}: its list of files has no end", a.shown);
    url = next_page(page.headers.link, url);
    if (!url.empty() && !hub.client.is_of_source(url))
      fail(ErrorKind::input, "{}: its list of files goes on at another server", a.shown);
  }
  std::sort(files.begin(), files.end(), [](const auto& x, const auto& y) { return x.name < y.name; });
  return files;
}

RemoteListing list_hub(const RemoteAddress& a) {
  if (is_true(environment_text("HF_HUB_OFFLINE")))
    fail(ErrorKind::usage, "{}: HF_HUB_OFFLINE is set, so the hub is not asked; {}", a.shown,
         a.shown.find('@') == a.shown.npos ? "the cache does not have the repository"
                                           : "give the folder of that snapshot in the cache");
  const std::string endpoint = environment_text("HF_ENDPOINT");
  std::string url = or_else(endpoint, "https://huggingface.co");
  while (url.ends_with('/')) url.pop_back();
  if (!url.starts_with("https://") && !url.starts_with("http://"))
    fail(ErrorKind::usage, "HF_ENDPOINT: {}: an address of https:// was expected", url);
  const std::string token = hub_token();
  if (!is_printable(token)) fail(ErrorKind::usage, "HF_TOKEN: holds characters that no token has");
  RemoteListing listing;
  listing.client = std::make_unique<Client>(a.shown + (endpoint.empty() ? "" : " at HF_ENDPOINT"), url,
                                            Credentials{.bearer = token});
  const Hub hub{a, url, fmt::format("{}/api/models/{}", url, a.place), *listing.client};
  const Revision revision = revision_of(hub);
  listing.published = files_of(hub, revision.commit);
  for (const PublishedFile& f : listing.published)
    listing.files.push_back(
        {.name = f.name,
         .url = fmt::format("{}/{}/resolve/{}/{}", url, a.place, revision.commit, percent_encoded(f.name, true)),
         .bytes = f.bytes,
         .version = f.hash,
         .modified_ns = revision.modified_ns,
         .is_fixed = true});
  note(fmt::format("{}: commit {}, {} files", a.shown, revision.commit, listing.files.size()));
  return listing;
}

RemoteListing list_web(const RemoteAddress& a) {
  RemoteListing listing;
  listing.client = std::make_unique<Client>(a.place, a.place, Credentials());
  listing.published = published_sums(*listing.client, url_in_folder(a, sums_name));
  listing.is_whole = !listing.published.empty();
  for (const PublishedFile& f : listing.published)
    listing.files.push_back({.name = f.name, .url = url_in_folder(a, f.name)});
  return listing;
}

/// XML's text without entities. A number that is no ASCII stays, and then no object has the name.
std::string plain_text(std::string_view xml) {
  constexpr std::pair<std::string_view, char> entities[] = {
      {"&quot;", '"'}, {"&#34;", '"'}, {"&apos;", '\''}, {"&#39;", '\''}, {"&lt;", '<'}, {"&gt;", '>'}, {"&amp;", '&'}};
  std::string text;
  while (!xml.empty()) {
    const auto* found =
        std::find_if(std::begin(entities), std::end(entities), [&](const auto& e) { return xml.starts_with(e.first); });
    const bool is_entity = found != std::end(entities);
    text += is_entity ? found->second : xml.front();
    xml.remove_prefix(is_entity ? found->first.size() : 1);
  }
  return text;
}

/// The text of an element; empty if there is none.
std::string element(std::string_view xml, const std::string& name) {
  const std::string open = "<" + name + ">";
  const size_t begin = xml.find(open), end = xml.find("</" + name + ">", begin);
  if (begin == xml.npos || end == xml.npos) return {};
  return plain_text(xml.substr(begin + open.size(), end - begin - open.size()));
}

/// The URL before the names of a bucket's objects, with a slash at its end.
std::string bucket_url(const RemoteAddress& a, const std::string& region) {
  std::string endpoint = or_else(environment_text("AWS_ENDPOINT_URL_S3"), environment_text("AWS_ENDPOINT_URL"));
  while (endpoint.ends_with('/')) endpoint.pop_back();
  if (!endpoint.empty()) return fmt::format("{}/{}/", endpoint, a.place);
  if (a.place.find('.') != a.place.npos) return fmt::format("https://s3.{}.amazonaws.com/{}/", region, a.place);
  return fmt::format("https://{}.s3.{}.amazonaws.com/", a.place, region);
}

/// Adds a page's objects. Returns the number of its keys, which include those that are no file.
size_t add_objects(std::string_view xml, const RemoteAddress& a, const std::string& bucket, RemoteListing& listing) {
  constexpr std::string_view open = "<Contents>", close = "</Contents>";
  const bool is_encoded = element(xml, "EncodingType") == "url";  // was asked for, but some stores do not know it
  size_t keys = 0;
  for (size_t at = 0; (at = xml.find(open, at)) != xml.npos; ++keys) {
    const size_t end = xml.find(close, at);
    if (end == xml.npos) fail(ErrorKind::input, "{}: its list of objects is cut off", a.shown);
    const std::string_view entry = xml.substr(at, end - at);
    at = end;
    const std::string given = element(entry, "Key"), size = element(entry, "Size");
    const std::string key = is_encoded ? percent_decoded(given) : given;
    if (!key.starts_with(a.prefix) || key.size() == a.prefix.size() || key.ends_with('/')) continue;
    if (size.empty() || size.size() > 15 || size.find_first_not_of("0123456789") != size.npos)
      fail(ErrorKind::input, "{}: {}: its list has no size", a.shown, key);
    std::string etag = element(entry, "ETag");
    if (!etag.empty() && etag.front() != '"') etag = "\"" + etag + "\"";  // as in answers
    listing.files.push_back({.name = key.substr(a.prefix.size()),
                             .url = bucket + percent_encoded(key, true),
                             .bytes = std::stoll(size),
                             .version = etag,
                             .modified_ns = time_in(element(entry, "LastModified"))});
  }
  if (const std::string count = element(xml, "KeyCount"); !count.empty() && count != std::to_string(keys))
    fail(ErrorKind::input, "{}: its list of objects has {} keys, {} expected", a.shown, keys, count);
  return keys;
}

RemoteListing list_store(const RemoteAddress& a) {
  for (const char* name : {"AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY",
                           "AWS_SESSION_TOKEN"})  // they become parts of headers
    if (!is_printable(environment_text(name))) fail(ErrorKind::usage, "{}: holds characters that no key has", name);
  const std::string region =
      or_else(or_else(environment_text("AWS_REGION"), environment_text("AWS_DEFAULT_REGION")), "us-east-1");
  Credentials credentials{.bearer = {},
                          .key = environment_text("AWS_ACCESS_KEY_ID"),
                          .secret = environment_text("AWS_SECRET_ACCESS_KEY"),
                          .session = environment_text("AWS_SESSION_TOKEN"),
                          .sigv4 = fmt::format("aws:amz:{}:s3", region)};
  if (credentials.key.empty()) credentials = {};  // a public bucket
  const std::string bucket = bucket_url(a, region);
  RemoteListing listing;
  listing.client = std::make_unique<Client>(a.shown, bucket, credentials);
  const std::string prefix = percent_encoded(a.prefix, false);
  std::set<std::string> tokens, names;
  size_t checked = 0;
  for (std::string token, more = "true"; more == "true";) {  // a signature covers the parameters in this order
    const std::string query = fmt::format("{}encoding-type=url&list-type=2&prefix={}", token, prefix);
    const auto page = needed_text(*listing.client, "list of objects", bucket + "?" + query, "</ListBucketResult>");
    const size_t keys = add_objects(page.text, a, bucket, listing);
    if (listing.files.size() > max_files) fail(ErrorKind::input, "{}: more than {} objects", a.shown, max_files);
    more = element(page.text, "IsTruncated");
    token = "continuation-token=" + percent_encoded(element(page.text, "NextContinuationToken"), false) + "&";
    bool is_new = keys > 0 && tokens.insert(token).second;
    for (; checked < listing.files.size(); ++checked) is_new &= names.insert(listing.files[checked].name).second;
    if (more == "true" && !is_new) fail(ErrorKind::input, "{}: its list of objects has no end", a.shown);
  }
  if (listing.files.empty()) fail(ErrorKind::input, "{}: no object; a checkpoint was expected", a.shown);
  if (names.contains(sums_name))
    listing.published = published_sums(*listing.client, bucket + percent_encoded(a.prefix + sums_name, true));
  return listing;
}

}  // namespace

std::string url_in_folder(const RemoteAddress& a, const std::string& name) {
  return a.place + percent_encoded(name, true);
}

RemoteListing list_remote(const RemoteAddress& address) {
  if (address.kind == RemoteKind::hub) return list_hub(address);
  return address.kind == RemoteKind::web ? list_web(address) : list_store(address);
}

}  // namespace mxfp4
