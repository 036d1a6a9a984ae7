// Changes whole outputs and checkpoints and runs the commands on them, each in a process of its own.
// usage: mxfp4_folders SECONDS [SEED [CASES]]
//
// No command may crash, take more than 5 s of the processor, end with another code than 0, 1 or 2, change its input or
// write elsewhere. verify --source may accept only an output with the original's bytes. If the manifest's checksum was
// not updated, unpack must give the source or refuse. The output of convert for a changed checkpoint must be correct,
// and inspect must accept it.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <functional>

#include "src/inspect/diff.h"
#include "src/inspect/inspect.h"
#include "tests/folders/mutate.h"
#include "tests/support/layer_checkpoint.h"
#include "tests/support/program.h"

using namespace mxfp4;

namespace {

namespace fs = std::filesystem;
using Run = std::function<bool()>;
constexpr unsigned most_seconds = 5;    // of the processor
constexpr unsigned hanging_after = 60;  // by the clock, which on a busy machine says less

int code_of(const Run& run) {
  try {
    return run() ? 0 : 1;
  } catch (const Error&) {
  } catch (const fs::filesystem_error&) {
  } catch (const std::bad_alloc&) {
  }
  return 2;
}

/// The exit code, or 128 and more: the signal that ended it, SIGXCPU after most_seconds.
int in_a_child(const Run& run) {
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    const int null = ::open("/dev/null", O_WRONLY);
    ::dup2(null, 1), ::dup2(null, 2);
    const rlimit limit = {most_seconds, most_seconds + 1};
    ::setrlimit(RLIMIT_CPU, &limit);
    ::alarm(hanging_after);
    const int code = code_of(run);
    std::fflush(nullptr);
    ::_exit(code);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/// Contents, links and folders.
std::map<std::string, std::string> tree_of(const std::string& dir) {
  std::map<std::string, std::string> tree;
  for (const auto& entry : fs::recursive_directory_iterator(dir)) {
    std::string& what = tree[entry.path().lexically_relative(dir).string()];
    if (entry.is_symlink())
      what = "link " + fs::read_symlink(entry.path()).string();
    else if (entry.is_directory())
      what = "folder";
    else
      what = (std::ostringstream() << std::ifstream(entry.path(), std::ios::binary).rdbuf()).str();
  }
  return tree;
}

Run inspecting(const std::string& dir) {
  return [=] {
    InspectOptions o;
    o.checkpoint = dir;
    return inspect(o), true;
  };
}

class Fuzzing {
 public:
  explicit Fuzzing(uint64_t seed) : seed_(seed) {
    convert(conversion(source_, dir_ / "out", "vllm"));
    ConvertOptions o = conversion(source_, dir_ / "out", "sglang");
    o.add = true;
    convert(o);
    original_ = tree_of(dir_ / "out");
    unpacked_ = tree_of(source_);
  }

  bool run_case() {
    const int64_t before = failures_;
    folders::Mutator choose("", ++seed_);
    fs::remove_all(dir_ / "case");
    fs::create_directory(dir_ / "case");
    choose.below(3) ? change_output(choose) : change_checkpoint(choose);
    return failures_ == before;
  }
  uint64_t seed() const { return seed_; }
  int64_t successes() const { return successes_; }

 private:
  void fail(const std::string& what) {
    std::printf("FAILED: seed %llu: %s\n", static_cast<unsigned long long>(seed_), what.c_str());
    fs::copy(dir_ / "case", fmt::format("/tmp/mxfp4-case-{}", seed_),
             fs::copy_options::recursive | fs::copy_options::copy_symlinks);
    ++failures_;
  }

  int command(const std::string& name, const Run& run, const std::set<std::string>& makes = {}) {
    const auto before = tree_of(dir_ / "case/in");
    const int code = in_a_child(run);
    successes_ += code == 0;
    if (code > 2) fail(fmt::format("{}: exit code {}", name, code));
    if (tree_of(dir_ / "case/in") != before && !makes.count("in")) fail(name + ": changed what it reads");
    for (const auto& entry : fs::directory_iterator(dir_ / "case")) {
      const std::string file = entry.path().filename().string();
      if (file != "in" && !makes.count(file)) fail(fmt::format("{}: left {}", name, file));
    }
    return code;
  }

  void change_output(folders::Mutator& choose) {
    const std::string in = dir_ / "case/in";
    fs::copy(dir_ / "out", in, fs::copy_options::recursive);
    const bool is_sealed = folders::Mutator(in, seed_).run();
    switch (choose.below(6)) {
      case 0:
        return command("inspect", inspecting(in)), void();
      case 1:
        return check_unpack(in, is_sealed);
      case 2:
        return check_convert(in);
      case 3:
        return check_add(in);
      case 4:
        return command("verify", [&] { return is_right(in); }), void();
      default:
        return check_verify(in);
    }
  }

  void check_verify(const std::string& in) {
    const int code = command("verify --source", [&] { return is_right(in, source_); });
    if (code == 0 && !is_as_original(in)) fail("verify --source: right, but not the original's bytes");
  }

  bool is_as_original(const std::string& in) const {
    auto is = tree_of(in), was = original_;
    for (auto* tree : {&is, &was}) tree->erase(manifest_name);
    return is == was;
  }

  void check_unpack(const std::string& in, bool is_sealed) {
    const int code = command("unpack", [&] { return run_unpack(in, dir_ / "case/back"), true; }, {"back"});
    if (code != 0 && fs::exists(dir_ / "case/back")) fail("unpack: refused, but wrote");
    if (code == 0 && !is_sealed && tree_of(dir_ / "case/back") != unpacked_) fail("unpack: not the source");
  }

  void check_convert(const std::string& in) {
    const int code = command("convert", [&] { return convert(conversion(in, dir_ / "case/to", "sglang")), true; },
                             {"to", ".to.mxfp4-pack"});
    if (code != 0 && fs::exists(dir_ / "case/to")) fail("convert: refused, but wrote");
  }

  void check_add(const std::string& in) {
    ConvertOptions o = conversion(source_, in, "vllm", "triton-hopper");
    o.add = true;
    const auto before = tree_of(in);
    const int code = command("convert --add", [&] { return convert(o), true; }, {"in", ".in.mxfp4-pack"});
    if (code != 0 && tree_of(in) != before) fail("convert --add: refused, but wrote");
  }

  void change_checkpoint(folders::Mutator& choose) {
    const std::string in = dir_ / "case/in", to = dir_ / "case/to";
    fs::copy(source_, in, fs::copy_options::recursive);
    folders::Mutator(in, seed_).run();
    if (choose.below(4) == 0) {
      const int code = command("verify --source", [&] { return is_right(dir_ / "out", in); });
      if (code == 0 && tree_of(in) != unpacked_ && !is_same_source(in))
        fail("verify --source: right with another source");
      return;
    }
    const int code =
        command("convert", [&] { return convert(conversion(in, to, "vllm")), true; }, {"to", ".to.mxfp4-pack"});
    if (code != 0) return;
    const std::set<std::string> made = {"to", "back"};
    if (command("inspect", inspecting(in), made) != 0) fail("inspect: refuses what convert takes");
    if (command(
            "verify", [&] { return is_right(to, in); }, made) != 0)
      fail("verify: what convert made is not right");
    if (command(
            "unpack", [&] { return run_unpack(to, dir_ / "case/back"), true; }, made) != 0)
      fail("unpack: what convert made is refused");
  }

  /// Files that are not compared: skipped files, and files without tensors of the index.
  bool is_same_source(const std::string& in) const {
    auto is = tree_of(in);
    for (const auto& [name, what] : unpacked_) {
      const auto same = is.find(name);
      if (same == is.end() || same->second != what) return false;
      is.erase(same);
    }
    return true;
  }

  const std::string source_ = tiny + "gpt-oss";
  const TempDir dir_{fs::is_directory("/dev/shm") ? "/dev/shm" : fs::temp_directory_path()};
  std::map<std::string, std::string> original_, unpacked_;
  uint64_t seed_;
  int64_t failures_ = 0, successes_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  const auto seconds = std::chrono::seconds(argc > 1 ? std::stoll(argv[1]) : 5);
  const int64_t most = argc > 3 ? std::stoll(argv[3]) : INT64_MAX;
  const auto end = std::chrono::steady_clock::now() + seconds;
  set_verbosity(Verbosity::quiet);
  Fuzzing fuzzing(argc > 2 ? std::stoull(argv[2]) : 0);
  int64_t cases = 0, wrong = 0;
  for (; cases < most && std::chrono::steady_clock::now() < end; ++cases) wrong += !fuzzing.run_case();
  std::printf("%lld cases, %lld commands succeeded, %s\n", static_cast<long long>(cases),
              static_cast<long long>(fuzzing.successes()), wrong ? "some wrong" : "none wrong");
  return wrong || fuzzing.successes() == 0;
}
