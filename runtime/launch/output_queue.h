#ifndef RONDA_RUNTIME_LAUNCH_OUTPUT_QUEUE_H_
#define RONDA_RUNTIME_LAUNCH_OUTPUT_QUEUE_H_

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace ronda {

// Bytes on their way to a descriptor that may be slow, such as a pipe to a pager.
//
// The descriptor stays in blocking mode, which belongs to everybody who shares it with us; each write is small enough
// not to block when poll() says that the descriptor is ready.
//
// Thread-compatible. Does not own the descriptor.
class OutputQueue {
 public:
  // `fd` may be -1 where nothing is ever written (tests).
  explicit OutputQueue(int fd) : fd_(fd) {}

  // After a failed Write, what is appended is dropped.
  void Append(absl::string_view bytes);

  // Writes what the descriptor takes without blocking.
  // Errors: UNAVAILABLE if the reader is gone, the system's for all else; reported once, and what is pending is
  // dropped.
  absl::Status Write();

  int fd() const { return fd_; }
  absl::string_view pending() const { return absl::string_view(bytes_).substr(written_); }

 private:
  const int fd_;
  std::string bytes_;
  size_t written_ = 0;  // of bytes_
  bool broken_ = false;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_OUTPUT_QUEUE_H_
