// Integer expressions of the model descriptions: "ceildiv(H,B)", "l >= hash_layers", "compress_ratios[l] == 4".
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace mxfp4 {

/// The names an expression may use.
struct Scope {
  std::map<std::string, int64_t, std::less<>> numbers;
  std::map<std::string, std::vector<int64_t>, std::less<>> lists;
};

/// Operators, loosest first: `and`; one of == != < <= > >=; + -; * /; unary -. Functions: ceildiv, min, max, each of
/// two arguments; lists are indexed from 0. Truth is 1 or 0. `/` must leave no rest. An expression without a value (a
/// remainder, overflow, an unknown name, a syntax error) throws Error{usage}, because the sizes come from the command
/// line.
int64_t evaluate(std::string_view text, const Scope& scope);

}  // namespace mxfp4
