// Preloaded into the launcher and its ranks: fails one call of one process with an error number.
//
//   FAILING_CALL="<function> <error number> <which call, from 1> <process>"
//       the process: a rank; in an elastic job a member's place on its host; or - for the launcher
//   FAILING_CALL_MARK=<a file that is made when the call has failed>
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

struct Plan {
  char function[32] = "";
  int error_number = 0;
  int which = 0;
  bool is_of_this_process = false;
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
  plan.mark = std::getenv("FAILING_CALL_MARK");
  return plan;
}

std::atomic<int> calls{0};

// Whether this call is the one; then errno is set.
bool Fails(const char* function) {
  static const Plan plan = ReadPlan();
  if (!plan.is_of_this_process || std::strcmp(plan.function, function) != 0) return false;
  if (calls.fetch_add(1) + 1 != plan.which) return false;
  if (plan.mark != nullptr) {
    const long mark = syscall(SYS_openat, AT_FDCWD, plan.mark, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    if (mark < 0) return false;  // it has failed for a member that this one replaces
    syscall(SYS_close, mark);
  }
  errno = plan.error_number;
  return true;
}

template <typename Function>
Function* Next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

#define FAILING(type, name, failure, parameters, arguments)                \
  extern "C" __attribute__((visibility("default"))) type name parameters { \
    static auto* const next = Next<type parameters>(#name);                \
    if (Fails(#name)) return failure;                                      \
    return next arguments;                                                 \
  }

FAILING(void*, mmap, MAP_FAILED, (void* at, size_t size, int protection, int flags, int fd, off_t offset),
        (at, size, protection, flags, fd, offset))
FAILING(int, posix_fallocate, errno, (int fd, off_t offset, off_t size), (fd, offset, size))
FAILING(ssize_t, write, -1, (int fd, const void* data, size_t size), (fd, data, size))
FAILING(ssize_t, read, -1, (int fd, void* data, size_t size), (fd, data, size))
FAILING(int, socket, -1, (int domain, int type, int protocol), (domain, type, protocol))
FAILING(int, bind, -1, (int fd, const sockaddr* address, socklen_t size), (fd, address, size))
FAILING(int, listen, -1, (int fd, int queue), (fd, queue))
FAILING(int, pipe2, -1, (int* ends, int flags), (ends, flags))
FAILING(int, poll, -1, (pollfd * fds, nfds_t count, int timeout), (fds, count, timeout))
FAILING(int, memfd_create, -1, (const char* name, unsigned flags), (name, flags))
FAILING(pid_t, fork, -1, (), ())
FAILING(int, fstat, -1, (int fd, struct stat* info), (fd, info))
FAILING(int, pthread_create, errno,
        (pthread_t * thread, const pthread_attr_t* attributes, void* (*body)(void*), void* argument),
        (thread, attributes, body, argument))

// The kernel closes a descriptor whatever it returns.
extern "C" __attribute__((visibility("default"))) int close(int fd) {
  static auto* const next = Next<int(int)>("close");
  const int result = next(fd);
  return Fails("close") ? -1 : result;
}

#define FAILING_OPEN(name)                                                                       \
  extern "C" __attribute__((visibility("default"))) int name(const char* path, int flags, ...) { \
    static auto* const next = Next<int(const char*, int, ...)>(#name);                           \
    std::va_list arguments;                                                                      \
    va_start(arguments, flags);                                                                  \
    const int mode = va_arg(arguments, int);                                                     \
    va_end(arguments);                                                                           \
    return Fails("open") ? -1 : next(path, flags, mode);                                         \
  }
FAILING_OPEN(open)
FAILING_OPEN(open64)

#define FAILING_FOPEN(name)                                                                          \
  extern "C" __attribute__((visibility("default"))) FILE* name(const char* path, const char* mode) { \
    static auto* const next = Next<FILE*(const char*, const char*)>(#name);                          \
    return Fails("open") ? nullptr : next(path, mode);                                               \
  }
FAILING_FOPEN(fopen)
FAILING_FOPEN(fopen64)
