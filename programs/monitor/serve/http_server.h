// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_PROGRAMS_MONITOR_SERVE_HTTP_SERVER_H_
#define RONDA_PROGRAMS_MONITOR_SERVE_HTTP_SERVER_H_

#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "programs/monitor/serve/http.h"
#include "runtime/base/mutex.h"
#include "runtime/base/unique_fd.h"
#include "runtime/net/connection_limiter.h"
#include "runtime/net/endpoint.h"

namespace ronda {

// Answers all connections to a TCP port for a site, on the server's own threads.
//
// No client can keep the server busy for long: the server handles a fixed number of connections at once, while others
// wait, and ends a connection after a fixed time, however slowly the client reads or writes. A connection that sends
// nothing does not delay other connections.
class HttpServer {
 public:
  struct Options {
    int connections = 8;
    absl::Duration timeout = absl::Seconds(5);  // longest time for a whole connection
  };

  // Listens on `endpoint`, whose port may be 0. `site` must outlive the server. Errors: those of ListenAt and
  // ConnectionLimiter::Create.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const Endpoint& endpoint, const HttpSite* site,
                                                           const Options& options);

  // Stops the server, and waits until the current connections have ended.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const { return port_; }

 private:
  HttpServer(int port, const HttpSite* site, const Options& options) : port_(port), site_(site), options_(options) {}

  absl::Status Listen(UniqueFd listener);
  void Work();
  void Answer(UniqueFd connection) const;
  // Appends a connection to the queue, after waiting for space.
  void Push(UniqueFd connection);
  // Removes a connection from the queue, after waiting for one. Returns an invalid descriptor if the server is being
  // stopped.
  UniqueFd Pop();

  const int port_;
  const HttpSite* const site_;
  const Options options_;
  Mutex mu_;
  CondVar changed_;
  std::deque<UniqueFd> queue_ ABSL_GUARDED_BY(mu_);  // connections that wait to be answered
  bool is_over_ ABSL_GUARDED_BY(mu_) = false;
  std::unique_ptr<ConnectionLimiter> limiter_;  // constant once started
  std::vector<std::thread> threads_;
};

}  // namespace ronda

#endif  // RONDA_PROGRAMS_MONITOR_SERVE_HTTP_SERVER_H_
