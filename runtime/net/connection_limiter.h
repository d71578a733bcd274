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

// Accepts the connections to a socket, and passes them on to a server. The limiter bounds the number of connections
// whose clients have not authenticated, so that such clients cannot use up the descriptors of this process.
//
// The server gets a connection after the client has sent its first bytes. At the limit, a new connection replaces the
// connection whose time ends first. A connection that has sent nothing has the time `silence`, and a connection that
// has not authenticated has the time `grace`. Until the time of an older connection ends, the new connection waits in
// the system's queue.
//
// Thread-safe. ConnectionLimiter owns a thread.
class ConnectionLimiter {
 public:
  enum class Until {
    kHandedOver,     // from then on the server limits the connection
    kAuthenticated,  // a connection is limited until Authenticated
  };
  struct Options {
    size_t limit = 64;  // at least 1
    Until until = Until::kHandedOver;
    absl::Duration silence = absl::Milliseconds(100);
    absl::Duration grace = absl::Seconds(2);
    // The limiter's thread calls hand_over with a socket that does not block.
    std::function<void(UniqueFd connection)> hand_over;
  };

  // `listener` is a listening socket that does not block. Errors: RESOURCE_EXHAUSTED if no descriptor is left.
  static absl::StatusOr<std::unique_ptr<ConnectionLimiter>> Create(UniqueFd listener, Options options);
  ~ConnectionLimiter() { Stop(); }
  ConnectionLimiter(const ConnectionLimiter&) = delete;
  ConnectionLimiter& operator=(const ConnectionLimiter&) = delete;

  // Starts the thread. The caller must call Start exactly once.
  void Start();
  // Closes the listener and the connections that the server does not have yet. After Stop the server gets no
  // connection.
  void Stop();

  // Must be called when the client at `address` ("127.0.0.1:4711", "[::1]:4711") has authenticated. After this call,
  // the connection of this client does not count towards the limit.
  void Authenticated(absl::string_view address);

  // Returns how many connections so far have not authenticated, including closed connections.
  int64_t unauthenticated() const { return accepted_.load() - authenticated_.load(); }

 private:
  struct Connection {
    UniqueFd socket;  // once it is handed over, a second descriptor of it
    std::string address;
    absl::Time since;
    bool is_handed_over = false;
    bool has_event = false;  // in the last Wait: bytes, or the end once it is handed over
  };
  using Connections = std::list<Connection>;

  ConnectionLimiter(UniqueFd listener, WakePipe wake, Options options)
      : options_(std::move(options)), listener_(std::move(listener)), wake_(std::move(wake)) {}

  void Run();
  // Waits for events, and records the events of connections. Returns whether new connections wait at the listener.
  absl::StatusOr<bool> Wait();
  void DropAuthenticated();
  // Handles the event of a connection, if any. Returns whether the connection still counts towards the limit.
  bool IsKept(Connection& connection);
  bool HandOver(Connection& connection);
  void Accept();
  // Closes the connection whose time ends first.
  void ReplaceOne();
  // Closes the connections that have sent nothing. Must be called when this process has no descriptor left.
  void MakeRoomForDescriptors();
  // Returns the time from which another connection may replace `connection`.
  absl::Time ReplaceableFrom(const Connection& connection) const;
  // Returns the time at which the limiter can accept the next connection.
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
