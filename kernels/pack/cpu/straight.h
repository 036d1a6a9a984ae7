// The steps of passes that a driver compiles as straight code, which is faster than a jump for each step.
#pragma once

#include <array>
#include <tuple>
#include <vector>

#include "kernels/pack/cpu/route.h"

namespace mxfp4 {

constexpr int first_term = 128;  // added to a term's code

/// The codes of a pass's steps. The codes of a mix's terms follow its own.
inline std::vector<int> codes_of(const Route::Pass& pass) {
  std::vector<int> all;
  for (const Route::Step& step : pass.steps) {
    all.push_back(step.code);
    for (const Route::Term& term : step.terms) all.push_back(first_term + term.code);
  }
  return all;
}

/// Steps of these codes.
template <int... codes>
struct Steps {
  static constexpr std::array<int, sizeof...(codes)> code = {codes...};
};

/// The steps of built-in layouts with NEON's vectors. tests/unit/kernels/pack/cpu/driver_test.cpp prints missing ones.
using NeonSteps =
    std::tuple<Steps<>, Steps<12, 0, 16, 71, 69>, Steps<8, 0, 76, 69, 10>, Steps<12, 45, 10, 7>, Steps<79, 12>,
               Steps<40, 0, 36, 19>, Steps<68, 0, 72, 9>, Steps<0, 16, 96>, Steps<68, 0, 96>, Steps<76, 13>,
               Steps<12, 100, 130, 145, 128, 141, 143, 128, 142, 130, 143, 143, 144, 1, 37, 36>,
               Steps<73, 68, 1, 100, 129, 142, 147, 129, 144, 128, 142, 143, 129, 143, 143, 12>,
               Steps<68, 100, 134, 168, 144, 132, 198, 145, 135, 169, 146, 133, 199, 147, 37, 36>,
               Steps<73, 68, 100, 133, 196, 144, 135, 198, 145, 132, 169, 146, 134, 171, 147, 36>,
               Steps<76, 100, 130, 145, 128, 141, 143, 128, 142, 130, 143, 143, 144, 1, 9, 4>,
               Steps<9, 4, 1, 100, 129, 142, 147, 129, 144, 128, 142, 143, 129, 143, 143, 44>, Steps<12, 9, 38>,
               Steps<68, 9, 14>, Steps<68, 13, 6>, Steps<12, 5, 38>, Steps<4, 1, 37, 78, 15>, Steps<72, 69, 1, 70, 71>,
               Steps<71, 68, 1, 9>, Steps<36, 13, 1, 42>,
               Steps<41, 4, 100, 130, 144, 134, 196, 145, 133, 171, 146, 129, 147, 36, 41>,
               Steps<9, 4, 100, 129, 144, 134, 171, 145, 133, 196, 146, 130, 147, 36, 17>>;

}  // namespace mxfp4
