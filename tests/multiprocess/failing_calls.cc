// SPDX-License-Identifier: Apache-2.0

// A library for LD_PRELOAD that makes one call of one process, the launcher or a rank, fail with an error number.
//
//   FAILING_CALL="<function> <error number> <which call, from 1> <process>"
//       function: * means that calls of all of these functions count
//       error number: or a value from failing_calls.h
//       process: a rank; in an elastic job, a member's local rank; - means the launcher
//   FAILING_CALL_UNDER=<folder: only calls on it and on its contents count>
//   FAILING_CALL_MARK=<file to create, with the function's name, when the call fails>
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "tests/multiprocess/failing_calls.h"
#include "tests/multiprocess/unsynced_files.h"

namespace {

struct Plan {
  char function[32] = "";
  int error_number = 0;
  int which = 0;
  bool is_of_this_process = false;
  const char* under = nullptr;
  const char* mark = nullptr;
};

Plan ReadPlan() {
  Plan plan;
  char rank[16] = "";
  const char* const text = std::getenv("FAILING_CALL");
  if (text == nullptr ||
      std::sscanf(text, "%31s %d %d %15s", plan.function, &plan.error_number, &plan.which, rank) != 4) {
    return plan;
  }
  const char* own = std::getenv("RONDA_RANK");
  if (own == nullptr) own = std::getenv("RONDA_LOCAL_RANK");
  plan.is_of_this_process = std::strcmp(own == nullptr ? "-" : own, rank) == 0;
  plan.under = std::getenv("FAILING_CALL_UNDER");
  plan.mark = std::getenv("FAILING_CALL_MARK");
  return plan;
}

// The file that a call uses, identified by its path or its descriptor. Empty if the call uses no file.
class Subject {
 public:
  Subject() = default;
  explicit Subject(const char* path) : path_(path) {}
  explicit Subject(int fd) : fd_(fd) {}
  explicit Subject(FILE* file) : fd_(file == nullptr ? -1 : fileno(file)) {}
  explicit Subject(DIR* folder) : fd_(dirfd(folder)) {}

  bool IsUnder(const char* folder) const {
    const std::string path = fd_ >= 0 ? ronda::PathOf(fd_) : path_ == nullptr ? "" : path_;
    return path.compare(0, std::strlen(folder), folder) == 0;
  }

 private:
  const char* path_ = nullptr;
  int fd_ = -1;
};

// Creates the mark. Returns false if it already exists, because then this process replaces a member in which the
// planned call has failed.
bool MakeMark(const char* path, const char* function) {
  const long mark = syscall(SYS_openat, AT_FDCWD, path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
  if (mark < 0) return false;
  syscall(SYS_write, mark, function, std::strlen(function));
  syscall(SYS_close, mark);
  return true;
}

const Plan& ThePlan() {
  static const Plan plan = ReadPlan();
  return plan;
}

// Returns the record of this process's unsynced files. Returns nullptr unless the plan is a power failure of this
// process and the file is in the plan's folder. Needs no lock, because only one thread of the process uses the folder.
ronda::UnsyncedFiles* Unsynced(const Subject& subject) {
  const Plan& plan = ThePlan();
  if (!plan.is_of_this_process || plan.error_number != ronda::kLosePower || !subject.IsUnder(plan.under))
    return nullptr;
  static auto* const files = new ronda::UnsyncedFiles(std::string(plan.mark) + ".lost");
  return files;
}

std::atomic<int> calls{0};

// Returns whether the current call must fail. If so, sets errno.
bool Fails(const char* function, const Subject& subject = Subject()) {
  const Plan& plan = ThePlan();
  if (!plan.is_of_this_process) return false;
  if (std::strcmp(plan.function, "*") != 0 && std::strcmp(plan.function, function) != 0) return false;
  if (plan.under != nullptr && !subject.IsUnder(plan.under)) return false;
  if (calls.fetch_add(1) + 1 != plan.which) return false;
  if (plan.mark != nullptr && !MakeMark(plan.mark, function)) return false;
  if (auto* const unsynced = Unsynced(subject)) unsynced->LosePower();
  if (plan.error_number <= ronda::kKillProcess) raise(SIGKILL);
  errno = plan.error_number;
  return true;
}

template <typename Function>
Function* Next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

#define STANDS_IN extern "C" __attribute__((visibility("default")))

// Defines a replacement for a function. The replacement does nothing if the call must fail. The macro's last argument
// is the file that the function uses, if any.
#define FAILING(type, name, failure, parameters, arguments, ...) \
  STANDS_IN type name parameters {                               \
    static auto* const next = Next<type parameters>(#name);      \
    if (Fails(#name, Subject(__VA_ARGS__))) return failure;      \
    return next arguments;                                       \
  }

FAILING(void*, mmap, MAP_FAILED, (void* at, size_t size, int protection, int flags, int fd, off_t offset),
        (at, size, protection, flags, fd, offset), fd)
FAILING(int, posix_fallocate, errno, (int fd, off_t offset, off_t size), (fd, offset, size), fd)
FAILING(ssize_t, write, -1, (int fd, const void* data, size_t size), (fd, data, size), fd)
FAILING(ssize_t, read, -1, (int fd, void* data, size_t size), (fd, data, size), fd)
FAILING(int, fstat, -1, (int fd, struct stat* info), (fd, info), fd)
FAILING(int, stat, -1, (const char* path, struct stat* info), (path, info), path)
FAILING(int, remove, -1, (const char* path), (path), path)
FAILING(int, unlink, -1, (const char* path), (path), path)
FAILING(dirent*, readdir, nullptr, (DIR * folder), (folder), folder)
FAILING(size_t, fread, 0, (void* data, size_t size, size_t count, FILE* file), (data, size, count, file), file)
FAILING(int, fseek, -1, (FILE * file, long offset, int from), (file, offset, from), file)
FAILING(int, fflush, EOF, (FILE * file), (file), file)
FAILING(int, access, -1, (const char* path, int mode), (path, mode), path)
FAILING(ssize_t, readlink, -1, (const char* path, char* target, size_t size), (path, target, size), path)
FAILING(int, munmap, -1, (void* at, size_t size), (at, size))
FAILING(int, symlink, -1, (const char* text, const char* path), (text, path), path)
FAILING(int, dup2, -1, (int from, int to), (from, to))
FAILING(int, socketpair, -1, (int domain, int type, int protocol, int* ends), (domain, type, protocol, ends))
FAILING(int, getsockname, -1, (int fd, sockaddr* address, socklen_t* size), (fd, address, size))
FAILING(ssize_t, send, -1, (int fd, const void* data, size_t size, int flags), (fd, data, size, flags))
FAILING(ssize_t, recv, -1, (int fd, void* data, size_t size, int flags), (fd, data, size, flags))
FAILING(int, signalfd, -1, (int fd, const sigset_t* signals, int flags), (fd, signals, flags))
FAILING(int, socket, -1, (int domain, int type, int protocol), (domain, type, protocol))
FAILING(int, bind, -1, (int fd, const sockaddr* address, socklen_t size), (fd, address, size))
FAILING(int, listen, -1, (int fd, int queue), (fd, queue))
FAILING(int, pipe2, -1, (int* ends, int flags), (ends, flags))
FAILING(int, poll, -1, (pollfd * fds, nfds_t count, int timeout), (fds, count, timeout))
FAILING(int, memfd_create, -1, (const char* name, unsigned flags), (name, flags))
FAILING(pid_t, fork, -1, (), ())
FAILING(int, pthread_create, errno,
        (pthread_t * thread, const pthread_attr_t* attributes, void* (*body)(void*), void* argument),
        (thread, attributes, body, argument))

// What recv() is called in programs compiled with _FORTIFY_SOURCE.
STANDS_IN ssize_t __recv_chk(int fd, void* data, size_t size, size_t room, int flags) {
  static auto* const next = Next<ssize_t(int, void*, size_t, size_t, int)>("__recv_chk");
  return Fails("recv") ? -1 : next(fd, data, size, room, flags);
}

// Defines a replacement for a function that closes its argument. The replacement closes it even if the call must fail.
#define FAILING_CLOSE(name, type)                       \
  STANDS_IN int name(type opened) {                     \
    static auto* const next = Next<int(type)>(#name);   \
    const bool fails = Fails("close", Subject(opened)); \
    const int error_number = errno;                     \
    const int result = next(opened);                    \
    if (fails) errno = error_number;                    \
    return fails ? -1 : result;                         \
  }
FAILING_CLOSE(close, int)
FAILING_CLOSE(fclose, FILE*)
FAILING_CLOSE(closedir, DIR*)

STANDS_IN int mkdir(const char* path, mode_t mode) {
  static auto* const next = Next<int(const char*, mode_t)>("mkdir");
  if (Fails("mkdir", Subject(path))) return -1;
  const int result = next(path, mode);
  if (auto* const unsynced = Unsynced(Subject(path)); result == 0 && unsynced != nullptr) unsynced->Made(path);
  return result;
}

STANDS_IN int rename(const char* from, const char* to) {
  static auto* const next = Next<int(const char*, const char*)>("rename");
  if (Fails("rename", Subject(to))) return -1;
  const int result = next(from, to);
  if (auto* const unsynced = Unsynced(Subject(to)); result == 0 && unsynced != nullptr) unsynced->Renamed(from, to);
  return result;
}

// Does not call the real fsync(), so that tests do not wait for the disk.
STANDS_IN int fsync(int fd) {
  if (Fails("fsync", Subject(fd))) return -1;
  if (auto* const unsynced = Unsynced(Subject(fd))) unsynced->Synced(fd);
  return 0;
}

// A call that must fail still writes a part of the data, as on a disk that becomes full.
STANDS_IN size_t fwrite(const void* data, size_t size, size_t count, FILE* file) {
  static auto* const next = Next<size_t(const void*, size_t, size_t, FILE*)>("fwrite");
  if (!Fails("fwrite", Subject(file))) return next(data, size, count, file);
  const int error_number = errno;
  const size_t part = next(data, size, count / 2, file);
  errno = error_number;
  return part;
}

#define FAILING_OPEN(name)                                              \
  STANDS_IN int name(const char* path, int flags, ...) {                \
    static auto* const next = Next<int(const char*, int, ...)>(#name);  \
    std::va_list arguments;                                             \
    va_start(arguments, flags);                                         \
    const int mode = va_arg(arguments, int);                            \
    va_end(arguments);                                                  \
    return Fails("open", Subject(path)) ? -1 : next(path, flags, mode); \
  }
FAILING_OPEN(open)
FAILING_OPEN(open64)

#define FAILING_FOPEN(name)                                                                       \
  STANDS_IN FILE* name(const char* path, const char* mode) {                                      \
    static auto* const next = Next<FILE*(const char*, const char*)>(#name);                       \
    if (Fails("open", Subject(path))) return nullptr;                                             \
    FILE* const file = next(path, mode);                                                          \
    auto* const unsynced = Unsynced(Subject(path));                                               \
    if (mode[0] == 'w' && file != nullptr && unsynced != nullptr) unsynced->Opened(fileno(file)); \
    return file;                                                                                  \
  }
FAILING_FOPEN(fopen)
FAILING_FOPEN(fopen64)
