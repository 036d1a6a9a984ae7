// Defines arc4random() for glibc 2.34. A libstdc++ that was built for glibc 2.36 needs it for std::random_device.
#include <unistd.h>

#include <cstdint>
#include <cstdlib>

extern "C" uint32_t arc4random() {
  uint32_t number;
  if (::getentropy(&number, sizeof(number)) != 0) std::abort();
  return number;
}
