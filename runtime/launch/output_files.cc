#include "runtime/launch/output_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

std::string RankDirectory(const std::string& directory, RankId rank) { return absl::StrCat(directory, "/rank.", rank); }

absl::StatusOr<UniqueFd> CreateFile(const std::string& path) {
  UniqueFd file(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!file.valid()) return absl::ErrnoToStatus(errno, absl::StrCat("cannot create ", path));
  return file;
}

// Returns 0, or the errno of what failed.
int WriteAll(int fd, absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = write(fd, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno;
    bytes.remove_prefix(static_cast<size_t>(count));
  }
  return 0;
}

}  // namespace

absl::StatusOr<OutputFiles> OutputFiles::Create(const std::string& directory, const std::vector<RankId>& ranks) {
  OutputFiles files;
  files.directory_ = directory;
  for (const RankId rank : ranks) {
    const std::string rank_directory = RankDirectory(directory, rank);
    std::error_code error;
    std::filesystem::create_directories(rank_directory, error);
    if (error) return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot create ", rank_directory));
    std::array<UniqueFd, kStreamCount>& of_rank = files.files_[rank];
    for (const Stream stream : {Stream::kStdout, Stream::kStderr}) {
      RONDA_ASSIGN_OR_RETURN(of_rank[static_cast<size_t>(stream)],
                             CreateFile(absl::StrCat(rank_directory, "/", Name(stream))));
    }
  }
  return files;
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
