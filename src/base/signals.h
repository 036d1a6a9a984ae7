// SIGINT and SIGTERM end a run between two jobs.
#pragma once

namespace mxfp4 {

/// SIGINT and SIGTERM set a flag that is looked at between jobs.
void install_signal_handlers();
/// The signal that came, or 0.
int pending_signal();
/// Throws Error{interrupted} where a signal came.
void throw_if_interrupted();

}  // namespace mxfp4
