#ifndef RONDA_RUNTIME_MONITOR_SERVE_HTTP_SERVER_H_
#define RONDA_RUNTIME_MONITOR_SERVE_HTTP_SERVER_H_

#include <memory>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/base/unique_fd.h"
#include "runtime/monitor/serve/http.h"
#include "runtime/net/endpoint.h"

namespace ronda {

// Answers connections to one TCP port for a site, on threads of its own.
//
// Nobody can keep it busy for long: it answers a fixed number of connections at once (others wait in the system's
// queue), and each has a fixed time, however slowly its other end reads or writes.
class HttpServer {
 public:
  struct Options {
    int connections = 8;
    absl::Duration patience = absl::Seconds(5);  // for a whole connection
  };

  // Listens there at once; port 0 is any. `site` must outlive the server.
  // Errors: ALREADY_EXISTS if another program has the port; the system's.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const Endpoint& endpoint, const HttpSite* site,
                                                           const Options& options);

  // Returns when the connections that are being answered have ended.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const { return port_; }

 private:
  HttpServer(UniqueFd listener, UniqueFd stop, int port, const HttpSite* site, const Options& options);

  void Work() const;

  const UniqueFd listener_;
  const UniqueFd stop_;  // readable: the server ends
  const int port_;
  const HttpSite* const site_;
  const absl::Duration patience_;
  std::vector<std::thread> threads_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_MONITOR_SERVE_HTTP_SERVER_H_
