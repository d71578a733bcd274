// The facts that a host tells rondarun --check.
#ifndef RONDA_RUNTIME_LAUNCH_PREFLIGHT_HOST_PROBE_H_
#define RONDA_RUNTIME_LAUNCH_PREFLIGHT_HOST_PROBE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/launch/preflight/preflight_report.h"

namespace ronda {

struct GpuDriver {
  std::string cuda_version;         // that it supports: "12.4"
  std::vector<std::string> models;  // of its devices
};

// Asks libcuda.so.1.
// Errors: NOT_FOUND if it is not installed; FAILED_PRECONDITION if it does not work, or there is no device.
absl::StatusOr<GpuDriver> FindGpuDriver();

// The facts of this host, but for its address.
HostFacts LocalFacts();

// The word, before any other, that makes rondarun a probe.
inline constexpr char kProbeWord[] = "--probe";

// The program that rondarun --check starts on every host, as "rondarun --probe [INTERFACE]...", and talks with. It
// prints the host's facts and a line ".", and then answers questions, a line each, until its input ends.
//
//   clock                  the time here: nanoseconds since 1970
//   connect ADDRESS PORT   whether the probe there can be reached from here: "ok", or why not
//
// Returns the exit code.
int RunProbe(const std::vector<std::string>& interfaces);

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_PREFLIGHT_HOST_PROBE_H_
