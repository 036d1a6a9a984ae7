#include "src/synth/expression.h"

#include <catch2/catch.hpp>

using namespace mxfp4;

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
