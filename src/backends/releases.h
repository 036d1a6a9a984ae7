// Each engine's releases whose sources were read, the oldest first. tests/engines/matrix.py writes this file.
#pragma once

// clang-format off
namespace mxfp4::engine {

inline constexpr const char* vllm_releases[] = {
    "0.26.0",
    "0.27.0",
    "0.27.1",
    "0.28.0",
    "0.29.0",
    "0.30.0",
    "0.31.0",
    "0.32.0",
    "0.33.0",
};
inline constexpr const char* sglang_releases[] = {
    "0.5.11",
    "0.5.12",
    "0.5.13",
    "0.5.14",
    "0.5.15",
    "0.5.16",
    "0.5.17",
    "0.5.18",
    "0.5.19",
    "0.5.20",
    "0.5.21",
    "0.5.22",
    "0.5.23",
};

}  // namespace mxfp4::engine
