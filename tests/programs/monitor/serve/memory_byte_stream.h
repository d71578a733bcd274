// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_TESTS_PROGRAMS_MONITOR_SERVE_MEMORY_BYTE_STREAM_H_
#define RONDA_TESTS_PROGRAMS_MONITOR_SERVE_MEMORY_BYTE_STREAM_H_

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "programs/monitor/serve/http.h"

namespace ronda::testing {

// A connection whose other end has sent `request`, and sends nothing more. Each Read returns at most `piece` bytes.
class MemoryByteStream final : public ByteStream {
 public:
  explicit MemoryByteStream(absl::string_view request, size_t piece = 1 << 16) : rest_(request), piece_(piece) {}

  ssize_t Read(char* to, size_t at_most) override {
    const size_t bytes = rest_.copy(to, std::min(at_most, piece_));
    rest_.remove_prefix(bytes);
    return static_cast<ssize_t>(bytes);
  }
  ssize_t Write(const char* from, size_t bytes) override {
    written_.append(from, bytes);
    return static_cast<ssize_t>(bytes);
  }

  size_t unread() const { return rest_.size(); }
  const std::string& written() const { return written_; }

 private:
  absl::string_view rest_;
  const size_t piece_;
  std::string written_;
};

}  // namespace ronda::testing

#endif  // RONDA_TESTS_PROGRAMS_MONITOR_SERVE_MEMORY_BYTE_STREAM_H_
