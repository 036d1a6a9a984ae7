// SIGINT, SIGTERM and SIGHUP end every command within about a second.
#pragma once

#include <string>

namespace mxfp4 {

/// After this call SIGINT, SIGTERM and SIGHUP end the program with exit code 130, 143 or 129, at once. While an output
/// is being written, the program ends at the next throw_if_interrupted(), after a second at the latest. A second signal
/// always ends it at once. SIGINT and SIGHUP stay ignored if they were ignored at the start, as in a shell's background
/// jobs and under nohup. json: the message goes to stdout as an object.
void install_signal_handlers(bool json);

/// The program is writing an output while an object of this class exists.
class SignalsDeferred {
 public:
  SignalsDeferred();
  ~SignalsDeferred();
  SignalsDeferred(const SignalsDeferred&) = delete;
};

/// A name in an open folder.
struct NameAt {
  int folder = -1;
  std::string name = {};
};
/// After this call, if a signal ends the program at once, a file is removed, and its folder if it is then empty.
/// Without arguments, nothing is removed.
void remove_at_signal(const NameAt& file = {}, const NameAt& its_folder = {});

/// The received signal, or 0.
int pending_signal();
/// Throws Error{interrupted} if a signal was received.
void throw_if_interrupted();

}  // namespace mxfp4
