// The proof that every layout is a bijection, made by the compiler once in each build.
#include "kernels/layouts/layouts.h"

namespace mxfp4 {

namespace {

template <class L>
constexpr bool is_proved() {
  if constexpr (!is_plain<L>) static_assert(is_bijection<L>(), "bytes are lost, or left unwritten");
  return true;
}

template <class... L>
constexpr bool are_proved(std::variant<L...>*) {
  return (is_proved<L>() && ...);
}

static_assert(are_proved(static_cast<Layout*>(nullptr)));

}  // namespace

}  // namespace mxfp4
