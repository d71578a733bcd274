// SPDX-License-Identifier: Apache-2.0

#include "programs/rondarun/output/output_sinks.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "runtime/base/poll.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

// A pipe that is ready accepts this many bytes without blocking (POSIX).
constexpr size_t kPiece = PIPE_BUF;

bool IsReady(int fd) {
  pollfd request{.fd = fd, .events = POLLOUT, .revents = 0};
  const absl::StatusOr<int> ready = PollDescriptors({&request, 1}, absl::ZeroDuration());
  // If poll() fails, the launcher is about to exit, and must print the reason, even if it has to wait for a slow
  // reader.
  return !ready.ok() || *ready == 1;
}

Medium MediumOf(int fd) { return isatty(fd) == 1 ? Medium::kTerminal : Medium::kFile; }

bool AreOneTerminal() {
  struct stat out = {};
  struct stat err = {};
  return MediumOf(STDOUT_FILENO) == Medium::kTerminal && MediumOf(STDERR_FILENO) == Medium::kTerminal &&
         fstat(STDOUT_FILENO, &out) == 0 && fstat(STDERR_FILENO, &err) == 0 && out.st_rdev == err.st_rdev;
}

std::string RankDirectory(const std::string& directory, RankId rank) { return absl::StrCat(directory, "/rank.", rank); }

// Returns 0, or the errno of the failed write.
int WriteAll(int fd, absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = write(fd, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno;
    bytes.remove_prefix(static_cast<size_t>(count));
  }
  return 0;
}

absl::StatusOr<UniqueFd> OpenFile(const std::string& path, int restart) {
  const int old_content = restart == 0 ? O_TRUNC : O_APPEND;
  UniqueFd file(open(path.c_str(), O_WRONLY | O_CREAT | old_content | O_CLOEXEC, 0666));
  if (!file.valid()) return absl::ErrnoToStatus(errno, absl::StrCat("cannot create ", path));
  if (restart == 0) return file;
  const int error = WriteAll(file.get(), absl::StrCat("\nrondarun: restart ", restart, "\n"));
  if (error != 0) return absl::ErrnoToStatus(error, absl::StrCat("cannot write to ", path));
  return file;
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

StandardOutput::StandardOutput()
    : media_({MediumOf(STDOUT_FILENO), MediumOf(STDERR_FILENO)}),
      one_terminal_(AreOneTerminal()),
      out_(STDOUT_FILENO),
      err_(STDERR_FILENO) {}

absl::StatusOr<OutputFiles> OutputFiles::Create(const std::string& directory, const std::vector<RankId>& ranks,
                                                int restart) {
  OutputFiles files;
  files.directory_ = directory;
  files.restart_ = restart;
  for (const RankId rank : ranks) RONDA_RETURN_IF_ERROR(files.Add(rank));
  return files;
}

absl::Status OutputFiles::Add(RankId rank) {
  if (directory_.empty()) return absl::OkStatus();
  const std::string rank_directory = RankDirectory(directory_, rank);
  std::error_code error;
  std::filesystem::create_directories(rank_directory, error);
  if (error) return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot create ", rank_directory));
  std::array<UniqueFd, kStreamCount>& of_rank = files_[rank];
  for (const Stream stream : {Stream::kStdout, Stream::kStderr}) {
    RONDA_ASSIGN_OR_RETURN(of_rank[static_cast<size_t>(stream)],
                           OpenFile(absl::StrCat(rank_directory, "/", Name(stream)), restart_));
  }
  return absl::OkStatus();
}

absl::Status OutputFiles::Write(RankId rank, Stream stream, absl::string_view bytes) {
  const auto of_rank = files_.find(rank);
  if (of_rank == files_.end()) return absl::OkStatus();
  UniqueFd& file = of_rank->second[static_cast<size_t>(stream)];
  if (!file.valid()) return absl::OkStatus();
  const int error = WriteAll(file.get(), bytes);
  if (error == 0) return absl::OkStatus();
  file.Reset();
  return absl::ErrnoToStatus(error,
                             absl::StrCat("cannot write to ", RankDirectory(directory_, rank), "/", Name(stream)));
}

}  // namespace ronda
