#ifndef RONDA_RUNTIME_LAUNCH_THIS_HOSTS_CORES_H_
#define RONDA_RUNTIME_LAUNCH_THIS_HOSTS_CORES_H_

#include "absl/status/statusor.h"
#include "runtime/launch/binding.h"

namespace ronda {

// The cores that this process may run on, as hwloc finds them.
// Errors: INTERNAL if it cannot.
absl::StatusOr<HostCores> ThisHostsCores();

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_THIS_HOSTS_CORES_H_
