// Converts a checkpoint, verifies it, and packs a matrix of its own. usage: checkpoint CKPT OUT
#include <cstdio>
#include <mxfp4_pack.hpp>
#include <vector>

int main(int, char** arguments) {
  const char *source = arguments[1], *out = arguments[2];
  try {
    const mxfp4_pack::Conversion conversion(source, out, "marlin", "vllm");
    const std::string plan = mxfp4_pack::plan(conversion);
    std::printf("{\"plan\": %s, \"result\": %s}\n", plan.c_str(), mxfp4_pack::convert(conversion).c_str());
    if (!mxfp4_pack::verify(out, source).ok) return 1;

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
