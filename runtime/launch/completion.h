#ifndef RONDA_RUNTIME_LAUNCH_COMPLETION_H_
#define RONDA_RUNTIME_LAUNCH_COMPLETION_H_

#include "absl/status/status.h"
#include "runtime/launch/option.h"

namespace ronda {

// Ends the reading of a command line: works out what follows from several options together (which node of how many
// this is, how many ranks it starts, what settings they get), notes what has no effect in that company, and looks
// whether something is missing.
//
// Errors: INVALID_ARGUMENT that names the options, and what to write.
absl::Status Complete(CommandLineDraft* draft);

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_COMPLETION_H_
