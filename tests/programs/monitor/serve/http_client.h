// SPDX-License-Identifier: Apache-2.0

// A simple HTTP client for tests, which sends and returns bytes unchanged.
#ifndef RONDA_TESTS_PROGRAMS_MONITOR_SERVE_HTTP_CLIENT_H_
#define RONDA_TESTS_PROGRAMS_MONITOR_SERVE_HTTP_CLIENT_H_

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "runtime/base/unique_fd.h"

namespace ronda::testing {

// Returns a connection to a loopback port, or an invalid descriptor if no process listens on it.
inline UniqueFd Connect(int port) {
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(static_cast<uint16_t>(port))};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) fd.Reset();
  return fd;
}

// Sends `text`. Returns whether all of it was sent.
inline bool Send(const UniqueFd& fd, absl::string_view text) {
  return send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
}

// Reads until the other side closes the connection, and returns the text.
inline std::string Receive(const UniqueFd& fd) {
  std::string text;
  char buffer[4096];
  for (ssize_t bytes; (bytes = read(fd.get(), buffer, sizeof(buffer))) > 0;) {
    text.append(buffer, static_cast<size_t>(bytes));
  }
  return text;
}

}  // namespace ronda::testing

#endif  // RONDA_TESTS_PROGRAMS_MONITOR_SERVE_HTTP_CLIENT_H_
