// The exception of every function for a GPU; its text names the call and the reason.
#pragma once

#include <stdexcept>

namespace mxfp4 {

struct DeviceError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace mxfp4
