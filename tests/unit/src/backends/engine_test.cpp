// Releases, engines and this machine's GPU.
#include "src/backends/engine.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>

#include "src/backends/gpu.h"
#include "src/base/error.h"
#include "src/base/file.h"
#include "tests/support/said.h"
#include "tests/support/temp_dir.h"

using namespace mxfp4;
namespace fs = std::filesystem;

namespace {

std::string error_of(const std::string& engine) {
  return said_by([&] { read_engine(engine); });
}

/// Sets an environment variable, and restores it at the end.
class Environment {
 public:
  Environment(const char* name, const std::string& value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before, had_ = true;
    ::setenv(name, value.c_str(), 1);
  }
  ~Environment() { had_ ? ::setenv(name_, before_.c_str(), 1) : ::unsetenv(name_); }

 private:
  const char* name_;
  std::string before_;
  bool had_ = false;
};

void write_file(const fs::path& file, const std::string& text) {
  fs::create_directories(file.parent_path());
  write_text(file.string(), text);
}

}  // namespace

TEST_CASE("releases are compared number by number") {
  CHECK(compare_versions("0.5.9", "0.5.17") < 0);
  CHECK(compare_versions("0.33.0", "0.33") == 0);
  CHECK(compare_versions("0.6.18.post1", "0.6.18") > 0);
  CHECK(compare_versions("0.33.0+cu130", "0.33.0") == 0);
  const Range range{"0.26.0", "0.28.0"};
  CHECK(range.contains("0.28.0"));
  CHECK(!range.contains("0.28.1"));
  CHECK(Range{"0.29.0", ""}.contains("0.40.0"));
  CHECK(!no_release.contains("1.0"));
  CHECK(describe(range, {}) == "0.26.0 to 0.28.0");
  CHECK(describe({"0.29.0", ""}, {"0.26.0", "0.33.0"}) == "0.29.0 to 0.33.0");
  CHECK(describe({"", "0.26.0"}, {"0.26.0", "0.33.0"}) == "0.26.0");
  CHECK(describe(no_release, range).empty());
}

TEST_CASE("an engine is said with or without its release") {
  CHECK(read_engine("vllm").version.empty());
  CHECK(read_engine("vllm==0.33.0").version == "0.33.0");
  CHECK(read_engine("vllm==0.33.0").name == "vllm");
  CHECK(read_engine("sglang==0.5.18").version == "0.5.18");
  CHECK(read_engine("vllm==0.31.1").version == "0.31.0");  // between two known releases
  CHECK(read_engine("vllm==0.27.1").version == "0.27.1");
  CHECK(read_engine("sglang==0.5.22.post1").version == "0.5.22");
  CHECK(error_of("vlm") == "no engine 'vlm', but " + engine_list(", ") + "; did you mean vllm?");
  CHECK(error_of("vllm==0.10.0") == "vllm 0.10.0 is older than 0.26.0, the oldest known release");
  CHECK(error_of("vllm==new") ==
        "--engine vllm==new: no release of vllm; vllm==" + or_newest("", "vllm") + " for example, or vllm==installed");
}

TEST_CASE("the release that is installed is that of the environment's python3") {
  const TempDir dir;
  const fs::path env(dir / "env"), packages = env / "lib/python3.12/site-packages";
  const Environment set("VIRTUAL_ENV", env.string());
  CHECK(error_of("vllm==installed").find("there is no python3") != std::string::npos);
  write_file(env / "bin/python3.12", "");
  fs::create_symlink("python3.12", env / "bin/python3");
  write_file(packages / "vllm_omni-1.0.dist-info/METADATA", "");
  CHECK(error_of("vllm==installed") == "--engine vllm==installed: " + (env / "bin/python3").string() + " has no vllm");
  write_file(packages / "vllm-0.32.0.dist-info/METADATA", "");
  CHECK(read_engine("vllm==installed").version == "0.32.0");
}

TEST_CASE("the GPU that is here is read from the drivers' files") {
  const TempDir dir;
  CHECK(gpu_here(dir / "none").empty());
  const auto nvidia = [&](const std::string& model) {
    write_file(fs::path(dir / "nvidia") / "proc/driver/nvidia/gpus/0000:01:00.0/information",
               "Model: \t\t " + model + "\nIRQ: 12\n");
    return gpu_here(dir / "nvidia");
  };
  CHECK(nvidia("NVIDIA H200") == "sm90");
  CHECK(nvidia("NVIDIA A100-SXM4-80GB") == "sm80");
  CHECK(nvidia("NVIDIA GeForce RTX 4090") == "sm89");
  CHECK(nvidia("Quadro K600").empty());
  write_file(fs::path(dir / "amd") / "sys/class/kfd/kfd/topology/nodes/0/properties", "gfx_target_version 0\n");
  write_file(fs::path(dir / "amd") / "sys/class/kfd/kfd/topology/nodes/1/properties", "gfx_target_version 90402\n");
  CHECK(gpu_here(dir / "amd") == "gfx942");
}

TEST_CASE("a backend's GPUs are read as they are listed") {
  CHECK(runs_on("SM75, SM80 and later", "sm121"));
  CHECK(runs_on("SM75, SM80 and later", "sm75"));
  CHECK(!runs_on("SM80 and later", "sm75"));
  CHECK(!runs_on("SM80 and later", "gfx950"));
  CHECK(runs_on("SM89, SM12x", "sm120"));
  CHECK(runs_on("SM8x", "sm89"));
  CHECK(!runs_on("SM8x", "sm90"));
  CHECK(!runs_on("SM12x", "sm100"));
  CHECK(!runs_on("SM100, SM103", "sm120"));
  CHECK(runs_on("CPU (AVX-512, AMX)", "cpu"));
}
