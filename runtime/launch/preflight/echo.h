// Whether hosts reach each other: a server that sends back the bytes it gets, and a client that tries it.
#ifndef RONDA_RUNTIME_LAUNCH_PREFLIGHT_ECHO_H_
#define RONDA_RUNTIME_LAUNCH_PREFLIGHT_ECHO_H_

#include <memory>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/base/unique_fd.h"

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

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_PREFLIGHT_ECHO_H_
