// The probe of rondarun --check on a host: the facts of the host, and whether other hosts can be reached from it.
#ifndef RONDA_RUNTIME_LAUNCH_PREFLIGHT_HOST_PROBE_H_
#define RONDA_RUNTIME_LAUNCH_PREFLIGHT_HOST_PROBE_H_

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "runtime/base/unique_fd.h"
#include "runtime/launch/preflight/preflight_report.h"

namespace ronda {

// Sends back, on every connection, the first few bytes that come. It knows nothing and keeps nothing.
//
// Has a thread of its own, which the destructor ends.
class EchoServer {
 public:
  // Listens on `address`, which is numeric, on a port that the system chooses.
  // Errors: FAILED_PRECONDITION that says why not.
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

// Connects from the one address of this host to the other's, and expects back the bytes that it sends.
// Errors: UNAVAILABLE, DEADLINE_EXCEEDED after `patience`, that say why.
absl::Status TryEcho(const std::string& from, const std::string& to, int port, absl::Duration patience);

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
