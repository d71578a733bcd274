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

// What the launcher's output goes to. Only a terminal can show a line that is redrawn in place.
enum class Medium { kFile, kTerminal };

// Bytes that are waiting to be written to a descriptor. The descriptor may be slow, for example a pipe to a pager.
//
// The descriptor stays in blocking mode, because all processes that share the descriptor share its mode. Each write is
// so small that it does not block if poll() reports the descriptor as ready.
//
// Thread-compatible. Does not own the descriptor.
class OutputQueue {
 public:
  // `fd` may be -1 if nothing is ever written (tests).
  explicit OutputQueue(int fd) : fd_(fd) {}

  // Appends bytes to write, or drops them after a Write has failed.
  void Append(absl::string_view bytes);

  // Writes as many bytes as the descriptor accepts without blocking. Errors: UNAVAILABLE if the reader is gone;
  // otherwise those of the operating system. An error is returned once, and then the pending bytes are dropped.
  absl::Status Write();

  int fd() const { return fd_; }
  absl::string_view pending() const { return absl::string_view(bytes_).substr(written_); }

 private:
  const int fd_;
  std::string bytes_;
  size_t written_ = 0;  // of bytes_
  bool broken_ = false;
};

// The launcher's own stdout and stderr, and whether each leads to a terminal.
//
// Thread-compatible.
class StandardOutput {
 public:
  StandardOutput();

  Medium medium(Stream stream) const { return media_[static_cast<size_t>(stream)]; }

  // Returns the queue for text that goes to `stream`. If both streams lead to the same terminal, they share a queue, so
  // that the text keeps its order.
  OutputQueue* queue(Stream stream) { return stream == Stream::kStdout || one_terminal_ ? &out_ : &err_; }

  bool empty() const { return out_.pending().empty() && err_.pending().empty(); }

 private:
  const std::array<Medium, kStreamCount> media_;
  const bool one_terminal_;
  OutputQueue out_;
  OutputQueue err_;
};

// Copies the ranks' output to files, for --output-filename: DIR/rank.N/stdout and DIR/rank.N/stderr. Each file has
// exactly the bytes that its rank printed. Files of an earlier job are overwritten. If the launcher starts a job again,
// the files keep the output of the earlier attempts, and a line "rondarun: restart 1" precedes that of the new one.
//
// Thread-compatible.
class OutputFiles {
 public:
  // Creates the directories and files. `restart` counts how often the launcher has started this job again; 0: it is the
  // first attempt. Errors: system errors, with the path.
  static absl::StatusOr<OutputFiles> Create(const std::string& directory, const std::vector<RankId>& ranks,
                                            int restart);

  // Creates the files of one more rank, if this object has files. Errors: those of Create.
  absl::Status Add(RankId rank);

  // Creates an object without files, whose Write does nothing.
  OutputFiles() = default;

  // Errors: system errors, with the path. After an error, the file receives no more bytes, and causes
  // no more errors.
  absl::Status Write(RankId rank, Stream stream, absl::string_view bytes);

 private:
  std::string directory_;
  int restart_ = 0;
  std::map<RankId, std::array<UniqueFd, kStreamCount>> files_;
};

}  // namespace ronda

#endif  // RONDA_PROGRAMS_RONDARUN_OUTPUT_OUTPUT_SINKS_H_
