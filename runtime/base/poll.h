// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_BASE_POLL_H_
#define RONDA_RUNTIME_BASE_POLL_H_

#include <poll.h>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

namespace ronda {

// Waits until one of `descriptors` is ready, but no longer than `longest`. Returns the number of ready descriptors,
// which is 0 after a timeout or a signal. Ignores negative descriptors.
//
// After an error the caller must stop, because further calls would return at once without any event.
// Errors: FAILED_PRECONDITION if the system does not allow the call; otherwise the system error. After an error no
// descriptor is ready.
absl::StatusOr<int> PollDescriptors(absl::Span<pollfd> descriptors, absl::Duration longest);

}  // namespace ronda

#endif  // RONDA_RUNTIME_BASE_POLL_H_
