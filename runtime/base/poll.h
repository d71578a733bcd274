// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_BASE_POLL_H_
#define RONDA_RUNTIME_BASE_POLL_H_

#include <poll.h>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

namespace ronda {

// Waits until one of `descriptors` is ready, for `longest` at most. Returns the number of ready descriptors. The result
// is 0 if none is ready after `longest`, or if a signal has interrupted the wait. Ignores negative descriptors.
//
// After an error the caller must stop. If the caller went on, its loop would run without a pause, and would see no
// events.
// Errors: FAILED_PRECONDITION if the system refuses the call; other errors of the system. After an error no descriptor
// is ready.
absl::StatusOr<int> PollDescriptors(absl::Span<pollfd> descriptors, absl::Duration longest);

}  // namespace ronda

#endif  // RONDA_RUNTIME_BASE_POLL_H_
