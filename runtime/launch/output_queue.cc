#include "runtime/launch/output_queue.h"

#include <limits.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace ronda {
namespace {

// A pipe that is ready takes this much without blocking (POSIX).
constexpr size_t kPiece = PIPE_BUF;

bool IsReady(int fd) {
  pollfd request{.fd = fd, .events = POLLOUT, .revents = 0};
  return poll(&request, 1, 0) == 1;
}

}  // namespace

void OutputQueue::Append(absl::string_view bytes) {
  if (!broken_) bytes_.append(bytes.data(), bytes.size());
}

absl::Status OutputQueue::Write() {
  while (!pending().empty() && IsReady(fd_)) {
    const ssize_t count = write(fd_, pending().data(), std::min(pending().size(), kPiece));
    if (count >= 0) {
      written_ += static_cast<size_t>(count);
    } else if (errno == EAGAIN || errno == EINTR) {
      break;
    } else {
      const int error = errno;
      broken_ = true;
      bytes_.clear();
      written_ = 0;
      return absl::Status(error == EPIPE ? absl::StatusCode::kUnavailable : absl::ErrnoToStatusCode(error),
                          strerror(error));
    }
  }
  bytes_.erase(0, written_);
  written_ = 0;
  return absl::OkStatus();
}

}  // namespace ronda
