#include "tests/fuzz/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  mxfp4::fuzz::read_table_text({reinterpret_cast<const char*>(data), size});
  return 0;
}
