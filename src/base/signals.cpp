#include "src/base/signals.h"

#include <csignal>

#include "src/base/error.h"

namespace mxfp4 {

namespace {

volatile std::sig_atomic_t signal_number = 0;
void on_signal(int number) { signal_number = number; }

}  // namespace

void install_signal_handlers() {
  struct sigaction action = {};
  action.sa_handler = on_signal;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

int pending_signal() { return signal_number; }

void throw_if_interrupted() {
  if (signal_number) fail(Kind::interrupted, "interrupted by signal {}", int(signal_number));
}

}  // namespace mxfp4
