// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_CLIENT_THREAD_LIMITS_H_
#define RONDA_CLIENT_THREAD_LIMITS_H_

#include <string>

#include "absl/status/status.h"

namespace ronda {

// Starts a thread to check whether the process can start threads, because gRPC silently blocks if it cannot start its
// own.
// Errors: RESOURCE_EXHAUSTED with the thread limits and their values; PERMISSION_DENIED.
absl::Status CheckThreads();

// Returns an error text such as "cannot start a thread: Resource temporarily unavailable; the limits of threads are
// ..."
std::string DescribeThreadError(int error_number);

}  // namespace ronda

#endif  // RONDA_CLIENT_THREAD_LIMITS_H_
