// A consumer in C++: converts a checkpoint, verifies it, reads one of its files, and packs an expert for the output.
// usage: checkpoint CKPT OUT
#include <mxfp4_pack.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

// tests/loaders/test_live.py compares the packed bytes.
static bool packs_experts(const char* out) {
  std::vector<unsigned char> piece(1 << 20), packed(1 << 20);
  const mxfp4_pack_expert expert = {
      sizeof(expert), "model.layers.0.mlp.experts.w2_weight", 1, {piece.data(), nullptr}, packed.data()};
  mxfp4_pack_set* set = nullptr;
  if (mxfp4_pack_open_set(out, 1, &set) != MXFP4_PACK_USAGE || mxfp4_pack_open_set(out, 0, &set) != MXFP4_PACK_OK)
    return false;
  const std::unique_ptr<mxfp4_pack_set, decltype(&mxfp4_pack_close_set)> owner(set, mxfp4_pack_close_set);
  const auto refuses = [&](int rank, int64_t of, void* to, const char* tensor) {
    mxfp4_pack_expert wrong = expert;
    wrong.expert = of, wrong.packed = to, wrong.tensor = tensor;
    return mxfp4_pack_pack_experts(set, rank, &wrong, 1, -1, nullptr) == MXFP4_PACK_USAGE;
  };
  const mxfp4_pack_expert both[] = {expert, expert};
  return mxfp4_pack_pack_experts(set, 0, both, 2, -1, nullptr) == MXFP4_PACK_OK &&
         refuses(1, 0, packed.data(), expert.tensor) && refuses(0, 1000, packed.data(), expert.tensor) &&
         refuses(0, 0, packed.data() + 1, expert.tensor) &&
         refuses(0, 0, packed.data(), "model.layers.0.mlp.experts.w2") &&
         !refuses(0, 0, packed.data(), "model.layers.0.mlp.experts.w13_weight");  // the tensor's only piece is given
}

static bool reads(const std::string& path) {
  std::ifstream file(path);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  std::string head(5, 0), rest(text.size() - 5, 0);
  mxfp4_pack_reader* reader = nullptr;
  if (mxfp4_pack_open_reader(-1, 0, &reader) != MXFP4_PACK_OK) return false;
  const std::unique_ptr<mxfp4_pack_reader, decltype(&mxfp4_pack_close_reader)> owner(reader, mxfp4_pack_close_reader);
  const auto part = [&](int64_t offset, std::string& to) {
    return mxfp4_pack_part{sizeof(mxfp4_pack_part), path.c_str(), offset, int64_t(to.size()), &to[0], nullptr};
  };
  const auto read = [&](const std::vector<mxfp4_pack_part>& parts) {
    int64_t request = 0;
    const mxfp4_pack_status status = mxfp4_pack_begin_read(reader, parts.data(), parts.size(), &request);
    return status == MXFP4_PACK_OK ? mxfp4_pack_finish_read(reader, request, nullptr) : status;
  };
  if (read({part(0, head), part(5, rest)}) != MXFP4_PACK_OK || head + rest != text) return false;
  for (const mxfp4_pack_part& wrong : {part(-1, head), mxfp4_pack_part{}, part(int64_t(text.size()), head)})
    if (read({wrong}) < MXFP4_PACK_USAGE) return false;
  return true;
}

int main(int, char** arguments) {
  mxfp4_pack_conversion conversion{};
  conversion.size = sizeof(conversion);
  conversion.checkpoint = arguments[1], conversion.out = arguments[2];
  conversion.backend = "marlin", conversion.engine = "vllm";
  char *plan = nullptr, *result = nullptr;
  mxfp4_pack_status status = mxfp4_pack_plan(&conversion, &plan);
  if (status == MXFP4_PACK_OK) status = mxfp4_pack_convert(&conversion, &result);
  if (status == MXFP4_PACK_OK) std::printf("{\"plan\": %s, \"result\": %s}\n", plan, result);
  mxfp4_pack_free(plan);
  mxfp4_pack_free(result);
  if (status == MXFP4_PACK_OK) status = mxfp4_pack_verify(conversion.out, conversion.checkpoint, nullptr, 0, nullptr);
  if (status != MXFP4_PACK_OK) {
    std::fprintf(stderr, "%s\n", mxfp4_pack_error());
    return status;
  }
  return packs_experts(conversion.out) && reads(std::string(conversion.out) + "/config.json") ? 0 : 1;
}
