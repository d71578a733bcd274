#ifndef RONDA_RUNTIME_CONTROL_RENDEZVOUS_ENDPOINT_H_
#define RONDA_RUNTIME_CONTROL_RENDEZVOUS_ENDPOINT_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ronda {

enum class AddressFamily { kIPv4, kIPv6 };

// A TCP port on one address.
struct Endpoint {
  std::string host;                             // as the user wrote it, for messages
  AddressFamily family = AddressFamily::kIPv4;  // of `address`
  std::string address;                          // numeric: "127.0.0.1", "::1"
  int port = 0;                                 // 0 lets the system choose, where a server listens
  bool loopback = false;                        // only processes of this host can reach it
};

// "127.0.0.1:29500", "[::1]:29500"
std::string NumericText(const Endpoint& endpoint);

// "localhost:29500", "[::1]:29500": as the user wrote it.
std::string ToString(const Endpoint& endpoint);

// Finds the address of `host`, which is a name, an IPv4 address or an IPv6 address.
// Errors: INVALID_ARGUMENT if the address stands for all interfaces; NOT_FOUND if there is no such host.
absl::StatusOr<Endpoint> ResolveEndpoint(absl::string_view host, int port);

// Beyond this host, joining a job takes a secret.
// Errors: FAILED_PRECONDITION if `secret` is empty and the endpoint is not on loopback.
absl::Status CheckSecret(const Endpoint& endpoint, absl::string_view secret);

// Whether a server could listen there now.
// Errors: ALREADY_EXISTS if another program holds the port; FAILED_PRECONDITION for any other reason.
absl::Status CheckCanListen(const Endpoint& endpoint);

}  // namespace ronda

#endif  // RONDA_RUNTIME_CONTROL_RENDEZVOUS_ENDPOINT_H_
