// SPDX-License-Identifier: Apache-2.0

// Reads an HTTP request from a connection to the monitor, and writes the reply. Only http.cc uses cpp-httplib, the
// library that reads requests and writes replies.
#ifndef RONDA_PROGRAMS_MONITOR_SERVE_HTTP_H_
#define RONDA_PROGRAMS_MONITOR_SERVE_HTTP_H_

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "programs/monitor/serve/access.h"

namespace ronda {

// A connection to a client, as a byte stream. Read and Write return the same as read() and write(): the number of
// bytes, 0 at the end, or -1 for an error, which ends the connection.
class ByteStream {
 public:
  virtual ~ByteStream() = default;
  virtual ssize_t Read(char* to, size_t at_most) = 0;
  virtual ssize_t Write(const char* from, size_t bytes) = 0;
};

struct Page {
  std::string type;  // "text/plain; charset=utf-8"
  std::string body;
  std::string policy;  // its Content-Security-Policy; empty: nothing may be loaded or run
};

// Answers GET requests for pages. Thread-safe if the function `pages` is thread-safe.
class HttpSite {
 public:
  // The maximum size of a request. Longer requests are not read.
  static constexpr size_t kMostRequestBytes = 8192;

  // Returns the page at a path, or nullopt if there is none. Called only for requests that `access` accepts.
  using Pages = std::function<std::optional<Page>(absl::string_view path)>;

  HttpSite(Access access, Pages pages);
  ~HttpSite();
  HttpSite(const HttpSite&) = delete;
  HttpSite& operator=(const HttpSite&) = delete;

  // Reads one request, and writes the reply. The caller must then close the connection.
  void Answer(ByteStream* stream) const;

 private:
  class Library;

  const std::unique_ptr<Library> library_;
};

}  // namespace ronda

#endif  // RONDA_PROGRAMS_MONITOR_SERVE_HTTP_H_
