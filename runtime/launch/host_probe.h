#ifndef RONDA_RUNTIME_LAUNCH_HOST_PROBE_H_
#define RONDA_RUNTIME_LAUNCH_HOST_PROBE_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "runtime/launch/host_facts.h"

namespace ronda {

// What this host says of itself, but for its address.
HostFacts LocalFacts();

// "Open MPI 4.1.4" or "MPICH 4.0.2" of what mpirun prints when asked for its version; its first line if that is
// neither.
std::string ShortMpiVersion(absl::string_view text);

// The word, before any other, that makes rondarun a probe.
inline constexpr char kProbeWord[] = "--probe";

// What rondarun --check starts on every host, as "rondarun --probe [INTERFACE]...", and talks with: prints the host's
// facts and a line ".", and then answers questions, a line each, until its input ends.
//
//   clock                  the time here: nanoseconds since 1970
//   connect ADDRESS PORT   whether the probe there can be reached from here: "ok", or why not
//
// Returns the exit code.
int RunProbe(const std::vector<std::string>& interfaces);

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_HOST_PROBE_H_
