// SPDX-License-Identifier: Apache-2.0

#include "runtime/base/poll.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>

#include "absl/strings/str_cat.h"

namespace ronda {

absl::StatusOr<int> PollDescriptors(absl::Span<pollfd> descriptors, absl::Duration longest) {
  const timespec limit = absl::ToTimespec(std::max(longest, absl::ZeroDuration()));
  const bool is_limited = longest != absl::InfiniteDuration();
  const int ready = ppoll(descriptors.data(), descriptors.size(), is_limited ? &limit : nullptr, nullptr);
  if (ready >= 0) return ready;
  const int error = errno;
  for (pollfd& descriptor : descriptors) descriptor.revents = 0;
  if (error == EINTR) return 0;
  // A container's security profile can block ppoll.
  if (error == EPERM || error == EACCES || error == ENOSYS) {
    return absl::FailedPreconditionError(absl::StrCat("the system refuses ppoll (", strerror(error),
                                                      "): let the profile of the container allow it (docker run "
                                                      "--security-opt seccomp=FILE)"));
  }
  return absl::ErrnoToStatus(error, absl::StrCat("cannot wait for ", descriptors.size(), " descriptors"));
}

}  // namespace ronda
