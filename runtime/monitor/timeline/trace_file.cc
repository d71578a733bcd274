#include "runtime/monitor/timeline/trace_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

constexpr absl::string_view kOpening = "[\n";
constexpr absl::string_view kClosing = "\n]\n";

}  // namespace

absl::StatusOr<std::unique_ptr<TraceFile>> TraceFile::Create(const std::string& path, size_t most_bytes) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot create ", path));
  std::unique_ptr<TraceFile> file(new TraceFile(path, fd, most_bytes));
  RONDA_RETURN_IF_ERROR(file->Write(kOpening, ""));
  return file;
}

TraceFile::~TraceFile() { close(fd_); }

absl::Status TraceFile::Write(absl::string_view elements, absl::string_view end) {
  text_.clear();
  absl::StrAppend(&text_, elements, end, kClosing);
  if (size_ + text_.size() < reach_) text_.append(reach_ - size_ - text_.size(), ' ');
  size_t written = 0;
  while (written < text_.size()) {
    const ssize_t count =
        pwrite(fd_, text_.data() + written, text_.size() - written, static_cast<off_t>(size_ + written));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", path_));
    written += static_cast<size_t>(count);
  }
  reach_ = size_ + text_.size();
  size_ += elements.size();
  return absl::OkStatus();
}

std::string PathOfRank(absl::string_view path, RankId rank) {
  const size_t name = path.rfind('/') == absl::string_view::npos ? 0 : path.rfind('/') + 1;
  const size_t point = path.rfind('.');
  const size_t end = point == absl::string_view::npos || point <= name ? path.size() : point;
  return absl::StrCat(path.substr(0, end), ".rank", rank, path.substr(end));
}

}  // namespace ronda
