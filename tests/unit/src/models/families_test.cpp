// Checkpoint families: their detection, and the conversion of every family for every backend.
#include "src/models/layer_names.h"
#include "src/plan/plan.h"
#include "tests/support/hand_made.h"

using namespace mxfp4;

namespace {

const Sizes two = {.layers = 2, .experts = 2};

}  // namespace

TEST_CASE("every published model's structure is recognised") {
  struct Expected {
    const char *model, *family;
    int64_t hidden, intermediate;
    size_t layers, last_experts;
    int other_linears = 0;           // in MXFP4, outside of routed experts
    const char* other_experts = "";  // layers whose experts are not MXFP4
    const char* setting = "";
  };
  const Expected all[] = {
      {"gpt-oss-20b", "gpt-oss", 96, 160, 2, 2},
      {"gpt-oss-120b", "gpt-oss", 96, 160, 2, 2},
      {"deepseek-v4-flash", "deepseek-v4", 128, 128, 3, 2},
      {"deepseek-v4-flash-0731", "deepseek-v4", 128, 128, 5, 2},
      {"deepseek-v4-pro", "deepseek-v4", 128, 128, 3, 2},
      {"deepseek-v4-pro-quark", "deepseek-v4", 128, 128, 3, 2},
      {"deepseek-v4.1-flash", "deepseek-v4.1", 128, 96, 5, 2},
      {"deepseek-r1-0528-quark", "quark", 128, 64, 1, 2},
      {"gemma-4-26b-a4b-ct", "compressed-tensors", 128, 64, 2, 2},
      {"glm-5.1-quark", "quark", 128, 64, 1, 2, 3},
      {"glm-5.2-quark", "quark", 128, 64, 1, 2, 3, "model.layers.2.mlp.experts: experts are BF16, copied unchanged"},
      {"glm-5.3-flash-quark", "quark", 128, 64, 1, 2, 3,
       "model.language_model.layers.2.mlp.experts: experts are F8_E4M3, copied unchanged"},
      {"granite-4.0-h-small-quark", "quark", 128, 64, 2, 2},
      {"hy3-ct", "compressed-tensors", 128, 64, 1, 2},
      {"inkling-quark", "quark", 128, 64, 1, 2, 0,
       "model.llm.layers.0.mlp.experts: experts are BF16, copied unchanged"},
      {"kimi-k2.5-quark", "quark", 128, 64, 1, 2},
      {"kimi-k3", "kimi-k3", 64, 96, 1, 2},
      {"ling", "ling", 128, 64, 1, 2},
      {"longcat-flash-ct", "compressed-tensors", 128, 64, 2, 2},
      {"mimo-v2.6-flash", "mimo", 128, 64, 1, 2},
      {"minimax-m2.5-quark", "quark", 128, 64, 2, 2},
      {"minimax-m2.7-quark", "quark", 128, 64, 2, 2},
      {"minimax-m3-quark", "quark", 128, 64, 1, 2, 3},
      {"muse-spark-quark", "muse-spark", 64, 64, 1, 2, 0,
       "model.language_model.layers.0.mlp.experts: experts are BF16, copied unchanged",
       "a norm follows each expert; verify computes experts without it"},
      {"privacy-filter-mxfp4", "gpt-oss", 96, 160, 2, 2},
      {"qwen3-30b-a3b-autoround", "auto-round", 128, 96, 2, 2, 8},
      {"qwen3-30b-a3b-ct", "compressed-tensors", 128, 96, 2, 2, 8},
      {"qwen3-coder-next-quark", "quark", 128, 64, 2, 2},
      {"qwen3.5-397b-a17b-quark", "quark", 128, 64, 2, 2, 6},
      {"trinity-mini-ct", "compressed-tensors", 128, 64, 1, 2},
  };
  CHECK(std::size(all) == synth_models().size());
  for (const Expected& x : all) {
    INFO(x.model);
    const TempDir dir;
    write_synth(x.model, dir / "in", two);
    Problems problems;
    const Model m = recognise_dir(dir / "in", problems);
    problems.throw_if_any();
    CHECK(m.family == x.family);
    REQUIRE(m.layers.size() == x.layers);
    CHECK(m.layers[0].hidden == x.hidden);
    CHECK(m.layers[0].intermediate == x.intermediate);
    CHECK(m.layers.back().experts.size() == x.last_experts);
    std::vector<std::string> notes;
    if (*x.setting) notes.push_back(x.setting);
    if (*x.other_experts) notes.push_back(x.other_experts);
    if (x.other_linears > 0)
      notes.push_back(fmt::format("{} MXFP4 linears outside the routed experts are copied unchanged", x.other_linears));
    CHECK(m.notes == notes);
  }
}

TEST_CASE("MiniMax-M3 has GPT-OSS's activation on halves, with the constants of its config") {
  const TempDir dir;
  write_synth("minimax-m3-quark", dir / "in", two);
  Problems problems;
  const Model m = recognise_dir(dir / "in", problems);
  problems.throw_if_any();
  CHECK_FALSE(m.pairs);
  CHECK(m.activation.name == "swigluoai_uninterleave");
  CHECK(m.activation.alpha == 1.702);
  CHECK(m.activation.beta == 1);
  CHECK(m.activation.limit == 7);
  CHECK(m.router.scaling == 2);
}

TEST_CASE("every published model into every backend that accepts its shape; the others say why", "[long]") {
  for (const SynthModel& model : synth_models()) {
    const TempDir dir;
    write_synth(model.name, dir / "in", two);
    int converted = 0;
    const bool all_versions = model.name == "gpt-oss-20b" || model.name == "deepseek-v4-flash";
    for (const Backend* b : backends()) {
      const std::string_view usual = find_backend(b->name, b->engine, "").layout_version;
      if (!all_versions && b->layout_version != usual) continue;
      INFO(model.name << " " << b->engine << " " << b->name << " " << b->layout_version);
      const std::string out = dir / fmt::format("{}", size_t(b - backends().front()));
      const std::string why = convert_with(*b, dir / "in", out);
      std::filesystem::remove_all(out);
      const char* const reasons[] = {" cannot serve it: ", " is not for models of family ",
                                     " is not written for models of family "};
      const bool refused = std::any_of(std::begin(reasons), std::end(reasons),
                                       [&](const char* reason) { return why.find(reason) != why.npos; });
      CHECK((why.empty() || refused));
      converted += why.empty();
    }
    CHECK(converted >= (all_versions ? 25 : 20));
  }
}

TEST_CASE("shapes that need no padding go into every backend") {
  const TempDir dir;
  write_synth("deepseek-v4-flash", dir / "in", {.layers = 2, .experts = 2, .hidden = 256, .intermediate = 256});
  for (const char* name : {"flashinfer-cutedsl", "flashinfer-humming"}) {
    INFO(name);
    CHECK(convert_with(find_backend(name, "vllm", ""), dir / "in", dir / name) == "");
  }
}

TEST_CASE("ModelOpt says what it is beside the config, or nowhere") {
  for (const Json& config :
       {Json{{"model_type", "x"}}, Json{{"model_type", "x"}, {"quantization_config", {{"quant_algo", "mxfp4"}}}}}) {
    const TempDir dir;
    HandMade ck(dir / "in", config);
    add_experts(ck, "model.layers.3.mlp.experts", "weight");
    ck.add("model.layers.3.mlp.gate.weight", Dtype::BF16, {2, 64});
    Problems problems;
    CHECK(ck.model(problems).family == "modelopt");
    CHECK(first_error(problems) == "");
    CHECK(convert_with(find_backend("marlin", "vllm", ""), dir / "in", dir / "out") == "");
    const Json made = parse_json(read_text(dir / "out/config.json", 1 << 20), "config");
    CHECK(made["quantization_config"]["quant_method"] == "mxfp4_pack");
    CHECK(comes_back(dir));
  }
}

TEST_CASE("the order of gate and up rows in one tensor is never assumed") {
  struct Fused {
    const char *w13, *w2, *codes, *scales, *family;
    bool per_expert;
  };
  for (const Fused& f : {Fused{".w13", ".w2", "_weight", "_weight_scale", "fused", false},
                         {".gate_up_proj", ".down_proj", "_blocks", "_scales", "gpt-oss", false},
                         {".gate_up_proj", ".down_proj", ".weight", ".weight_scale", "gpt-oss quark", true}}) {
    INFO(f.w13 << f.codes);
    const auto read = [&](Json config, const std::string& gate_up, Problems& problems) {
      const TempDir dir;
      const bool is_quark = f.per_expert;
      config["quantization_config"] = {{"quant_method", is_quark ? "quark" : "mxfp4"}, {"dtype", "fp4"}};
      HandMade ck(dir / "in", config);
      for (int e = 0; e < (f.per_expert ? 2 : 1); ++e) {
        const std::string module = "model.layers.0.mlp.experts" + (f.per_expert ? fmt::format(".{}", e) : "");
        const auto shape = [&](int64_t n, int64_t k) {
          return f.per_expert ? std::vector<int64_t>{n, k} : std::vector<int64_t>{2, n, k};
        };
        ck.add(module + f.w13 + f.codes, Dtype::U8, shape(64, 32));
        ck.add(module + f.w13 + f.scales, Dtype::U8, shape(64, 2));
        ck.add(module + f.w2 + f.codes, Dtype::U8, shape(64, 16));
        ck.add(module + f.w2 + f.scales, Dtype::U8, shape(64, 1));
      }
      ck.add("model.layers.0.mlp.gate.weight", Dtype::BF16, {2, 64});
      return ck.model(problems, {.gate_up = gate_up});
    };
    const auto refusal = [&](const Json& config, const std::string& gate_up = "") {
      Problems problems;
      read(config, gate_up, problems);
      return first_error(problems);
    };
    const auto up_offset = [&](const Json& config, const std::string& gate_up = "") {
      Problems problems;
      const Model m = read(config, gate_up, problems);
      CHECK(first_error(problems) == "");
      CHECK(m.family == f.family);
      return m.layers.empty() ? -1 : m.layers[0].experts[1].up.codes.offset;
    };
    const Json unknown = {{"model_type", "inkling"}};
    CHECK(refusal(unknown).starts_with("config.json: model_type 'inkling' does not say the order of gate and up rows"));
    CHECK(refusal(Json::object()).starts_with("config.json: model_type '' does not say the order"));
    CHECK(up_offset(unknown, "interleaved") == 32);
    CHECK(up_offset(unknown, "concatenated") == 32 * 32);
    Json tells = unknown;
    tells["inference_moe_w13_interleaved"] = true;
    CHECK(up_offset(tells) == 32);
    tells = {{"model_type", "inkling"}, {"text_config", {{"inference_moe_w13_interleaved", false}}}};
    CHECK(up_offset(tells) == 32 * 32);
    CHECK(up_offset(tells, "concatenated") == 32 * 32);
    Problems problems;
    read(tells, "interleaved", problems);
    CHECK(first_error(problems) == "config.json: inference_moe_w13_interleaved is false, but --gate-up is interleaved");
  }
}

TEST_CASE("ModelOpt's separate file is read where the config says nothing, and must not contradict") {
  const auto first = [](const Json& algorithm, const Json& config) {
    const TempDir dir;
    HandMade ck(dir / "in", config);
    add_experts(ck, "model.layers.3.mlp.experts", "weight");
    ck.add("model.layers.3.mlp.gate.weight", Dtype::BF16, {2, 64});
    ck.write();
    write_text(dir / "in/hf_quant_config.json",
               Json{{"producer", {{"name", "modelopt"}}}, {"quantization", algorithm}}.dump());
    Problems problems;
    CHECK(recognise_dir(dir / "in", problems).family == "modelopt");
    if (problems.any()) return first_error(problems);
    CHECK(convert_with(find_backend("marlin", "vllm", ""), dir / "in", dir / "out") == "");
    run_unpack(dir / "out", dir / "again");
    CHECK(contents_of(dir / "again").count("hf_quant_config.json") == 1);
    return std::string();
  };
  const Json silent = {{"model_type", "x"}};
  CHECK(first({{"quant_algo", "W4A8_MXFP4_FP8"}, {"group_size", 32}}, silent) == "");
  CHECK(first({{"quant_algo", "MIXED_PRECISION"}, {"quantized_layers", {{"a", {{"quant_algo", "mxfp4"}}}}}}, silent) ==
        "");
  CHECK(first({{"quant_algo", "FP8"}}, silent) == "hf_quant_config.json: quant_algo is no MXFP4, but the experts are");
  CHECK(first({{"quant_algo", "FP8"}}, {{"model_type", "x"}, {"quantization_config", {{"quant_algo", "mxfp4"}}}}) ==
        "");
}

TEST_CASE("a layer of multi-token prediction is one by each of its names") {
  for (const char* module : {"mtp.0.ffn.experts", "model.mtp.layers.0.mlp.experts", "mtp_layers.0.mlp.experts",
                             "model.nextn.layers.0.mlp.experts", "model.layers.0.mlp.experts"}) {
    LayerKind kind;
    int64_t index = -1;
    CHECK(parse_layer(module, kind, index));
    CHECK(index == 0);
    CHECK((kind == LayerKind::mtp) == LayerStack{module, {}}.is_mtp());
  }
}

TEST_CASE("layers behind the main ones are layers of multi-token prediction") {
  const TempDir dir;
  const char* key = GENERATE("num_hidden_layers", "n_layers");
  HandMade ck(dir / "in", {{"model_type", "x"}, {key, 3}, {"num_nextn_predict_layers", 1}});
  for (const char* layer : {"model.layers.2.mlp", "model.layers.3.mlp"}) {
    add_experts(ck, fmt::format("{}.experts", layer), "weight");
    ck.add(fmt::format("{}.gate.weight", layer), Dtype::BF16, {2, 64});
  }
  ck.write();
  Problems problems;
  const Model model = recognise_dir(dir / "in", problems);
  problems.throw_if_any();
  REQUIRE(model.layers.size() == 2);
  CHECK(model.layers[0].kind == LayerKind::model);
  CHECK(model.layers[0].index == 2);
  CHECK(model.layers[1].kind == LayerKind::mtp);
  CHECK(model.layers[1].index == 0);
}

// vllm#42595: columns were padded to 512 before they were cut, so ranks 6 and 7 of 8 had no columns.
TEST_CASE("columns are cut before they are padded, so that no rank is made of padding alone") {
  const TempDir dir;
  write_synth("qwen3-30b-a3b-ct", dir / "in", {.layers = 2, .experts = 2, .hidden = 256, .intermediate = 384});
  Problems problems;
  const Checkpoint ck = open_checkpoint(dir / "in", problems);
  const Model model = recognise(ck, {}, problems);
  const Backend& marlin = find_backend("marlin", "vllm", "1", &model);
  make_plan(ck, model, marlin, {.tp_size = 8}, problems);
  REQUIRE(problems.any());
  CHECK_THROWS_WITH(problems.throw_if_any(), Catch::Contains("does not split into 8 ranks of whole groups of 32"));
  Problems none;
  const Plan plan = make_plan(ck, model, marlin, {.tp_size = 4}, none);
  none.throw_if_any();
  for (const PackedTensor& t : plan.packed) {
    CHECK(t.intermediate.count == 96);
    CHECK(t.intermediate.begin == 96 * t.rank);
  }
}
