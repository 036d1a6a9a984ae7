#include "src/synth/synth.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>

#include "src/base/file.h"
#include "src/synth/expression.h"
#include "src/synth/fill.h"
#include "tests/support/testdata.h"

using namespace mxfp4;
namespace fs = std::filesystem;

namespace {

/// A directory of its own, removed at the end of the test.
struct ScratchDir {
  fs::path path;
  ScratchDir() {
    std::string name = (fs::temp_directory_path() / "mxfp4-synth-XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()));
    path = name;
  }
  ~ScratchDir() { fs::remove_all(path); }
  std::string operator/(const std::string& name) const { return (path / name).string(); }
};

SynthOptions options_for(std::string_view model, const std::string& dest, const SynthSizes& sizes, uint64_t seed = 1,
                         int threads = 2) {
  return {std::string(model), dest, sizes, seed, threads, {}};
}

SynthSizes tiny_sizes() {
  SynthSizes sizes;
  sizes.tiny = true;
  return sizes;
}

/// File name -> contents.
std::map<std::string, std::string> contents(const std::string& dir) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::directory_iterator(dir))
    files[entry.path().filename().string()] = read_text(entry.path().string(), 1 << 28);
  return files;
}

/// A checkpoint read back: tensors with their bytes.
struct ReadBack {
  Json config, index;
  std::map<std::string, std::pair<Tensor, std::string>> tensors;
  int64_t bytes = 0;

  explicit ReadBack(const std::string& dir) {
    config = parse_json(read_text(dir + "/config.json", 1 << 20), "config.json");
    index = parse_json(read_text(dir + "/model.safetensors.index.json", 1 << 28), "index");
    std::set<std::string> shards;
    for (const auto& [name, file] : index["weight_map"].items()) shards.insert(file.get<std::string>());
    Problems problems;
    for (const std::string& shard : shards) {
      const Fd fd = open_read(dir + "/" + shard);
      for (const Tensor& t : read_header(dir + "/" + shard, shard, problems).tensors) {
        CHECK(index["weight_map"].value(t.name, "") == shard);
        CHECK(t.offset * 8 % bits_of(t.dtype) == 0);  // aligned to its elements
        std::string data(size_t(t.bytes), '\0');
        fd.read(data.data(), t.bytes, t.offset);
        bytes += t.bytes;
        tensors[t.name] = {t, std::move(data)};
      }
    }
    problems.throw_if_any();
    CHECK(index["weight_map"].size() == tensors.size());
    CHECK(index["metadata"]["total_size"] == bytes);
  }
};

double float_at(const Tensor& t, const std::string& data, int64_t i) {
  uint32_t bits = 0;
  float value;
  if (t.dtype == Dtype::F8_E4M3) {
    const uint8_t byte = uint8_t(data[size_t(i)]);
    if ((byte & 0x7F) == 0x7F) return NAN;
    const int exponent = byte >> 3 & 15, mantissa = byte & 7;
    const double magnitude = exponent ? std::ldexp(8 + mantissa, exponent - 10) : std::ldexp(mantissa, -9);
    return byte & 0x80 ? -magnitude : magnitude;
  }
  if (t.dtype == Dtype::BF16)
    std::memcpy(reinterpret_cast<char*>(&bits) + 2, data.data() + 2 * i, 2);
  else
    std::memcpy(&bits, data.data() + 4 * i, 4);
  std::memcpy(&value, &bits, 4);
  return value;
}

double code_value(int code) {
  const double values[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  return code & 8 ? -values[code & 7] : values[code & 7];
}

}  // namespace

TEST_CASE("expressions") {
  Scope scope;
  scope.numbers = {{"L", 43}, {"H", 4096}, {"B", 128}, {"l", 2}};
  scope.lists = {{"ratios", {0, 0, 4}}};
  const std::pair<const char*, int64_t> good[] = {
      {"7", 7},
      {"L+3+l", 48},
      {"2*H - 3 * (L-1)", 8066},
      {"H/32", 128},
      {"-l + 5", 3},
      {"ceildiv(H+1, B)", 33},
      {"min(6,L) + max(L-44,0)", 6},
      {"ratios[l] == 4", 1},
      {"10 - 4 - 3", 3},
      {"l < 3 and L >= 43", 1},
      {"l<3 and L!=43", 0},
      {"ratios[l-1]", 0},
      {"64 / 8 / 2", 4},
      {"l <= 1", 0},
      {"L > 42", 1},
      {"  H ", 4096},
  };
  for (const auto& [text, value] : good) {
    INFO(text);
    CHECK(evaluate(text, scope) == value);
  }
  const std::pair<const char*, const char*> bad[] = {
      {"L/2", "'L/2': 43 / 2 is no whole number"},
      {"L/0", "'L/0': 43 / 0 is no whole number"},
      {"X+1", "'X+1': unknown name 'X'"},
      {"ratios[3]", "'ratios[3]': ratios[3], but it has 3 entries"},
      {"other[0]", "'other[0]': unknown list 'other'"},
      {"log(1,2)", "'log(1,2)': unknown function 'log'"},
      {"ceildiv(1,0)", "'ceildiv(1,0)': ceildiv(1, 0) has no value"},
      {"(1+2", "'(1+2': ')' expected before ''"},
      {"1+", "'1+': a value expected before ''"},
      {"1 2", "'1 2': unexpected '2'"},
      {"H*H*H*H*H*H", "'H*H*H*H*H*H': the value overflows"},
      {"99999999999999999999", "'99999999999999999999': a number is too large"},
  };
  for (const auto& [text, message] : bad) {
    INFO(text);
    CHECK_THROWS_WITH(evaluate(text, scope), message);
  }
}

namespace {

struct Totals {
  int64_t tensors = 0, bytes = 0;
  friend bool operator==(const Totals&, const Totals&) = default;
};

/// Of the tensors whose name contains `part`, by dtype.
std::map<std::string, Totals> totals_of(const SynthCheckpoint& checkpoint, std::string_view part) {
  std::map<std::string, Totals> totals;
  for (const SynthTensor& t : checkpoint.tensors)
    if (t.name.find(part) != std::string::npos)
      for (const char* key : {"all", name_of(t.dtype)}) totals[key].tensors++, totals[key].bytes += t.bytes;
  return totals;
}

}  // namespace

TEST_CASE("true sizes equal the published totals") {
  // As the published indices and headers give them; -1 where they do not. Where only the experts of a model are
  // described as published, only those are compared.
  struct Published {
    const char *model, *part, *dtype;
    int64_t tensors, bytes;
  };
  const Published published[] = {
      {"gpt-oss-20b", "", "all", 459, 13'761'264'768},
      {"gpt-oss-20b", "", "U8", 96, 10'152'345'600},
      {"gpt-oss-20b", "", "BF16", 363, 3'608'919'168},
      {"gpt-oss-120b", "", "all", 687, 65'248'815'744},
      {"gpt-oss-120b", "", "U8", 144, 60'914'073'600},
      {"gpt-oss-120b", "", "BF16", 543, 4'334'742'144},
      {"deepseek-v4-flash", "", "all", 69'187, 159'609'485'896},
      {"deepseek-v4-flash", "", "BF16", 433, -1},
      {"deepseek-v4-flash", "", "F32", 417, -1},
      {"deepseek-v4-flash", "", "F8_E4M3", 375, -1},
      {"deepseek-v4-flash", "", "F8_E8M0", 34'167, -1},
      {"deepseek-v4-flash", "", "I64", 3, -1},
      {"deepseek-v4-flash", "", "I8", 33'792, -1},
      {"deepseek-v4-flash", "mtp.", "all", 1'575, 3'593'787'756},
      {"deepseek-v4-pro", "", "all", 145'116, 864'704'792'696},
      {"deepseek-v4-pro", "", "BF16", 619, -1},
      {"deepseek-v4-pro", "", "F32", 590, -1},
      {"deepseek-v4-pro", "", "F8_E4M3", 528, -1},
      {"deepseek-v4-pro", "", "F8_E8M0", 71'952, -1},
      {"deepseek-v4-pro", "", "I64", 3, -1},
      {"deepseek-v4-pro", "", "I8", 71'424, -1},
      {"deepseek-v4.1-flash", ".experts.", "all", 94'464, 295'997'276'160},
      {"kimi-k2.5-quark", ".experts.", "all", 138'240, 539'051'950'080},
      {"kimi-k3", "block_sparse_moe", "all", 497'220 - 1'892, 1'560'860'324'864 - 79'457'377'280},
      {"kimi-k3", "block_sparse_moe", "U8", 494'592, 1'446'456'066'048},
      {"mimo-v2.6-flash", ".experts.", "U8", 73'081 - 889, 160'859'947'008},
      {"qwen3-30b-a3b-ct", ".experts.", "U8", 36'864, 15'401'484'288},
  };
  std::string model;
  SynthCheckpoint checkpoint;
  for (const Published& p : published) {
    if (model != p.model) checkpoint = describe_checkpoint(model = p.model, {});
    INFO(p.model << " " << p.part << " " << p.dtype);
    const Totals totals = totals_of(checkpoint, p.part)[p.dtype];
    CHECK(totals.tensors == p.tensors);
    CHECK((p.bytes < 0 || totals.bytes == p.bytes));
  }
}

TEST_CASE("true sizes have the published shards") {
  const auto shards = [](std::string_view model) { return describe_checkpoint(model, {}).shards; };
  CHECK(shards("gpt-oss-20b") == std::vector<std::string>{"model-00000-of-00002.safetensors",
                                                          "model-00001-of-00002.safetensors",
                                                          "model-00002-of-00002.safetensors"});
  CHECK(shards("gpt-oss-120b").size() == 15);
  CHECK(shards("gpt-oss-120b").back() == "model-00014-of-00014.safetensors");
  CHECK(shards("deepseek-v4-pro").size() == 64);
  CHECK(shards("kimi-k3").front().ends_with("-of-0000" + std::to_string(shards("kimi-k3").size()) + ".safetensors"));

  const SynthCheckpoint flash = describe_checkpoint("deepseek-v4-flash", {});
  REQUIRE(flash.shards.size() == 46);
  CHECK(flash.shards.front() == "model-00001-of-00046.safetensors");
  std::map<int, int> tensors;  // of each shard
  for (const SynthTensor& t : flash.tensors) tensors[t.file]++;
  CHECK(tensors[0] == 1);
  CHECK(tensors[1] == 1565);  // ratio 0
  CHECK(tensors[3] == 1576);  // ratio 4
  CHECK(tensors[4] == 1569);  // ratio 128
  CHECK(tensors[45] == 1575);
}

TEST_CASE("the config follows the sizes") {
  SynthSizes sizes;
  sizes.layers = 5, sizes.experts = 4, sizes.hidden = 1024, sizes.intermediate = 96, sizes.vocab = 100;
  const Json gpt_oss = describe_checkpoint("gpt-oss-20b", sizes).config;
  CHECK(gpt_oss["num_hidden_layers"] == 5);
  CHECK(gpt_oss["num_local_experts"] == 4);
  CHECK(gpt_oss["hidden_size"] == 1024);
  CHECK(gpt_oss["intermediate_size"] == 96);
  CHECK(gpt_oss["vocab_size"] == 100);
  CHECK(gpt_oss["eos_token_id"] == 99);
  CHECK(gpt_oss["layer_types"] ==
        Json({"sliding_attention", "full_attention", "sliding_attention", "full_attention", "sliding_attention"}));
  const Json deepseek = describe_checkpoint("deepseek-v4-flash", sizes).config;
  CHECK(deepseek["compress_ratios"] == Json({0, 0, 4, 128, 4, 0}));
  CHECK(deepseek["num_experts_per_tok"] == 4);
  CHECK(deepseek["num_hash_layers"] == 3);
  CHECK(deepseek["quantization_config"]["weight_block_size"] == Json({128, 128}));
  CHECK(deepseek["expert_dtype"] == "fp4");
  CHECK_FALSE(describe_checkpoint("deepseek-v4-pro", sizes).config.contains("expert_dtype"));
  sizes.layers = 1;
  CHECK(describe_checkpoint("deepseek-v4-flash", sizes).config["compress_ratios"] == Json({0, 0}));
  CHECK(describe_checkpoint("kimi-k3", sizes).config["text_config"]["first_k_dense_replace"] == 0);
  const Json mimo = describe_checkpoint("mimo-v2.6-flash", sizes).config;
  CHECK(mimo["quantization_config"]["ignored_layers"] == Json::array({"model.layers.0.self_attn.o_proj"}));
  const Json flash = describe_checkpoint("deepseek-v4-flash", {}).config;
  CHECK(flash["compress_ratios"].size() == 44);
  CHECK(flash["compress_ratios"][42] == 4);
}

TEST_CASE("sizes that do not fit are refused") {
  CHECK_THROWS_WITH(describe_checkpoint("gpt-oss-7b", {}),
                    Catch::StartsWith("unknown model 'gpt-oss-7b', expected one of "
                                      "deepseek-v4-flash, deepseek-v4-pro, "));
  SynthSizes sizes;
  sizes.hidden = 100;
  CHECK_THROWS_WITH(describe_checkpoint("gpt-oss-20b", sizes),
                    "--hidden 100: a multiple of 32 from 32 to 16777216 expected");
  sizes.hidden = 32;  // Kimi-K3's experts see half of it
  CHECK_THROWS_WITH(describe_checkpoint("kimi-k3", sizes), "'R/32': 16 / 32 is no whole number");
  sizes = {};
  sizes.layers = 0;
  CHECK_THROWS_WITH(describe_checkpoint("gpt-oss-20b", sizes),
                    "--layers 0: a multiple of 1 from 1 to 16777216 expected");
}

TEST_CASE("a tiny checkpoint of every model is complete, finite and reproducible") {
  for (const SynthModel& model : synth_models()) {
    INFO(model.name);
    const ScratchDir dir;
    synth(options_for(model.name, dir / "a", tiny_sizes()));
    synth(options_for(model.name, dir / "b", tiny_sizes(), 1, 1));
    synth(options_for(model.name, dir / "c", tiny_sizes(), 2));
    CHECK((contents(dir / "a") == contents(dir / "b")));

    const ReadBack made(dir / "a"), other(dir / "c");
    CHECK(made.bytes < 1'000'000);
    const SynthCheckpoint checkpoint = describe_checkpoint(model.name, tiny_sizes());
    CHECK(made.config == checkpoint.config);
    REQUIRE(made.tensors.size() == checkpoint.tensors.size());
    for (const SynthTensor& t : checkpoint.tensors) {
      INFO(t.name);
      const auto& [tensor, data] = made.tensors.at(t.name);
      CHECK(tensor.dtype == t.dtype);
      CHECK(tensor.shape == t.shape);
      if (t.bytes >= 64) CHECK((data != other.tensors.at(t.name).second));
      const bool is_float = t.fill == Fill::weight || t.fill == Fill::norm || t.fill == Fill::bias;
      for (int64_t i = 0; is_float && i < t.bytes * 8 / bits_of(t.dtype); ++i) {
        const double value = float_at(tensor, data, i);
        if (!std::isfinite(value) || (t.fill == Fill::norm && (value < 0.875 || value > 1.25))) FAIL(value);
      }
    }
  }
}

TEST_CASE("tiny checkpoints hold every code, and the scale byte 0 exactly where a group is zero") {
  for (const SynthModel& model : synth_models()) {
    INFO(model.name);
    const SynthCheckpoint checkpoint = describe_checkpoint(model.name, tiny_sizes());
    int64_t codes[16] = {}, zero_groups = 0, groups = 0;
    for (size_t i = 0; i < checkpoint.tensors.size(); ++i) {
      const SynthTensor& scale = checkpoint.tensors[i];
      if (scale.fill != Fill::scales) continue;
      const SynthTensor& code = checkpoint.tensors[size_t(scale.weight)];
      REQUIRE(code.fill == Fill::codes);
      REQUIRE(code.bytes == 16 * scale.bytes);
      std::vector<uint8_t> bytes(size_t(code.bytes)), scales(size_t(scale.bytes));
      fill(checkpoint, scale.weight, 1, 0, bytes.data(), code.bytes);
      fill(checkpoint, int64_t(i), 1, 0, scales.data(), scale.bytes);
      for (uint8_t b : bytes) codes[b & 15]++, codes[b >> 4]++;
      for (size_t g = 0; g < scales.size(); ++g) {
        const bool zero = std::all_of(&bytes[16 * g], &bytes[16 * g] + 16, [](uint8_t b) { return b == 0; });
        if (scales[g] == 255 || zero != (scales[g] == 0)) FAIL(scale.name << " group " << g);
        zero_groups += zero;
      }
      groups += scale.bytes;
    }
    CHECK(*std::min_element(codes, codes + 16) > groups);  // 2 per group expected
    CHECK(zero_groups > 0);
    CHECK(zero_groups < groups / 256);
  }
}

TEST_CASE("rows of MXFP4 and FP8 weights have RMS 1/sqrt(columns)") {
  SynthSizes sizes;
  sizes.layers = 1, sizes.experts = 2, sizes.hidden = 2880, sizes.intermediate = 2880, sizes.vocab = 64;
  const SynthCheckpoint checkpoint = describe_checkpoint("deepseek-v4-flash", sizes);
  for (size_t i = 0; i < checkpoint.tensors.size(); ++i) {
    const SynthTensor& scale = checkpoint.tensors[i];
    const SynthTensor& weight = checkpoint.tensors[size_t(scale.weight)];
    if (scale.fill != Fill::scales && scale.fill != Fill::block_scales) continue;
    INFO(weight.name);
    const bool mxfp4 = scale.fill == Fill::scales;
    const int64_t rows = std::min<int64_t>(weight.shape[0], 300), columns = weight.shape[1] * (mxfp4 ? 2 : 1);
    const int64_t group_rows = mxfp4 ? 1 : 128, group_columns = mxfp4 ? 32 : 128;
    std::string data(size_t(rows * weight.shape[1]), '\0'), scales(size_t(scale.bytes), '\0');
    for (int64_t at = 0; at < int64_t(data.size()); at += fill_block)
      fill(checkpoint, scale.weight, 1, at / fill_block, reinterpret_cast<uint8_t*>(&data[size_t(at)]),
           std::min(fill_block, int64_t(data.size()) - at));
    fill(checkpoint, int64_t(i), 1, 0, reinterpret_cast<uint8_t*>(scales.data()), scale.bytes);
    double sum = 0;
    std::set<int> seen;
    for (int64_t r = 0; r < rows; ++r) {
      double row_sum = 0;
      for (int64_t k = 0; k < columns; ++k) {
        const uint8_t s = uint8_t(scales[size_t(r / group_rows * scale.shape[1] + k / group_columns)]);
        const double value = mxfp4 ? code_value(uint8_t(data[size_t((r * columns + k) / 2)]) >> (k % 2 * 4) & 15)
                                   : float_at(weight, data, r * columns + k);
        row_sum += std::pow(value * std::ldexp(1.0, s - 127), 2);
        seen.insert(s);
      }
      if (row_sum < 0.1 || row_sum > 20) FAIL("row " << r << ": " << row_sum);
      sum += row_sum;
    }
    const double rms = std::sqrt(sum / double(rows));
    CHECK(rms > (mxfp4 ? 0.9 : 0.6));
    CHECK(rms < (mxfp4 ? 1.1 : 1.6));
    if (mxfp4) CHECK(*seen.rbegin() - *std::next(seen.begin()) >= 8);  // the first is 0
  }
}

TEST_CASE("hash layers name different experts for each token") {
  const SynthCheckpoint checkpoint = describe_checkpoint("deepseek-v4-flash", tiny_sizes());
  for (size_t i = 0; i < checkpoint.tensors.size(); ++i) {
    const SynthTensor& t = checkpoint.tensors[i];
    if (t.fill != Fill::expert_ids) continue;
    std::vector<int64_t> ids(size_t(t.bytes / 8));
    fill(checkpoint, int64_t(i), 1, 0, reinterpret_cast<uint8_t*>(ids.data()), t.bytes);
    std::set<int64_t> used(ids.begin(), ids.end());
    CHECK(used == std::set<int64_t>{0, 1, 2, 3});
    for (size_t row = 0; row < ids.size(); row += 2) CHECK(ids[row] != ids[row + 1]);
  }
}

TEST_CASE("large tensors are the same whichever block is made first") {
  SynthSizes sizes;
  sizes.layers = 2, sizes.experts = 5, sizes.hidden = 1024, sizes.intermediate = 512, sizes.vocab = 1000;
  const ScratchDir dir;
  synth(options_for("gpt-oss-20b", dir / "one", sizes, 7, 1));
  synth(options_for("gpt-oss-20b", dir / "many", sizes, 7, 5));
  CHECK((contents(dir / "one") == contents(dir / "many")));
  const ReadBack made(dir / "one");
  const auto& [tensor, data] = made.tensors.at("model.layers.1.mlp.experts.gate_up_proj_blocks");
  int64_t equal = 0;
  for (int64_t i = 0; i < fill_block; ++i) equal += data[size_t(i)] == data[size_t(fill_block + i)];
  CHECK(equal < fill_block / 100);  // one in 256 expected
}

TEST_CASE("the destination appears whole or not at all") {
  const ScratchDir dir;
  fs::create_directory(dir / "empty");
  synth(options_for("gpt-oss-20b", dir / "empty/", tiny_sizes()));
  CHECK(fs::exists(dir / "empty/config.json"));
  CHECK_THROWS_WITH(synth(options_for("gpt-oss-20b", dir / "empty", tiny_sizes())),
                    Catch::StartsWith(dir / "empty: exists; "));
  CHECK_THROWS_WITH(synth(options_for("gpt-oss-20b", dir / "absent/sub", tiny_sizes())),
                    Catch::StartsWith(dir / "absent/sub: the folder ") && Catch::EndsWith("absent does not exist"));

  SynthOptions stopped = options_for("gpt-oss-20b", dir / "stopped", tiny_sizes());
  int64_t last = 0;
  stopped.progress = [&](int64_t done, int64_t total) {
    CHECK(done > last);
    CHECK(done <= total);
    last = done;
    fail(ErrorKind::interrupted, "stopped");
  };
  CHECK_THROWS_WITH(synth(stopped), "stopped");
  CHECK(last > 0);
  int entries = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator(dir.path)) ++entries;
  CHECK(entries == 1);  // "empty"; no partial directory is left
}

TEST_CASE("testdata/tiny is what synth makes") {
  const ScratchDir dir;
  SynthSizes sizes = tiny_sizes();
  synth(options_for("gpt-oss-20b", dir / "gpt-oss", sizes));
  sizes.experts = 3, sizes.intermediate = 64;
  synth(options_for("deepseek-v4-flash", dir / "deepseek-v4", sizes));
  for (const char* name : {"gpt-oss", "deepseek-v4"}) {
    const auto kept = contents(fmt::format("{}/tiny/{}", testdata(), name));
    for (const auto& [file, text] : contents(dir / name)) {
      INFO(name << "/" << file);
      REQUIRE(kept.contains(file));
      CHECK((kept.at(file) == text));
    }
  }
}
