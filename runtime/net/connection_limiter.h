// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_NET_CONNECTION_LIMITER_H_
#define RONDA_RUNTIME_NET_CONNECTION_LIMITER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "runtime/base/mutex.h"
#include "runtime/base/unique_fd.h"
#include "runtime/base/wake_pipe.h"

namespace ronda {

// Accepts connections and hands them over to a server. Limits the number of connections whose clients have not
// authenticated, so that such clients cannot use up this process's file descriptors.
//
// The server gets a connection once the client has sent its first bytes. At the limit, a new connection waits in the
// kernel's queue until an older connection expires, and then replaces it. Connections expire `silence` after their
// start if they have sent nothing, and `grace` after their start if they have not authenticated.
//
// Thread-safe. ConnectionLimiter owns a thread.
class ConnectionLimiter {
 public:
  enum class Until {
    kHandedOver,     // the limiter then forgets the connection
    kAuthenticated,  // the connection counts until Authenticated()
  };
  struct Options {
    size_t limit = 64;  // at least 1
    Until until = Until::kHandedOver;
    absl::Duration silence = absl::Milliseconds(100);
    absl::Duration grace = absl::Seconds(2);
    // Called on the limiter's thread with a non-blocking socket.
    std::function<void(UniqueFd connection)> hand_over;
  };

  // `listener` is a non-blocking, listening socket. Errors: RESOURCE_EXHAUSTED if no file descriptor is left.
  static absl::StatusOr<std::unique_ptr<ConnectionLimiter>> Create(UniqueFd listener, Options options);
  ~ConnectionLimiter() { Stop(); }
  ConnectionLimiter(const ConnectionLimiter&) = delete;
  ConnectionLimiter& operator=(const ConnectionLimiter&) = delete;

  // Starts the thread. Must be called exactly once.
  void Start();
  // Closes the listener and all connections that have not been handed over. The server gets no connection after Stop().
  void Stop();

  // The server must call this when the client at `address` ("127.0.0.1:4711", "[::1]:4711") has authenticated. The
  // client's connection then no longer counts towards the limit.
  void Authenticated(absl::string_view address);

  // Returns the number of connections so far, open or closed, that have not authenticated.
  int64_t unauthenticated() const { return accepted_.load() - authenticated_.load(); }

 private:
  struct Connection {
    UniqueFd socket;  // after the handover, a duplicate descriptor
    std::string address;
    absl::Time since;
    bool is_handed_over = false;
    bool has_event = false;  // in the last Wait(): bytes to read; after the handover: the peer has gone
  };
  using Connections = std::list<Connection>;

  ConnectionLimiter(UniqueFd listener, WakePipe wake, Options options)
      : options_(std::move(options)), listener_(std::move(listener)), wake_(std::move(wake)) {}

  void Run();
  // Waits for events, and records which connections have one. Returns whether the listener has new connections.
  absl::StatusOr<bool> Wait();
  void DropAuthenticated();
  // Handles the connection's event, if it has one. Returns whether the connection still counts towards the limit.
  bool IsKept(Connection& connection);
  bool HandOver(Connection& connection);
  void Accept();
  // Closes the connection that expires first.
  void ReplaceOne();
  // Called when this process has run out of file descriptors. Closes the connections that have sent nothing.
  void MakeRoomForDescriptors();
  // Returns when `connection` expires.
  absl::Time ReplaceableFrom(const Connection& connection) const;
  // Returns the earliest time at which the limiter can accept another connection.
  absl::Time NextRoom() const;

  const Options options_;
  UniqueFd listener_;
  const WakePipe wake_;

  // Only the limiter's thread uses the following members.
  Connections connections_;  // in the order of arrival
  absl::Time accept_from_ = absl::InfinitePast();

  Mutex mu_;
  std::set<std::string> news_ ABSL_GUARDED_BY(mu_);  // addresses of clients that have authenticated
  bool is_over_ ABSL_GUARDED_BY(mu_) = false;
  std::atomic<int64_t> accepted_{0};
  std::atomic<int64_t> authenticated_{0};

  std::thread thread_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_NET_CONNECTION_LIMITER_H_
