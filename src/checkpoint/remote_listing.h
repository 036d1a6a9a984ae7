// The files of a remote source, as its server lists them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "src/checkpoint/published_list.h"
#include "src/remote/client.h"

namespace mxfp4 {

struct RemoteAddress;

struct RemoteListing {
  std::unique_ptr<Client> client;
  std::vector<RemoteFile> files;  // in no order; names are not checked
  PublishedList published;        // empty if no hashes are published
  bool is_whole = true;           // false: the server has no list, and other files may exist
};

/// Asks the server. hf:// resolves the revision to a commit first, and the files' URLs contain the commit.
RemoteListing list_remote(const RemoteAddress& address);

/// A file's URL in a folder that has no list.
std::string url_in_folder(const RemoteAddress& address, const std::string& name);

}  // namespace mxfp4
