// Free memory, computed from trees of files that imitate /proc and the cgroups' mounts.
#include "src/base/memory_room.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "tests/support/temp_dir.h"

using namespace mxfp4;

namespace {

constexpr int64_t gib = int64_t(1) << 30;

/// Writes a file below the root, and creates its folders.
void put(const TempDir& root, const std::string& name, const std::string& text) {
  const std::filesystem::path path = root / name;
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

void put_machine(const TempDir& root, int64_t bytes) {
  put(root, "proc/meminfo", fmt::format("MemTotal: 999999999 kB\nMemAvailable: {} kB\n", bytes / 1024));
}

void put_v2(const TempDir& root, const std::string& group, const std::string& limit, int64_t used, int64_t cached) {
  put(root, "cg/" + group + "/memory.max", limit + "\n");
  put(root, "cg/" + group + "/memory.high", "max\n");
  put(root, "cg/" + group + "/memory.current", fmt::format("{}\n", used));
  put(root, "cg/" + group + "/memory.stat",
      fmt::format("anon 7\nfile {0}\ninactive_file {1}\nactive_file {1}\n", cached, cached / 2));
}

}  // namespace

TEST_CASE("memory has room for what the machine says, if no cgroup limits it") {
  const TempDir root;
  CHECK(memory_room(root / "") == INT64_MAX);
  put_machine(root, 4 * gib);
  CHECK(memory_room(root / "") == 4 * gib);
  CHECK(memory_room() > 0);
}

TEST_CASE("a cgroup of version 2 and those above it limit the room, but cached files do not") {
  const TempDir root;
  put_machine(root, 100 * gib);
  put(root, "proc/self/mountinfo", "30 24 0:26 / /cg rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n");
  put(root, "proc/self/cgroup", "0::/above/own\n");
  put_v2(root, "above/own", "max", 9 * gib, 0);
  put_v2(root, "above", "max", 9 * gib, 0);
  CHECK(memory_room(root / "") == 100 * gib);
  put_v2(root, "above/own", std::to_string(20 * gib), 12 * gib, 8 * gib);
  CHECK(memory_room(root / "") == 16 * gib);
  put(root, "cg/above/own/memory.high", std::to_string(18 * gib));
  CHECK(memory_room(root / "") == 14 * gib);
  put_v2(root, "above", std::to_string(20 * gib), 15 * gib, 8 * gib);
  CHECK(memory_room(root / "") == 13 * gib);
  put_v2(root, "above", std::to_string(20 * gib), 25 * gib, 0);  // above its limit
  CHECK(memory_room(root / "") == 0);
}

TEST_CASE("a cgroup of version 1 limits the room, also in a container that sees its own group alone") {
  const TempDir root;
  put_machine(root, 100 * gib);
  for (const std::string group : {"/", "/docker/a"}) {
    const std::string at = group == "/" ? "mem/docker/a/" : "mem/";
    put(root, "proc/self/mountinfo",
        "29 24 0:25 / /cpu rw - cgroup cgroup rw,cpu\n30 24 0:26 " + group +
            " /mem rw,nosuid shared:9 - cgroup cgroup rw,memory\n31 24 0:27 / /cg rw - cgroup2 cgroup2 rw\n");
    put(root, "proc/self/cgroup", "5:cpu:/docker/b\n4:memory:/docker/a\n0::/\n");
    put(root, at + "memory.limit_in_bytes", std::to_string(10 * gib));
    put(root, at + "memory.usage_in_bytes", std::to_string(9 * gib));
    put(root, at + "memory.stat", fmt::format("cache 1\ntotal_inactive_file {}\ntotal_active_file {}\n", 2 * gib, gib));
    CHECK(memory_room(root / "") == 4 * gib);
    std::filesystem::remove_all(root / "mem");
  }
}
