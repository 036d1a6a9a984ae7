// Layouts from the input are refused, or packed and unpacked by every driver and a GPU's blocks as their modes say.
#include <cstdlib>

#include "tests/support/random_modes.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto next = [&](size_t n) { return size ? --size, size_t(*data++) % n : size_t(0); };
  const auto [storage, modes] = mxfp4::made_modes(next);
  if (mxfp4::try_modes(storage, modes, mxfp4::made_pads(next, storage)) == false) std::abort();
  return 0;
}
