#include "src/verify/verify.h"

#include <random>

#include "src/base/checksum.h"
#include "src/packed/packed_checkpoint.h"
#include "tests/support/misread_pair.h"
#include "tests/support/seal.h"

using namespace mxfp4;

namespace {

/// The manifest's checksum of a packed tensor in a file, made from the experts' slices.
std::string checksum_of(const std::string& file, const Tensor& t, int64_t experts) {
  std::vector<Hash> slices;
  for (int64_t e = 0; e < experts; ++e)
    slices.push_back(hash_bytes(file.data() + t.offset + e * (t.bytes / experts), t.bytes / experts));
  return to_hex(hash_of_pieces(slices));
}

}  // namespace

TEST_CASE("bytes find a flipped bit anywhere in the packed tensors, with checksums to match", "[long]") {
  for (const char* file : {gpt_oss, deepseek}) {
    MisreadPair pair(file);
    pair.pack(on_cpu[0]);
    const std::string path = pair.out("packed/packed-00001.safetensors");
    const char* const forged[] = {manifest_name, "config.json", "packed/tensors-0.jsonl"};
    std::map<std::string, std::string> before;
    for (const char* name : forged) before[name] = read_text(pair.out(name), 1 << 28);
    const std::string right = read_text(path, 1 << 28);
    Problems problems;
    const std::vector<Tensor> tensors = read_header(path, "packed", problems).tensors;
    std::mt19937_64 random(1);
    for (int i = 0; i < 100; ++i) {
      const Tensor& t = tensors[random() % tensors.size()];
      const int64_t at = t.offset + int64_t(random() % uint64_t(t.bytes));
      INFO(file << " " << t.name << " byte " << at - t.offset);
      std::string text = right;
      text[size_t(at)] = char(text[size_t(at)] ^ 1 << random() % 8);
      write_text(path, text);
      write_forged(pair.out(""), checksum_of(right, t, pair.experts), checksum_of(text, t, pair.experts));
      CHECK(is_right(pair.out(""), {}, Level::files));
      CHECK_FALSE(is_right(pair.out(""), pair.out("../right")));
      for (const auto& [name, content] : before) write_text(pair.out(name), content);
    }
  }
}
