// Valid but odd checkpoints: converted, verified, unpacked byte for byte; some with a warning.
#include <cmath>

#include "tests/support/try_checkpoint.h"

using namespace mxfp4;
namespace fs = std::filesystem;

namespace {

const std::string experts = "model.layers.0.mlp.experts.";

/// The packed tensors of an output.
std::map<std::string, std::string> packed_in(const std::string& out) { return tensors_of(out + "/packed"); }

std::map<std::string, std::string> packed_of(const MadeCheckpoint& c) {
  const TempDir dir;
  c.write(dir / "ckpt");
  CHECK(warned_of(dir, marlin(dir)).empty());
  return packed_in(dir / "out");
}

}  // namespace

TEST_CASE("scales in another shard, shards in folders, odd numbers, no index") {
  MadeCheckpoint c = make_gpt_oss();
  const auto plain = packed_of(c);
  c.move(experts + "gate_up_proj_scales", "shards/model-00000-of-00099.safetensors");
  c.move(experts + "down_proj_bias", "model--00007-of-000001.safetensors");
  CHECK((packed_of(c) == plain));
  MadeCheckpoint one = make_gpt_oss();
  one.shards.erase("model-2.safetensors");
  one.index = "none";
  CHECK((packed_of(one) == plain));
}

TEST_CASE("several shards without an index, an index without metadata, with a wrong total") {
  MadeCheckpoint c = make_gpt_oss();
  c.index = "none";
  CHECK(warned_of(c) == Lines{"CKPT: no model.safetensors.index.json; all 2 shards are read"});
  Json map = Json::object();
  for (const auto& [file, tensors] : make_gpt_oss().shards)
    for (const auto& [name, t] : tensors) map[name] = file;
  c.index = Json{{"weight_map", map}}.dump();
  CHECK(warned_of(c).empty());
  c.index = Json{{"metadata", Json::object()}, {"weight_map", map}}.dump();
  CHECK(warned_of(c).empty());
  c.index = Json{{"metadata", {{"total_size", 5}}}, {"weight_map", map}}.dump();
  CHECK(warned_of(c) == Lines{"model.safetensors.index.json: total_size is 5, the tensors have 20992 bytes"});
}

TEST_CASE("a tensor that the index does not name is kept") {
  MadeCheckpoint c = make_gpt_oss();
  for (const auto& [file, tensors] : c.shards)
    for (const auto& [name, t] : tensors) c.weight_map[name] = file;
  c.tensors()["model.extra"] = make_tensor(Dtype::U8, {3}, 0, 9);
  const Lines lines = warned_of(c);
  REQUIRE(lines.size() == 1);
  CHECK(lines[0] ==
        "model-1.safetensors: model.extra: in the shard but not in the index; kept, because engines load such tensors, "
        "too");
  c.tensors()["model.other"] = make_tensor(Dtype::U8, {3}, 0, 9);
  CHECK(warned_of(c) == Lines{"model-1.safetensors: model.extra and 1 more: in the shard but not in the index; kept, "
                              "because engines load such tensors, too"});
}

TEST_CASE("scales with dimensions of one more") {
  MadeCheckpoint c = make_gpt_oss();
  const auto plain = packed_of(c);
  c.at(experts + "gate_up_proj_scales").shape = {2, 192, 1, 2, 1};
  c.at(experts + "down_proj_scales").shape = {2, 64, 3, 1};
  CHECK((packed_of(c) == plain));
  MadeCheckpoint d = make_deepseek();
  const auto separate = packed_of(d);
  for (auto& [name, t] : d.tensors())
    if (name.ends_with(".scale")) t.shape = {t.shape[0], 1, t.shape[1], 1};
  CHECK((packed_of(d) == separate));
}

TEST_CASE("code containers U8, I8 and F4, scales U8, E8M0 and F32 give the same bytes") {
  const auto plain = packed_of(make_deepseek());
  for (const Dtype codes : {Dtype::U8, Dtype::F4})
    for (const Dtype scales : {Dtype::U8, Dtype::F8_E8M0}) {
      MadeCheckpoint c = make_deepseek();
      add_deepseek_layer(c, "layers.0.", 2, codes, scales);
      CHECK((packed_of(c) == plain));
    }
  MadeCheckpoint c = make_deepseek();
  for (auto& [name, t] : c.tensors()) {
    if (!name.ends_with(".scale")) continue;
    std::string floats;
    for (const char byte : t.data) {
      const float f = std::ldexp(1.f, uint8_t(byte) - 127);
      floats.append(reinterpret_cast<const char*>(&f), 4);
    }
    t.dtype = Dtype::F32, t.data = floats;
  }
  CHECK((packed_of(c) == plain));
}

TEST_CASE("every F32 scale from 2^-127 to 2^127, and 0.0 over zero codes, comes back") {
  MadeCheckpoint c = make_deepseek();
  add_deepseek_layer(c, "layers.0.", 2, Dtype::I8, Dtype::F32);
  int exponent = -127;
  for (auto& [name, t] : c.tensors()) {
    if (!name.ends_with(".scale")) continue;
    for (size_t i = 0; i < t.data.size() / 4; ++i) {
      const float f = std::ldexp(1.f, exponent);
      exponent = exponent == 127 ? -126 : exponent + 1;
      std::memcpy(&t.data[4 * i], &f, 4);
    }
  }
  const std::string zero = "layers.0.ffn.experts.1.w2.";
  std::memset(&c.at(zero + "scale").data[4 * 11], 0, 4);
  std::memset(&c.at(zero + "weight").data[16 * 11], 0x80, 16);
  CHECK(warned_of(c).empty());
}

TEST_CASE("DeepSeek names with model. in front, MTP blocks with another number of experts") {
  MadeCheckpoint c = make_deepseek("model.");
  add_deepseek_layer(c, "mtp.0.", 3);
  add_deepseek_layer(c, "mtp.1.", 1);
  const auto packed = packed_of(c);
  CHECK(packed.count("model.layers.0.ffn.experts.w13_weight") == 1);
  const TempDir dir;
  c.write(dir / "ckpt");
  CHECK(warned_of(dir, marlin(dir)).empty());
  const auto all = packed_in(dir / "out");
  CHECK(all.at("mtp.0.ffn.experts.w2_weight_scale").starts_with("F8_E8M0 [3, "));
  CHECK(all.at("mtp.1.ffn.experts.w2_weight_scale").starts_with("F8_E8M0 [1, "));
}

TEST_CASE("another number of experts in some layers") {
  MadeCheckpoint c = make_deepseek();
  add_deepseek_layer(c, "layers.1.", 3);
  CHECK(warned_of(c) == Lines{"config.json: n_routed_experts = 2, but 1 of 2 layers have another number of experts"});
}

TEST_CASE("layers of FP8 experts pass through beside MXFP4 ones") {
  MadeCheckpoint c = make_deepseek();
  add_deepseek_layer(c, "mtp.0.", 2);
  for (auto& [name, t] : c.tensors())
    if (name.starts_with("layers.0.ffn.experts") && name.ends_with(".weight"))
      t = make_tensor(Dtype::F8_E4M3, {t.shape[0], t.shape[1] * 2}, 0, 120);
  const TempDir dir;
  c.write(dir / "ckpt");
  CHECK(warned_of(dir, marlin(dir)).empty());
  const auto packed = packed_in(dir / "out");
  CHECK(packed.count("mtp.0.ffn.experts.w13_weight") == 1);
  CHECK(packed.count("layers.0.ffn.experts.w13_weight") == 0);
}

TEST_CASE("an unknown model type with known names") {
  MadeCheckpoint c = make_deepseek();
  c.config["model_type"] = "deepseek_v5";
  CHECK(warned_of(c) ==
        Lines{"config.json: model_type 'deepseek_v5' is not known; read as DeepSeek-V4 by its tensor names"});
  MadeCheckpoint g = make_gpt_oss();
  const auto pairs = packed_of(g);
  g.config["model_type"] = "other";
  for (const std::string order : {"interleaved", "concatenated"}) {
    const TempDir dir;
    g.write(dir / "ckpt");
    ConvertOptions o = marlin(dir);
    o.model.gate_up = order;
    CHECK(warned_of(dir, o) ==
          Lines{"config.json: model_type 'other' is not known; read as GPT-OSS by its tensor names"});
    CHECK((packed_in(dir / "out") == pairs) == (order == "interleaved"));
  }
}

TEST_CASE("empty tensors, tensors of no dimension, names of any script") {
  MadeCheckpoint c = make_gpt_oss();
  auto& t = c.shards["model-2.safetensors"];
  t["empty"] = make_tensor(Dtype::F32, {0, 5}, 0, 1);
  t["a_first_empty"] = make_tensor(Dtype::U8, {0}, 0, 1);
  t["zz_last_empty"] = make_tensor(Dtype::BF16, {7, 0}, 0, 1);
  t["scalar"] = make_tensor(Dtype::F32, {}, 0, 9);
  t["m\u00e9t\u00e9o.\u6743\u91cd.\U0001F600"] = make_tensor(Dtype::U8, {5}, 0, 9);
  t["quote\"and\\backslash"] = make_tensor(Dtype::U8, {5}, 0, 9);
  t["../../etc/passwd"] = make_tensor(Dtype::U8, {5}, 0, 9);
  t[""] = make_tensor(Dtype::U8, {5}, 0, 9);
  CHECK(warned_of(c).empty());
}

TEST_CASE("names are compared as they decode") {
  MadeCheckpoint c = make_gpt_oss();
  std::string header = R"({"model.norm\u002eweight":{"dtype":"BF16","shape":[64],"data_offsets":[0,128]}})";
  c.files["model-2.safetensors"] = make_raw(" \n" + header + "\t  ", 128);
  CHECK(warned_of(c).empty());
}

TEST_CASE("companions are copied, weights of other formats and unsafe names are not") {
  MadeCheckpoint c = make_gpt_oss();
  for (const char* name : {"tokenizer.model", "encoding/v4.py", "metal/model.bin", "odd:name", "\xFF", "\x1b[2J"})
    c.files[name] = "text";
  c.files["extra.safetensors"] = c.files["original/model.safetensors"] = make_safetensors({}, {});
  const TempDir dir;
  c.write(dir / "ckpt");
  const Lines warned = warned_of(dir, marlin(dir));
  REQUIRE(warned.size() == 1);
  CHECK_THAT(warned[0], Catch::Contains("extra.safetensors"));
  const auto out = contents_of(dir / "out");
  CHECK(out.at("tokenizer.model") == "text");
  CHECK(out.at("encoding/v4.py") == "text");
  for (const char* name : {"original/model.safetensors", "metal/model.bin", "extra.safetensors", "odd:name", "\xFF"})
    CHECK(out.count(name) == 0);
}

TEST_CASE("text that is shown holds no terminal escape") {
  CHECK(printable("a\x1b[2J\n\x7f") == "a\\x1b[2J\\x0a\\x7f");
  CHECK(printable("\xC2\x9B") == "\\xc2\\x9b");
  CHECK(printable("a\u202Eb\u2066\u2069") == "a\\xe2\\x80\\xaeb\\xe2\\x81\\xa6\\xe2\\x81\\xa9");
  CHECK(printable("\xFF\xC3(\xE2\x82") == "\\xff\\xc3(\\xe2\\x82");
  CHECK(printable("\xC0\xAF\xE0\x80\x80\xED\xA0\x80\xF4\x90\x80\x80") ==
        "\\xc0\\xaf\\xe0\\x80\\x80\\xed\\xa0\\x80\\xf4\\x90\\x80\\x80");
  for (const std::string text : {"", "plain", "\u00e9\u6743\U0001F600", "\xC2\xA0"}) CHECK(printable(text) == text);
}
