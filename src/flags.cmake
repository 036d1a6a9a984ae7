# mxfp4_flags: what everything is compiled with.
add_library(mxfp4_flags INTERFACE)
target_include_directories(mxfp4_flags INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_options(mxfp4_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra>
  $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fconstexpr-ops-limit=1000000000>
  # g++ 13 and later believe that a reference to a row of a table is to the name it was found by.
  $<$<AND:$<COMPILE_LANG_AND_ID:CXX,GNU>,$<VERSION_GREATER_EQUAL:$<CXX_COMPILER_VERSION>,13>>:-Wno-dangling-reference>
  $<$<COMPILE_LANG_AND_ID:CXX,Clang>:-fconstexpr-steps=1000000000 -Wno-unknown-warning-option -Wno-pass-failed>
  # CMake 3.25 does not know nvcc's C++20.
  $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20 -Xcompiler=-Wall,-Wextra,-Wno-unknown-pragmas>
  $<$<COMPILE_LANGUAGE:CUDA>:--threads=0>)  # the architectures of a file at once
if(MXFP4_WERROR)
  target_compile_options(mxfp4_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>
    $<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings>)
endif()
if(MXFP4_SANITIZE)
  # -Og compiles in half the time of -O1; at -O3 a sanitized device_cpu.cpp takes minutes.
  # g++ 12 takes instrumented <regex> for uninitialized.
  target_compile_options(mxfp4_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:$<IF:$<STREQUAL:$<TARGET_PROPERTY:NAME>,mxfp4_kernels>,-O1,-Og> -g1 -Wno-maybe-uninitialized -fsanitize=${MXFP4_SANITIZE} -fno-sanitize-recover=all>)
  target_link_options(mxfp4_flags INTERFACE -fsanitize=${MXFP4_SANITIZE})
endif()
if(MXFP4_COVERAGE)
  target_compile_options(mxfp4_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-O1 --coverage -fprofile-update=atomic -Wno-maybe-uninitialized>)
  target_link_options(mxfp4_flags INTERFACE --coverage)
endif()

# Precompiled for the program and for the tests.
set(slow_headers <fmt/format.h> <nlohmann/json.hpp> <filesystem> <map> <string> <vector>)
