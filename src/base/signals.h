// SIGINT, SIGTERM and SIGHUP end every command within about a second.
#pragma once

#include <string>

namespace mxfp4 {

/// From here on SIGINT, SIGTERM and SIGHUP end the program with exit code 130, 143 or 129. The program ends at once.
/// While an output is being written, the program ends at the next throw_if_interrupted(), after a second at the latest.
/// A second signal always ends it at once. SIGINT and SIGHUP stay ignored if they were ignored at the start, as in a
/// shell's background jobs and under nohup. json: the message goes to stdout as an object.
void install_signal_handlers(bool json);

/// While one lives an output is being written.
class SignalsDeferred {
 public:
  SignalsDeferred();
  ~SignalsDeferred();
  SignalsDeferred(const SignalsDeferred&) = delete;
};

/// From here on the file `name` in an open folder is removed if a signal ends the program at once. No name: none is.
void remove_at_signal(int folder = -1, const std::string& name = {});

/// The signal that came, or 0.
int pending_signal();
/// Throws Error{interrupted} if a signal was received.
void throw_if_interrupted();

}  // namespace mxfp4
