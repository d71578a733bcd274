// SPDX-License-Identifier: Apache-2.0

#include "tests/multiprocess/unsynced_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <utility>

namespace ronda {
namespace {

constexpr int kSynced = -1;  // replaces a descriptor

// Makes the system call directly, because failing_calls.cc replaces the C library's functions.
bool IsSameFile(int a, int b) {
  struct stat of_a, of_b;
  const auto look = [](int fd, struct stat* info) { return syscall(SYS_fstat, fd, info) == 0; };
  return look(a, &of_a) && look(b, &of_b) && of_a.st_dev == of_b.st_dev && of_a.st_ino == of_b.st_ino;
}

}  // namespace

std::string PathOf(int fd) {
  char path[4096] = "";
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  const int error_before = errno;
  const bool is_known = syscall(SYS_readlinkat, AT_FDCWD, link.c_str(), path, sizeof(path) - 1) > 0;
  errno = error_before;
  return is_known ? path : "";
}

void UnsyncedFiles::Opened(int fd) { files_.push_back(fcntl(fd, F_DUPFD_CLOEXEC, 0)); }

void UnsyncedFiles::Synced(int fd) {
  for (int& file : files_) {
    if (IsSameFile(file, fd)) syscall(SYS_close, std::exchange(file, kSynced));
  }
  std::erase(files_, kSynced);
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
