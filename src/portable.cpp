// What a libstdc++ that was made for glibc 2.36 wants, where glibc is 2.34: its std::random_device, linked in.
#include <unistd.h>

#include <cstdint>
#include <cstdlib>

extern "C" uint32_t arc4random() {
  uint32_t number;
  if (::getentropy(&number, sizeof(number)) != 0) std::abort();
  return number;
}
