#include "src/inspect/diff.h"

#include <catch2/catch.hpp>

#include "src/backends/backend.h"
#include "src/base/json.h"
#include "tests/support/program.h"

using namespace mxfp4;

namespace {

/// The text that a call prints to stdout.
std::string printed(const std::function<void()>& call) {
  std::fflush(stdout);
  char* text = nullptr;
  size_t bytes = 0;
  std::FILE* const screen = stdout;
  stdout = open_memstream(&text, &bytes);
  call();
  std::fclose(stdout);
  stdout = screen;
  const std::string out(text, bytes);
  std::free(text);
  return out;
}

/// The differences between an output and another output, or a dump.
std::vector<std::string> differences(const std::string& a, const std::string& b, int rank = 0) {
  DiffOptions o;
  o.a = a;
  o.b = b;
  o.rank = rank;
  o.json = true;
  bool equal = false;
  const Json j = parse_json(printed([&] { equal = diff(o); }), "stdout");
  CHECK(j["equal"] == equal);
  return j["differences"].get<std::vector<std::string>>();
}

/// The line about a parameter of layer 0.
std::string line_of(const std::vector<std::string>& lines, const std::string& parameter) {
  for (const std::string& line : lines)
    if (line.find("layers.0.") != line.npos && line.find(parameter + ": ") != line.npos) return line;
  return {};
}

void pack(const std::string& to, const std::string& engine, const std::string& backend, const std::string& version = "",
          const std::string& from = tiny_gpt_oss) {
  ConvertOptions o = conversion(from, to, engine, backend);
  if (!version.empty()) o.layout_version = version;
  convert(o);
}

/// Writes a dump with a renamed tensor, and optionally a changed byte.
void dump(const std::string& from, const std::string& name, const std::string& path, const std::string& as,
          const std::function<void(std::string&)>& change = {}) {
  Problems problems;
  const std::string file = from + "/packed/packed-00001.safetensors";
  const std::string text = read_text(file, 1 << 30);
  for (Tensor t : read_header(file, file, problems).tensors) {
    if (t.name != name) continue;
    std::string bytes = text.substr(size_t(t.offset), size_t(t.bytes));
    if (change) change(bytes);
    t.name = as;
    t.offset = 0;
    write_text(path, write_header({t}, {}, 8) + bytes);
  }
}

}  // namespace

TEST_CASE("equal outputs, and a dump of an engine's state under its own names") {
  const TempDir dir;
  pack(dir / "a", "vllm", "marlin");
  pack(dir / "b", "vllm", "marlin");
  CHECK(differences(dir / "a", dir / "b").empty());
  dump(dir / "a", "model.layers.0.mlp.experts.w13_weight", dir / "state.safetensors",
       "model.layers.0.mlp.experts.routed_experts.w13_weight");
  const auto lines = differences(dir / "a", dir / "state.safetensors");
  CHECK(line_of(lines, "w13_weight") == "");
  CHECK(line_of(lines, "w2_weight").find("not in B") != std::string::npos);
}

TEST_CASE("the first wrong expert, row and column are named") {
  const TempDir dir;
  pack(dir / "a", "vllm", "vllm-cpu");
  const std::string name = "model.layers.0.mlp.experts.w2_weight_scale";  // [3, 96/32, 160/32, 32]
  dump(dir / "a", name, dir / "state.safetensors", name, [](std::string& bytes) {
    bytes[2 * 480 + 1 * 160 + 3 * 32 + 7] ^= 1;  // expert 2, rows 32 and up, group 3, row 7 of the block
  });
  const std::string line = line_of(differences(dir / "a", dir / "state.safetensors"), "w2_weight_scale");
  CHECK(line.find("1 of 3 experts differ, 1 of 1440 bytes; first in expert 2, row 39 of the checkpoint's, group 3") !=
        std::string::npos);
}

TEST_CASE("likely causes") {
  const TempDir dir;
  SECTION("another row order") {
    pack(dir / "a", "vllm", "marlin");
    pack(dir / "b", "sglang", "marlin");
    const auto lines = differences(dir / "a", dir / "b");
    CHECK(
        line_of(lines, "w13_weight").find("other row order of w13: halves, gate first in B, pairs, gate first in A") !=
        std::string::npos);
    CHECK(line_of(lines, "w2_weight") == "");
    CHECK(line_of(lines, "w2_weight_scale").find("pad bytes only: 0x7f") != std::string::npos);
  }
  SECTION("another layout version") {
    pack(dir / "a", "vllm", "flashinfer-cutlass", "v2");
    pack(dir / "b", "vllm", "flashinfer-cutlass", "v1");
    CHECK(line_of(differences(dir / "a", dir / "b"), "w2_weight")
              .find("these are the bytes of flashinfer-cutlass of vllm, layout version v1") != std::string::npos);
  }
  SECTION("another backend with the same shapes") {
    pack(dir / "a", "vllm", "deepgemm", "1");
    pack(dir / "b", "vllm", "deepgemm-mega");
    const auto lines = differences(dir / "a", dir / "b");
    CHECK(line_of(lines, "w13_weight").find("blocks of 8, gate first") != std::string::npos);
    CHECK(line_of(lines, "w2_weight_scale").find("deepgemm-mega") != std::string::npos);
    CHECK(line_of(lines, "w2_weight") == "");
  }
  SECTION("scales cast by value") {
    pack(dir / "a", "vllm", "marlin");
    const std::string name = "model.layers.0.mlp.experts.w2_weight_scale";
    dump(dir / "a", name, dir / "zero.safetensors", name, [](std::string& b) { b.assign(b.size(), '\0'); });
    CHECK(line_of(differences(dir / "a", dir / "zero.safetensors"), "w2_weight_scale").find("all are 0") !=
          std::string::npos);
    dump(dir / "a", name, dir / "six.safetensors", name, [](std::string& b) {
      for (char& c : b) c = char(c + 6);
    });
    CHECK(line_of(differences(dir / "a", dir / "six.safetensors"), "w2_weight_scale").find("scale byte is +6") !=
          std::string::npos);
  }
}

TEST_CASE("a transposed view saved by its logical shape is compared by its memory") {
  const TempDir dir;
  pack(dir / "a", "vllm", "deepgemm", "1");
  const std::string name = "model.layers.0.mlp.experts.w2_weight_scale", path = dir / "state.safetensors";
  Problems problems;
  const std::string file = dir / "a/packed/packed-00001.safetensors", text = read_text(file, 1 << 30);
  for (Tensor t : read_header(file, file, problems).tensors) {
    if (t.name != name) continue;
    REQUIRE(t.shape == std::vector<int64_t>{3, 2, 128});
    std::string bytes;
    for (int64_t e = 0; e < 3; ++e)
      for (int64_t n = 0; n < 128; ++n)
        for (int64_t k = 0; k < 2; ++k) bytes += text.substr(size_t(t.offset + ((e * 2 + k) * 128 + n) * 4), 4);
    t.shape = {3, 128, 2}, t.offset = 0;
    write_text(path, write_header({t}, {}, 8) + bytes);
  }
  CHECK(line_of(differences(dir / "a", path), "w2_weight_scale") == "");
}
