// SPDX-License-Identifier: Apache-2.0

#include "runtime/shm/shm_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "runtime/base/files.h"

namespace ronda {
namespace {

absl::StatusOr<std::shared_ptr<ShmMapping>> MapOrError(size_t bytes, int flags, int fd) {
  void* const base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
  if (base == MAP_FAILED) {
    return absl::ResourceExhaustedError(absl::StrCat("cannot map ", bytes, " bytes: ", std::strerror(errno)));
  }
  // If no descriptor is free, the job still runs, but other processes cannot find its flight recorders.
  return std::make_shared<ShmMapping>(base, bytes, UniqueFd(fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0)));
}

// Writes `bytes` zero bytes to the file. Returns 0 or an errno.
int WriteZeros(int fd, size_t bytes) {
  const std::vector<char> zeros(size_t{1} << 16);
  for (size_t at = 0; at < bytes;) {
    const ssize_t count = pwrite(fd, zeros.data(), std::min(zeros.size(), bytes - at), static_cast<off_t>(at));
    if (count < 0 && errno != EINTR) return errno;
    if (count > 0) at += static_cast<size_t>(count);
  }
  return 0;
}

int TryToAllocate(int fd, size_t bytes) {
  if (!IsWithinFileLimit(bytes)) return EFBIG;
  int error_number;
  do {
    error_number = posix_fallocate(fd, 0, static_cast<off_t>(bytes));
  } while (error_number == EINTR);
  // A container's security profile may block posix_fallocate, and some systems lack it.
  if (error_number == EPERM || error_number == ENOSYS) return WriteZeros(fd, bytes);
  return error_number;
}

absl::Status CannotOpen(const std::string& path, int error_number) {
  const std::string text = absl::StrCat("cannot open ", path, ", the shared memory of rank 0");
  if (error_number != EACCES && error_number != EPERM) return absl::ErrnoToStatus(error_number, text);
  return absl::PermissionDeniedError(absl::StrCat(
      text,
      ": its process lets no other process of its user do so, because its program has changed its user, has "
      "capabilities of its own, or may not be read; start rank 0 without that, let it call "
      "prctl(PR_SET_DUMPABLE, 1) before init, or set RONDA_BACKEND=tcp"));
}

// Returns text such as "this host has 65536 bytes of memory available".
std::string DescribeFreeMemory() {
  const std::string file = ReadFile("/proc/meminfo").value_or("");
  for (absl::string_view line : absl::StrSplit(file, '\n')) {
    uint64_t kibibytes = 0;
    if (absl::ConsumePrefix(&line, "MemAvailable:") && absl::ConsumeSuffix(&line, " kB") &&
        absl::SimpleAtoi(line, &kibibytes)) {
      return absl::StrCat("this host has ", kibibytes << 10, " bytes of memory available");
    }
  }
  return "this host lacks memory";
}

}  // namespace

absl::StatusOr<std::shared_ptr<ShmMapping>> ShmMapping::Anonymous(size_t bytes) {
  return MapOrError(bytes, MAP_SHARED | MAP_ANONYMOUS, -1);
}

ShmMapping::~ShmMapping() {
  if (base_ != nullptr) munmap(base_, bytes_);
}

int ShmFile::Create(const std::string& folder, const std::string& name) {
  constexpr mode_t kMode = S_IRUSR | S_IWUSR;
  const std::string path = folder + name;
  // The name is "ronda-shm" followed by a '/', which the names of Ronda's other memfds do not contain.
  fd_.Reset(folder.empty() ? memfd_create(absl::StrCat("ronda-shm", name).c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING)
                           : open(path.c_str(), O_CREAT | O_EXCL | O_RDWR | O_NOFOLLOW | O_CLOEXEC, kMode));
  if (!fd_.valid()) return errno;
  // Until this process unlinks the empty file, the file looks like a leftover of a killed job, and another job of this
  // user may unlink it first (ENOENT).
  const int result = folder.empty() ? fchmod(fd_.get(), kMode) : unlink(path.c_str());
  return result == 0 || errno == ENOENT ? 0 : errno;
}

absl::StatusOr<ShmFile> ShmFile::Open(const std::string& path) {
  UniqueFd fd(open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!fd.valid()) return CannotOpen(path, errno);
  // A process that can write to the file can pose as a rank, so no other user may have access to it.
  struct stat info;
  if (fstat(fd.get(), &info) != 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot look at ", path));
  if (S_ISREG(info.st_mode) && info.st_uid == geteuid() && (info.st_mode & 077) == 0 && info.st_nlink == 0) {
    return ShmFile(std::move(fd));
  }
  return absl::PermissionDeniedError(
      absl::StrFormat("%s is a file of user %d with mode %04o and %d names; the memory of rank 0 is a file of user %d "
                      "with mode 0600 and no name",
                      path, info.st_uid, info.st_mode & 07777, info.st_nlink, geteuid()));
}

int ShmFile::Allocate(size_t bytes) const {
  const int error_number = TryToAllocate(fd_.get(), bytes);
  if (error_number != 0) return ftruncate(fd_.get(), 0) == 0 ? error_number : errno;  // frees what was allocated
  // Fails for a file in a folder, because only a memfd can be sealed.
  fcntl(fd_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  return 0;
}

size_t ShmFile::Size() const {
  struct stat info;
  return fstat(fd_.get(), &info) == 0 ? static_cast<size_t>(info.st_size) : 0;
}

absl::StatusOr<std::shared_ptr<ShmMapping>> ShmFile::Map(size_t bytes) const {
  return MapOrError(bytes, MAP_SHARED | MAP_POPULATE, fd_.get());
}

std::string DescribeFree(const std::string& folder) {
  if (folder.empty()) return DescribeFreeMemory();
  struct statvfs info;
  if (statvfs(folder.c_str(), &info) != 0) return absl::StrCat(folder, " cannot be read: ", std::strerror(errno));
  return absl::StrCat(folder, " has ", info.f_bavail * info.f_frsize, " bytes available");
}

}  // namespace ronda
