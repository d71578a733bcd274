// The monitor's HTTP: what it answers to the bytes of one connection. The library that reads requests and writes
// replies (cpp-httplib) stays within http.cc.
#ifndef RONDA_RUNTIME_MONITOR_SERVE_HTTP_H_
#define RONDA_RUNTIME_MONITOR_SERVE_HTTP_H_

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "runtime/monitor/serve/access.h"

namespace ronda {

// The bytes of one connection. As read() and write(): the number of bytes, 0 at the end, -1 for an error, which ends
// the connection.
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

// Answers requests to GET pages. Thread-safe, as far as `pages` is.
class HttpSite {
 public:
  // A longer request is not read.
  static constexpr size_t kMostRequestBytes = 8192;

  // The page at a path; nullopt: there is none. Called for requests that `access` lets pass.
  using Pages = std::function<std::optional<Page>(absl::string_view path)>;

  HttpSite(Access access, Pages pages);
  ~HttpSite();
  HttpSite(const HttpSite&) = delete;
  HttpSite& operator=(const HttpSite&) = delete;

  // Reads one request, and writes the reply, after which the connection is to be closed.
  void Answer(ByteStream* stream) const;

 private:
  class Library;

  const std::unique_ptr<Library> library_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_MONITOR_SERVE_HTTP_H_
