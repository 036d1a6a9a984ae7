// Every backend that auto writes has a loader according to tests/engines/matrix.json; others are refused.
#include "src/backends/unread.h"

#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "src/backends/gpu.h"
#include "src/backends/loaders.h"
#include "src/backends/select.h"
#include "src/base/file.h"
#include "tests/support/testdata.h"

using namespace mxfp4;

namespace {

constexpr const char* families[] = {"gpt-oss",    "deepseek-v4", "deepseek-v4.1", "kimi-k3",  "mimo",
                                    "ling",       "quark",       "fused",         "modelopt", "compressed-tensors",
                                    "auto-round", "muse-spark"};

Model model_of(const std::string& family) {
  Model m;
  m.family = family;
  m.method = family == "muse-spark" ? "quark" : family == "auto-round" ? "compressed-tensors" : family;
  m.pairs = family == "gpt-oss";
  m.layers.resize(1);
  m.layers[0].hidden = 4096, m.layers[0].intermediate = 2048;
  return m;
}

/// The first tested release for each engine, backend, layout version and family.
using Shown = std::map<std::string, std::string>;
Shown shown() {
  const Json matrix = parse_json(read_text(testdata() + "/../tests/engines/matrix.json", 1 << 20), "matrix.json");
  Shown rows;
  for (const Json& cell : matrix["cells"]) {
    if (cell["shown"] == "not") continue;
    const std::string key = fmt::format("{} {} {} {}", std::string(cell["engine"]), std::string(cell["backend"]),
                                        std::string(cell["layout"]), std::string(cell["family"]));
    const std::string version = cell["version"];
    if (std::string& first = rows[key]; first.empty() || compare_versions(version, first) < 0) first = version;
  }
  return rows;
}

bool is_shown(const Shown& rows, const Deployment& to, const std::string& backend, const std::string& layout_version,
              const std::string& family) {
  const auto row = rows.find(fmt::format("{} {} {} {}", to.engine, backend, layout_version, family));
  return row != rows.end() && compare_versions(to.release, row->second) >= 0;
}

std::string refusal_of(const Model& m, const Deployment& to) {
  try {
    select_backend(m, to);
    return {};
  } catch (const Error& e) {
    CHECK(e.kind == ErrorKind::usage);
    CHECK(e.lines.size() == 1);
    return e.lines.front();
  }
}

}  // namespace

TEST_CASE("auto writes only what a loader reads, for every family, engine, release and GPU", "[long]") {
  const Shown rows = shown();
  int taken = 0;
  std::set<std::string> refused;
  for (const char* family : families)
    for (const char* engine : {"vllm", "sglang"})
      for (const char* release : find_engine(engine).releases)
        for (const std::string& gpu : architectures()) {
          INFO(family << " " << engine << " " << release << " " << gpu);
          const Model m = model_of(family);
          Deployment to = {.engine = engine, .release = release, .gpu = gpu};
          const std::string why = refusal_of(m, to);
          const std::vector<std::string> read = read_backends(m, to);
          if (why.empty()) {
            const BackendChoice c = select_backend(m, to);
            CHECK(is_shown(rows, to, c.backend, c.layout_version, family));
            for (const std::string& other : c.alternatives)
              CHECK(is_shown(rows, to, other, choose_backend(other, m, to).layout_version, family));
            ++taken;
            continue;
          }
          refused.insert(fmt::format("{} {} {}", family, engine, gpu));
          if (!read.empty()) {  // auto cannot choose, and asks for a name
            CHECK(why.find("is not known; use --backend " + read.front()) != std::string::npos);
            continue;
          }
          to.no_loader = true;
          const bool runs = refusal_of(m, to).empty();
          CHECK((why.find("--no-loader writes it") != std::string::npos || !runs));
        }
  CHECK(taken > 800);
  for (const char* cell :
       {"deepseek-v4 sglang gfx950", "gpt-oss sglang sm80", "gpt-oss sglang gfx942", "fused vllm sm90",
        "muse-spark vllm sm90", "muse-spark vllm gfx950", "compressed-tensors sglang sm90", "kimi-k3 vllm gfx942"})
    CHECK(refused.count(cell));
}

TEST_CASE("a refusal names what is read instead") {
  const Model deepseek = model_of("deepseek-v4");
  const std::string gfx950 = refusal_of(deepseek, {.engine = "sglang", .release = "", .gpu = "gfx950"});
  CHECK(gfx950.find("; not aiter-a16w4: no loader reads it; use --engine vllm --backend ") != std::string::npos);
  CHECK(gfx950.find("--gpu") == std::string::npos);
  CHECK(read_instead(deepseek, {.engine = "sglang", .release = "0.5.17", .gpu = "sm75"}) ==
        "use --engine vllm --backend marlin");
  CHECK(read_instead(model_of("muse-spark"), {.engine = "vllm", .release = "", .gpu = "sm90"}) == "");
  const Model compressed = model_of("compressed-tensors");
  CHECK(read_instead(compressed, {.engine = "vllm", .release = "0.30.0", .gpu = "sm90"})
            .starts_with("use --engine vllm==" + or_newest("", "vllm") + " --backend "));
  CHECK(read_instead(compressed, {.engine = "vllm", .release = "0.33.0", .gpu = "gfx942"})
            .starts_with("vllm has loaders for other GPUs: sm75, sm80, "));
  CHECK_THAT(read_instead(compressed, {.engine = "vllm", .release = "0.33.0", .gpu = ""}),
             Catch::Contains("marlin (SM75, SM80 and later)"));
  CHECK(refusal_of(model_of("fused"), {.engine = "vllm", .release = "", .gpu = "sm90"})
            .find("no loader reads it; --no-loader writes it for a loader of your own") != std::string::npos);
}

TEST_CASE("a named backend that no loader of the release reads is refused unless none is needed") {
  const auto check = [](const char* backend, const char* engine, const char* family, const char* release,
                        bool no_loader = false) {
    const Model m = model_of(family);
    check_loader(find_backend(backend, engine, "", &m, release), m,
                 {.engine = engine, .release = release, .gpu = "", .no_loader = no_loader});
  };
  CHECK_THROWS_WITH(check("deepgemm-mega", "vllm", "deepseek-v4", "0.33.0"),
                    Catch::Contains("no loader of vllm 0.33.0 reads deepgemm-mega (layout version ") &&
                        Catch::Contains("; use --backend marlin") && Catch::Contains("; --no-loader writes it"));
  CHECK_NOTHROW(check("deepgemm-mega", "vllm", "deepseek-v4", "0.33.0", true));
  CHECK_THROWS_WITH(check("marlin", "vllm", "kimi-k3", "0.26.0"), Catch::Contains("; it is read from 0.27.0 on; "));
  CHECK_NOTHROW(check("marlin", "vllm", "kimi-k3", ""));
  CHECK_NOTHROW(check("marlin", "vllm", "kimi-k3", "0.99.0"));
}

TEST_CASE("the table of loaders has each tensor-parallel size that was shown") {
  const Model m = model_of("gpt-oss");
  CHECK(tested_tp_sizes(find_backend("marlin", "vllm", "1", &m), "gpt-oss") == std::vector<int>{1, 2});
  CHECK(tested_tp_sizes(find_backend("deepgemm-mega", "vllm", "", nullptr), "deepseek-v4").empty());
  CHECK(tested_tp_sizes(find_backend("marlin", "vllm", "1", &m), "mlx").empty());
}
