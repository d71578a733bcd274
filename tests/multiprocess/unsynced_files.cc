#include "tests/multiprocess/unsynced_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>

namespace ronda {
namespace {

// By system calls: the library's functions are stood in for.
bool IsSameFile(int a, int b) {
  struct stat of_a, of_b;
  const auto look = [](int fd, struct stat* info) { return syscall(SYS_fstat, fd, info) == 0; };
  return look(a, &of_a) && look(b, &of_b) && of_a.st_dev == of_b.st_dev && of_a.st_ino == of_b.st_ino;
}

std::string PathOf(int fd) {
  char path[4096] = "";
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  return syscall(SYS_readlinkat, AT_FDCWD, link.c_str(), path, sizeof(path) - 1) > 0 ? path : "";
}

}  // namespace

void UnsyncedFiles::Opened(int fd) { files_.push_back(fcntl(fd, F_DUPFD_CLOEXEC, 0)); }

void UnsyncedFiles::Synced(int fd) {
  std::erase_if(files_, [fd](int file) { return IsSameFile(file, fd) && syscall(SYS_close, file) == 0; });
  const std::string folder = PathOf(fd);
  std::erase_if(names_,
                [&](const Name& name) { return std::filesystem::path(name.path).parent_path().string() == folder; });
}

void UnsyncedFiles::LosePower() {
  for (const int file : files_) syscall(SYS_ftruncate, file, 0);
  for (auto name = names_.rbegin(); name != names_.rend(); ++name) {
    syscall(SYS_renameat, AT_FDCWD, name->path.c_str(), AT_FDCWD, name->before.c_str());
  }
}

}  // namespace ronda
