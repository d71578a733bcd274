// SPDX-License-Identifier: Apache-2.0

// The destinations of a job's output: the launcher's standard streams, and files.
#ifndef RONDA_PROGRAMS_RONDARUN_OUTPUT_OUTPUT_SINKS_H_
#define RONDA_PROGRAMS_RONDARUN_OUTPUT_OUTPUT_SINKS_H_

#include <array>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "programs/options/launch_options.h"
#include "runtime/base/types.h"
#include "runtime/base/unique_fd.h"

namespace ronda {

// The kind of file to which the launcher's output goes. Only a terminal can show a line that is redrawn in place.
enum class Medium { kFile, kTerminal };

// Bytes that wait to be written to a descriptor. The descriptor may be slow, such as a pipe to a pager.
//
// The descriptor stays in blocking mode, because all processes that share the descriptor share its mode. Each write is
// so small that it does not block when poll() reports that the descriptor is ready.
//
// Thread-compatible. Does not own the descriptor.
class OutputQueue {
 public:
  // `fd` may be -1 if nothing is ever written (tests).
  explicit OutputQueue(int fd) : fd_(fd) {}

  // After Write has failed, Append drops the bytes.
  void Append(absl::string_view bytes);

  // Writes as many bytes as the descriptor takes without blocking.
  // Errors: UNAVAILABLE if the reader is gone; otherwise the operating system's error. An error is returned once, and
  // then the pending bytes are dropped.
  absl::Status Write();

  int fd() const { return fd_; }
  absl::string_view pending() const { return absl::string_view(bytes_).substr(written_); }

 private:
  const int fd_;
  std::string bytes_;
  size_t written_ = 0;  // of bytes_
  bool broken_ = false;
};

// The launcher's own stdout and stderr, and whether they lead to a terminal.
//
// Thread-compatible.
class StandardOutput {
 public:
  StandardOutput();

  Medium medium(Stream stream) const { return media_[static_cast<size_t>(stream)]; }

  // Returns the queue for the text that goes to `stream`. If both streams lead to the same terminal, they have the same
  // queue, so that the text keeps its order.
  OutputQueue* queue(Stream stream) { return stream == Stream::kStdout || one_terminal_ ? &out_ : &err_; }

  bool empty() const { return out_.pending().empty() && err_.pending().empty(); }

 private:
  const std::array<Medium, kStreamCount> media_;
  const bool one_terminal_;
  OutputQueue out_;
  OutputQueue err_;
};

// Copies the output of the ranks into files, for --output-filename: DIR/rank.N/stdout and DIR/rank.N/stderr. A file has
// exactly the bytes that its rank printed. Files of an earlier job are replaced.
//
// Thread-compatible.
class OutputFiles {
 public:
  // Creates the directories and files.
  // Errors: the operating system's error, with the path.
  static absl::StatusOr<OutputFiles> Create(const std::string& directory, const std::vector<RankId>& ranks);

  // Creates the files of one more rank, if this object has files. Errors: those of Create.
  absl::Status Add(RankId rank);

  // Makes an object without files, whose Write does nothing.
  OutputFiles() = default;

  // Errors: the operating system's error, with the path. After an error, the file gets no more bytes, and no more
  // errors about it are returned.
  absl::Status Write(RankId rank, Stream stream, absl::string_view bytes);

 private:
  std::string directory_;
  std::map<RankId, std::array<UniqueFd, kStreamCount>> files_;
};

}  // namespace ronda

#endif  // RONDA_PROGRAMS_RONDARUN_OUTPUT_OUTPUT_SINKS_H_
