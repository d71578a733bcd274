// SPDX-License-Identifier: Apache-2.0

#include "runtime/shm/shm_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/base/clock.h"

namespace ronda {
namespace {

// A size below a page means an errno (see Refuse) and no content.
constexpr size_t kLargestRefusal = 4095;

absl::Status FileError(absl::string_view what, const std::string& path, int error_number) {
  return absl::ErrnoToStatus(error_number, absl::StrCat("cannot ", what, " ", path));
}

absl::StatusOr<std::shared_ptr<ShmMapping>> MapOrError(size_t bytes, int flags, int fd) {
  void* const base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
  if (base == MAP_FAILED) {
    return absl::ResourceExhaustedError(absl::StrCat("cannot map ", bytes, " bytes: ", std::strerror(errno)));
  }
  // If no descriptor is free, the job still runs, but no other process sees its recorders.
  return std::make_shared<ShmMapping>(base, bytes, UniqueFd(fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0)));
}

// Writes a file of `bytes` zero bytes. Returns 0, or an errno.
int WriteZeros(int fd, size_t bytes) {
  const std::vector<char> zeros(size_t{1} << 16);
  for (size_t at = 0; at < bytes;) {
    const ssize_t count = pwrite(fd, zeros.data(), std::min(zeros.size(), bytes - at), static_cast<off_t>(at));
    if (count < 0 && errno != EINTR) return errno;
    if (count > 0) at += static_cast<size_t>(count);
  }
  return 0;
}

// Beyond the limit the system sends SIGXFSZ.
bool IsWithinFileLimit(size_t bytes) {
  rlimit limit = {};
  return getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || bytes <= limit.rlim_cur;
}

int TryToAllocate(int fd, size_t bytes) {
  if (!IsWithinFileLimit(bytes)) return EFBIG;
  int error_number;
  do {
    error_number = posix_fallocate(fd, 0, static_cast<off_t>(bytes));
  } while (error_number == EINTR);
  // The call may be refused by a container's profile, and some systems do not have it.
  if (error_number == EPERM || error_number == ENOSYS) return WriteZeros(fd, bytes);
  return error_number;
}

absl::Status NotOurs(const std::string& path, const struct stat& info) {
  return absl::PermissionDeniedError(
      absl::StrFormat("%s belongs to user %d and has mode %04o and %d links, but the ranks of this job are user %d's, "
                      "whose file has mode 0600 and one link: another user's job has the same id, or another user "
                      "wants to take part; give this job another id (RONDA_JOB_ID), or remove the file",
                      path, info.st_uid, info.st_mode & 07777, info.st_nlink, geteuid()));
}

absl::Status CannotOpen(const std::string& path, int error_number) {
  struct stat info;
  const bool is_there = lstat(path.c_str(), &info) == 0;
  if (is_there && error_number == EACCES && info.st_uid != geteuid()) return NotOurs(path, info);
  const absl::Status error = FileError("open", path, error_number);
  return is_there || absl::IsNotFound(error) ? error : absl::NotFoundError(error.message());
}

}  // namespace

absl::StatusOr<std::shared_ptr<ShmMapping>> ShmMapping::Anonymous(size_t bytes) {
  return MapOrError(bytes, MAP_SHARED | MAP_ANONYMOUS, -1);
}

ShmMapping::~ShmMapping() { munmap(base_, bytes_); }

absl::StatusOr<ShmFile> ShmFile::Create(const std::string& path) {
  UniqueFd fd(open(path.c_str(), O_CREAT | O_EXCL | O_RDWR | O_NOFOLLOW | O_CLOEXEC, S_IRUSR | S_IWUSR));
  if (!fd.valid()) return FileError("create", path, errno);
  flock(fd.get(), LOCK_SH);  // until this process ends: HasCreator()
  return ShmFile(path, std::move(fd));
}

absl::StatusOr<ShmFile> ShmFile::Open(const std::string& path) {
  UniqueFd fd(open(path.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!fd.valid()) return CannotOpen(path, errno);
  // Any process that can write to the file can act as a rank of the job. So the file must belong to this user and be
  // closed to all others.
  struct stat info;
  if (fstat(fd.get(), &info) != 0) return FileError("look at", path, errno);
  const bool is_ours =
      S_ISREG(info.st_mode) && info.st_uid == geteuid() && (info.st_mode & 077) == 0 && info.st_nlink <= 1;
  if (!is_ours) return NotOurs(path, info);
  return ShmFile(path, std::move(fd));
}

int ShmFile::Allocate(size_t bytes) const {
  const int error_number = TryToAllocate(fd_.get(), bytes);
  if (error_number != 0 && ftruncate(fd_.get(), 0) != 0) return errno;  // frees the memory that was allocated
  return error_number;
}

size_t ShmFile::Size() const {
  struct stat info;
  return fstat(fd_.get(), &info) == 0 ? static_cast<size_t>(info.st_size) : 0;
}

absl::Duration ShmFile::Age() const {
  struct stat info;
  return fstat(fd_.get(), &info) == 0 ? CalendarNow() - absl::TimeFromTimespec(info.st_mtim) : absl::ZeroDuration();
}

bool ShmFile::HasCreator() const {
  if (flock(fd_.get(), LOCK_EX | LOCK_NB) != 0) return true;
  flock(fd_.get(), LOCK_UN);
  return false;
}

absl::StatusOr<std::shared_ptr<ShmMapping>> ShmFile::Map(size_t bytes) const {
  return MapOrError(bytes, MAP_SHARED | MAP_POPULATE, fd_.get());
}

void ShmFile::Refuse(int error_number) const {
  // Extending a file needs no memory. If even that fails, the other ranks wait until their deadline.
  [[maybe_unused]] const int result = ftruncate(fd_.get(), error_number);
}

int ShmFile::RefusedWith() const {
  const size_t size = Size();
  return size <= kLargestRefusal ? static_cast<int>(size) : 0;
}

void ShmFile::Unlink() const {
  struct stat mine;
  struct stat current;
  if (fstat(fd_.get(), &mine) != 0 || stat(path_.c_str(), &current) != 0) return;
  if (mine.st_dev == current.st_dev && mine.st_ino == current.st_ino) unlink(path_.c_str());
}

std::string DescribeFree(const std::string& folder) {
  struct statvfs info;
  if (statvfs(folder.c_str(), &info) != 0) return absl::StrCat(folder, " cannot be read: ", std::strerror(errno));
  return absl::StrCat(folder, " has ", info.f_bavail * info.f_frsize, " bytes available");
}

}  // namespace ronda
