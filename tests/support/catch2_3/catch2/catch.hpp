// Catch2 3 under the header's name and the words of Catch2 2, which the tests use. On the include path with Catch2 3
// only.
#pragma once

#include <catch2/catch_all.hpp>

namespace Catch {

using TestEventListenerBase = EventListenerBase;
using Matchers::EndsWith;
using Matchers::Equals;
using Matchers::StartsWith;

inline auto Contains(const std::string& text) { return Matchers::ContainsSubstring(text); }

}  // namespace Catch

using Catch::Approx;
