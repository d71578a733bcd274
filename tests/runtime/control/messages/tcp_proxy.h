// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_TESTS_RUNTIME_CONTROL_MESSAGES_TCP_PROXY_H_
#define RONDA_TESTS_RUNTIME_CONTROL_MESSAGES_TCP_PROXY_H_

#include <atomic>
#include <thread>
#include <vector>

namespace ronda::testing {

// Forwards connections to port() to another port of 127.0.0.1. A test can cut these connections.
//
// Thread-safe. The destructor closes all connections.
class TcpProxy {
 public:
  explicit TcpProxy(int target_port);
  ~TcpProxy();

  int port() const { return port_; }

  // Stops all data in both directions. Connections stay open.
  void Freeze() { frozen_ = true; }

  // Closes all connections, and accepts no more.
  void Cut();

 private:
  struct Connection {
    int client;
    int target;
  };

  void Run();
  void Accept();
  // Forwards the bytes that have arrived. Returns whether the connection still works.
  bool Forward(int from, int to) const;

  const int target_port_;
  int listener_ = -1;
  int port_ = 0;
  int stop_event_ = -1;
  std::atomic<bool> frozen_{false};
  std::vector<Connection> connections_;  // only thread_ uses them
  std::thread thread_;
};

}  // namespace ronda::testing

#endif  // RONDA_TESTS_RUNTIME_CONTROL_MESSAGES_TCP_PROXY_H_
