#include "runtime/shm/shm_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ronda {
namespace {

constexpr char kShmDirectory[] = "/dev/shm";
// Sizes below a page are no content but an errno (see Refuse).
constexpr size_t kLargestRefusal = 4095;

absl::Status FileError(absl::string_view what, const std::string& name, int error_number) {
  return absl::ErrnoToStatus(error_number, absl::StrCat("cannot ", what, " ", kShmDirectory, name));
}

absl::StatusOr<std::shared_ptr<ShmMapping>> MapOrError(size_t bytes, int flags, int fd) {
  void* const base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
  if (base == MAP_FAILED) {
    return absl::ResourceExhaustedError(absl::StrCat("cannot map ", bytes, " bytes: ", std::strerror(errno)));
  }
  return std::make_shared<ShmMapping>(base, bytes);
}

}  // namespace

absl::StatusOr<std::shared_ptr<ShmMapping>> ShmMapping::Anonymous(size_t bytes) {
  return MapOrError(bytes, MAP_SHARED | MAP_ANONYMOUS, -1);
}

ShmMapping::~ShmMapping() { munmap(base_, bytes_); }

absl::StatusOr<ShmFile> ShmFile::Create(const std::string& name) {
  const int fd = shm_open(name.c_str(), O_CREAT | O_EXCL | O_RDWR, S_IRUSR | S_IWUSR);
  if (fd < 0) return FileError("create", name, errno);
  return ShmFile(name, fd);
}

absl::StatusOr<ShmFile> ShmFile::Open(const std::string& name) {
  const int fd = shm_open(name.c_str(), O_RDWR, 0);
  if (fd < 0) return FileError("open", name, errno);
  return ShmFile(name, fd);
}

ShmFile::ShmFile(ShmFile&& other) noexcept : name_(std::move(other.name_)), fd_(std::exchange(other.fd_, -1)) {}

ShmFile::~ShmFile() {
  if (fd_ >= 0) close(fd_);
}

absl::Status ShmFile::Allocate(size_t bytes) {
  int error_number;
  do {
    error_number = posix_fallocate(fd_, 0, static_cast<off_t>(bytes));
  } while (error_number == EINTR);
  if (error_number == 0) return absl::OkStatus();
  Refuse(error_number);
  if (error_number != ENOSPC) return FileError("allocate", name_, error_number);
  return absl::ResourceExhaustedError(
      absl::StrCat(DescribeFreeShm(), ", the job needs ", bytes,
                   ": remove what is not needed there, make it larger (mount -o remount,size=..., or docker run "
                   "--shm-size=...), or run fewer ranks on this host"));
}

size_t ShmFile::Size() const {
  struct stat info;
  return fstat(fd_, &info) == 0 ? static_cast<size_t>(info.st_size) : 0;
}

absl::StatusOr<std::shared_ptr<ShmMapping>> ShmFile::Map(size_t bytes) const {
  return MapOrError(bytes, MAP_SHARED | MAP_POPULATE, fd_);
}

void ShmFile::Refuse(int error_number) const {
  // A file can be made longer without memory. If even that fails, the others run into their deadline.
  [[maybe_unused]] const int result = ftruncate(fd_, error_number);
}

int ShmFile::RefusedWith() const {
  const size_t size = Size();
  return size <= kLargestRefusal ? static_cast<int>(size) : 0;
}

void ShmFile::Unlink() const {
  struct stat mine;
  struct stat current;
  const std::string path = absl::StrCat(kShmDirectory, name_);
  if (fstat(fd_, &mine) != 0 || stat(path.c_str(), &current) != 0) return;
  if (mine.st_dev == current.st_dev && mine.st_ino == current.st_ino) shm_unlink(name_.c_str());
}

std::string DescribeFreeShm() {
  struct statvfs info;
  if (statvfs(kShmDirectory, &info) != 0) return absl::StrCat(kShmDirectory, " cannot be read: ", std::strerror(errno));
  return absl::StrCat(kShmDirectory, " has ", info.f_bavail * info.f_frsize, " bytes available");
}

}  // namespace ronda
