// verify: the plan read backwards.
#pragma once

#include <string>

namespace mxfp4 {

/// files: sizes and checksums against the manifest. bytes: also every packed byte, unpacked, against the source, and
/// every pad byte against the value its layout prescribes.
enum class Level { files, bytes };

struct VerifyOptions {
  std::string out, source;  // source may be empty: the manifest's checksums stand for it
  Level level = Level::bytes;
  int threads = 0;
  bool json = false;
};

/// True where OUT is right. The verdict and what is wrong are printed on stdout.
bool verify(const VerifyOptions& options);

}  // namespace mxfp4
