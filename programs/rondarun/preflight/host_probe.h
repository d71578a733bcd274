// SPDX-License-Identifier: Apache-2.0

// The probe that rondarun --check runs on each host. It reports the facts about its host, and whether its host can
// reach other hosts.
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

// Echoes the first few bytes of every connection.
//
// Runs on its own thread, which the destructor ends.
class EchoServer {
 public:
  // Listens on the numeric address `address`, on a port that the system chooses. Errors: FAILED_PRECONDITION with the
  // reason.
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

// Connects from this host's address `from` to another host's address `to`, and expects the bytes that it sends to be
// echoed. Errors: UNAVAILABLE, and DEADLINE_EXCEEDED after `timeout`, with the reason.
absl::Status TryEcho(const std::string& from, const std::string& to, int port, absl::Duration timeout);

struct GpuDriver {
  std::string cuda_version;         // that it supports: "12.4"
  std::vector<std::string> models;  // of its devices
};

// Queries libcuda.so.1 about the GPU driver. Errors: NOT_FOUND if the library is not installed; FAILED_PRECONDITION if
// it does not work, or if the host has no devices.
absl::StatusOr<GpuDriver> FindGpuDriver();

// Returns the facts about this host, except its address.
HostFacts LocalFacts();

// If the first word on rondarun's command line is kProbeWord, rondarun runs as a probe.
inline constexpr char kProbeWord[] = "--probe";

// Runs a probe, which rondarun --check starts on every host as "rondarun --probe [INTERFACE]...". The probe prints the
// facts about its host, and then a line ".". Then it answers questions, one per line, until its input ends:
//
//   clock                  the time here: nanoseconds since 1970
//   connect ADDRESS PORT   whether this host can reach the probe there: "ok", or why not
//
// Returns the exit code.
int RunProbe(const std::vector<std::string>& interfaces);

}  // namespace ronda

#endif  // RONDA_PROGRAMS_RONDARUN_PREFLIGHT_HOST_PROBE_H_
