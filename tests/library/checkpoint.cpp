// Converts a checkpoint, verifies it, reads one of its files, and packs a matrix and an expert for the output.
// usage: checkpoint CKPT OUT
#include <cstdio>
#include <fstream>
#include <iterator>
#include <mxfp4_pack.hpp>
#include <vector>

// tests/loaders/test_live.py compares the packed bytes.
static bool packs_experts(const char* out) {
  const mxfp4_pack::Set set(out);
  std::vector<unsigned char> piece(1 << 20), packed(1 << 20);
  mxfp4_pack_expert expert = {
      sizeof(expert), "model.layers.0.mlp.experts.w2_weight", 1, {piece.data(), nullptr}, packed.data()};
  set.pack(0, {expert, expert});
  int refused = 0;
  const auto refuses = [&](int number, int rank, int64_t of, void* to, const char* tensor) {
    mxfp4_pack_expert wrong = expert;
    wrong.expert = of, wrong.packed = to, wrong.tensor = tensor;
    try {
      mxfp4_pack::Set(out, number).pack(rank, {wrong});
    } catch (const mxfp4_pack::Error& error) {
      refused += error.status == MXFP4_PACK_USAGE;
    }
  };
  refuses(1, 0, 0, packed.data(), expert.tensor);
  refuses(0, 1, 0, packed.data(), expert.tensor);
  refuses(0, 0, 1000, packed.data(), expert.tensor);
  refuses(0, 0, 0, packed.data() + 1, expert.tensor);
  refuses(0, 0, 0, packed.data(), "model.layers.0.mlp.experts.w2");
  refuses(0, 0, 0, packed.data(), "model.layers.0.mlp.experts.w13_weight");  // the tensor's only piece is given
  return refused == 5;
}

static bool reads(const std::string& path) {
  std::ifstream file(path);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  std::string head(5, 0), rest(text.size() - 5, 0);
  mxfp4_pack::Reader reader;
  const auto part = [&](int64_t offset, std::string& to) {
    return mxfp4_pack_part{sizeof(mxfp4_pack_part), path.c_str(), offset, int64_t(to.size()), &to[0], nullptr};
  };
  reader.finish(reader.begin({part(0, head), part(5, rest)}));
  int refused = 0;
  for (const mxfp4_pack_part& wrong : {part(-1, head), mxfp4_pack_part{}, part(int64_t(text.size()), head)}) try {
      reader.finish(reader.begin({wrong}));
    } catch (const mxfp4_pack::Error& error) {
      refused += error.status >= MXFP4_PACK_USAGE;
    }
  return head + rest == text && refused == 3;
}

int main(int, char** arguments) {
  const char *source = arguments[1], *out = arguments[2];
  try {
    const mxfp4_pack::Conversion conversion(source, out, "marlin", "vllm");
    const std::string plan = mxfp4_pack::plan(conversion);
    std::printf("{\"plan\": %s, \"result\": %s}\n", plan.c_str(), mxfp4_pack::convert(conversion).c_str());
    if (!mxfp4_pack::verify(out, source).ok || !packs_experts(out) || !reads(std::string(out) + "/config.json"))
      return 1;

    std::vector<unsigned char> rows(128 * 64, 7), again(rows.size());
    mxfp4_pack::Matrix w2("marlin.codes");
    w2.view[0] = rows.data();
    w2.rows = 128, w2.bytes = 64;
    std::vector<unsigned char> packed(w2.packed_bytes());
    mxfp4_pack::Device device("cpu");
    device.pack(w2, packed.data());
    w2.view[0] = again.data();
    return device.unpack(packed.data(), w2) && rows == again ? 0 : 1;
  } catch (const mxfp4_pack::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return error.status;
  }
}
