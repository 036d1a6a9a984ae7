// A checkpoint on a server, as a local folder that has every small file, and of each shard the header alone.
//
// All code that reads headers and small files works on that folder. Tensors are read through ShardReader, which asks
// the server. A shard's local file ends after its header, so a read that misses ShardReader fails.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "src/checkpoint/remote_listing.h"
#include "src/io/scratch_folder.h"
#include "src/remote/address.h"

namespace mxfp4 {

class RemoteReader;
enum class Extent;
struct Shard;

class RemoteSource {
 public:
  /// Lists the source's files and fetches all headers and companions; large companions only if `extent` is all.
  RemoteSource(const std::string& address, Extent extent);
  ~RemoteSource();

  const std::string& folder() const { return folder_; }
  const PublishedList& published() const { return listing_.published; }
  /// The companions that were not fetched. The folder has holes of their sizes.
  const std::set<std::string>& unread() const { return unread_; }
  /// Replaces the state of a shard's local file by that on the server.
  void set_state(Shard& shard) const;
  /// Reads config.json and the index again, unless they are of a commit. Throws Error{input} if they have changed.
  void check_unchanged() const;
  /// Reads the shards' bytes. This object must outlive the result.
  std::unique_ptr<RemoteReader> reader(const std::vector<Shard>& shards);

 private:
  void add_files();
  bool fetch_text(RemoteFile& file, bool is_optional);
  void fetch_header(RemoteFile& file);
  void check_version(const RemoteFile& file) const;
  void make_placeholder(const RemoteFile& file) const;
  void fetch_config_and_index();
  void fetch_others(Extent extent);
  void fetch_companion(RemoteFile& file, Extent extent);
  std::set<std::string> shard_names() const;

  const RemoteAddress address_;
  RemoteListing listing_;
  ScratchFolder scratch_;
  std::string folder_, index_text_;
  std::map<std::string, RemoteFile> files_;  // by name
  std::mutex mutex_;                         // guards unread_
  std::set<std::string> unread_;
};

}  // namespace mxfp4
