// SPDX-License-Identifier: Apache-2.0

#include "programs/monitor/serve/http.h"

#include <httplib.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ronda {
namespace {

constexpr char kText[] = "text/plain; charset=utf-8";
constexpr char kNothingAllowed[] = "default-src 'none'; frame-ancestors 'none'";

// The stream from which cpp-httplib reads a request, and to which it writes the reply. Limits the number of bytes that
// can be read.
class LibraryStream final : public httplib::Stream {
 public:
  explicit LibraryStream(ByteStream* stream) : stream_(stream) {}

  // The streams of cpp-httplib itself wait in is_readable() and is_writable(). This one instead waits in the next Read
  // or Write, with the same time limit.
  bool is_readable() const override { return true; }
  bool is_writable() const override { return true; }

  // The library reads byte by byte, so this function reads larger pieces into a buffer.
  ssize_t read(char* to, size_t at_most) override {
    if (at_ == buffer_.size()) {
      if (total_ == HttpSite::kMostRequestBytes) return -1;
      buffer_.resize(HttpSite::kMostRequestBytes - total_);
      const ssize_t bytes = stream_->Read(buffer_.data(), buffer_.size());
      buffer_.resize(bytes > 0 ? static_cast<size_t>(bytes) : 0);
      at_ = 0;
      if (bytes <= 0) return bytes;
      total_ += buffer_.size();
    }
    const size_t bytes = std::min(at_most, buffer_.size() - at_);
    buffer_.copy(to, bytes, at_);
    at_ += bytes;
    return static_cast<ssize_t>(bytes);
  }

  ssize_t write(const char* from, size_t bytes) override { return stream_->Write(from, bytes); }

  void get_remote_ip_and_port(std::string&, int&) const override {}
  void get_local_ip_and_port(std::string&, int&) const override {}
  socket_t socket() const override { return INVALID_SOCKET; }

 private:
  ByteStream* const stream_;
  std::string buffer_;
  size_t at_ = 0;
  size_t total_ = 0;
};

HeaderValues ValuesOf(const httplib::Request& request, const std::string& name) {
  HeaderValues values;
  const auto [begin, end] = request.headers.equal_range(name);
  for (auto header = begin; header != end; ++header) values.push_back(header->second);
  return values;
}

void Refuse(int status, const std::string& text, httplib::Response* response) {
  response->status = status;
  response->set_content(absl::StrCat(text, "\n"), kText);
}

}  // namespace

class HttpSite::Library final : private httplib::Server {
 public:
  Library(Access access, Pages pages) : access_(std::move(access)), pages_(std::move(pages)) {
    set_default_headers({{"Cache-Control", "no-store"},
                         {"Cross-Origin-Resource-Policy", "same-origin"},
                         {"Referrer-Policy", "no-referrer"},
                         {"X-Content-Type-Options", "nosniff"},
                         {"X-Frame-Options", "DENY"}});
    // This handler runs before anything that cpp-httplib does itself, such as reading a body.
    set_pre_routing_handler([this](const httplib::Request& request, httplib::Response& response) {
      Handle(request, &response);
      return HandlerResponse::Handled;
    });
  }

  void Answer(ByteStream* stream) {
    LibraryStream library_stream(stream);
    bool closed = false;
    process_request(library_stream, /*close_connection=*/true, closed, [](httplib::Request& request) {
      // Pages are sent whole and uncompressed: they are small, and most readers are on this host.
      request.ranges.clear();
      request.headers.erase("Accept-Encoding");
    });
  }

 private:
  void Handle(const httplib::Request& request, httplib::Response* response) const {
    response->set_header("Content-Security-Policy", kNothingAllowed);
    switch (access_.Judge(ValuesOf(request, "Host"), ValuesOf(request, "Authorization"))) {
      case Access::Verdict::kWrongHost:
        return Refuse(403, "this is not the name of the monitor: ask for the address that ronda-monitor has printed",
                      response);
      case Access::Verdict::kNoToken:
        Challenge(response);
        return Refuse(401,
                      "the token is missing: send \"Authorization: Bearer TOKEN\", with the token from the file that "
                      "ronda-monitor has named; in a browser, give the token as the password",
                      response);
      case Access::Verdict::kWrongToken:
        Challenge(response);
        return Refuse(401, "the token is wrong: take it from the file that ronda-monitor has named", response);
      case Access::Verdict::kWelcome:
        break;
    }
    if (request.method != "GET") {
      response->set_header("Allow", "GET");
      return Refuse(405, "the monitor only answers GET: it changes nothing", response);
    }
    const std::optional<Page> page = pages_(request.path);
    if (!page) return Refuse(404, "there is no such page: there are /, /metrics and /api/v1/job", response);
    if (!page->policy.empty()) {
      response->headers.erase("Content-Security-Policy");
      response->set_header("Content-Security-Policy", page->policy);
    }
    response->status = 200;
    response->set_content(page->body, page->type);
  }

  // Adds headers that make a browser ask the user for a password.
  static void Challenge(httplib::Response* response) {
    response->set_header("WWW-Authenticate", "Basic realm=\"ronda-monitor\", charset=\"UTF-8\"");
    response->set_header("WWW-Authenticate", "Bearer realm=\"ronda-monitor\"");
  }

  const Access access_;
  const Pages pages_;
};

HttpSite::HttpSite(Access access, Pages pages)
    : library_(std::make_unique<Library>(std::move(access), std::move(pages))) {}

HttpSite::~HttpSite() = default;

void HttpSite::Answer(ByteStream* stream) const { library_->Answer(stream); }

}  // namespace ronda
