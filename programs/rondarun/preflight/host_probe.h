// SPDX-License-Identifier: Apache-2.0

// The probe of rondarun --check on a host. It reports the host's facts, and whether the host can reach other hosts.
#ifndef RONDA_PROGRAMS_RONDARUN_PREFLIGHT_HOST_PROBE_H_
#define RONDA_PROGRAMS_RONDARUN_PREFLIGHT_HOST_PROBE_H_

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "programs/rondarun/preflight/preflight_report.h"
#include "runtime/base/unique_fd.h"

namespace ronda {

// Sends back the first few bytes of every connection. It stores nothing.
//
// Has its own thread, which the destructor ends.
class EchoServer {
 public:
  // Listens on `address`, which is numeric, on a port that the system chooses.
  // Errors: FAILED_PRECONDITION with the reason.
  static absl::StatusOr<std::unique_ptr<EchoServer>> Listen(const std::string& address);

  ~EchoServer();
  EchoServer(const EchoServer&) = delete;
  EchoServer& operator=(const EchoServer&) = delete;

  int port() const { return port_; }

 private:
  EchoServer(UniqueFd listening, int port);

  void Serve() const;

  const UniqueFd listening_;
  const int port_;
  std::thread thread_;
};

// Connects from address `from` of this host to address `to` of another host, and expects to receive the bytes that it
// sends.
// Errors: UNAVAILABLE, and DEADLINE_EXCEEDED after `timeout`, with the reason.
absl::Status TryEcho(const std::string& from, const std::string& to, int port, absl::Duration timeout);

struct GpuDriver {
  std::string cuda_version;         // that it supports: "12.4"
  std::vector<std::string> models;  // of its devices
};

// Asks libcuda.so.1.
// Errors: NOT_FOUND if the library is not installed; FAILED_PRECONDITION if it does not work, or if the host has no
// device.
absl::StatusOr<GpuDriver> FindGpuDriver();

// Returns the facts of this host, except for its address.
HostFacts LocalFacts();

// If this is the first word on the command line, rondarun runs as a probe.
inline constexpr char kProbeWord[] = "--probe";

// The probe program, which rondarun --check starts on every host as "rondarun --probe [INTERFACE]...". It prints the
// host's facts and a line ".". Then it answers questions, one per line, until its input ends.
//
//   clock                  the time here: nanoseconds since 1970
//   connect ADDRESS PORT   whether this host can reach the probe there: "ok", or why not
//
// Returns the exit code.
int RunProbe(const std::vector<std::string>& interfaces);

}  // namespace ronda

#endif  // RONDA_PROGRAMS_RONDARUN_PREFLIGHT_HOST_PROBE_H_
