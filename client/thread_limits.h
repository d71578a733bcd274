// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_CLIENT_THREAD_LIMITS_H_
#define RONDA_CLIENT_THREAD_LIMITS_H_

#include <string>

#include "absl/status/status.h"

namespace ronda {

// Starts a thread to check that it is possible, because gRPC waits silently if its own threads cannot start.
// Errors: RESOURCE_EXHAUSTED with the limits of threads and their values; PERMISSION_DENIED.
absl::Status CheckThreads();

// "cannot start a thread: Resource temporarily unavailable; the limits of threads are ..."
std::string DescribeThreadError(int error_number);

}  // namespace ronda

#endif  // RONDA_CLIENT_THREAD_LIMITS_H_
