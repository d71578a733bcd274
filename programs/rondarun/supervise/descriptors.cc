// SPDX-License-Identifier: Apache-2.0

#include "programs/rondarun/supervise/descriptors.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/close_range.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace ronda {
namespace {

constexpr int kFirst = 3;

// Makes the system call directly, because some supported C libraries lack the function.
bool CloseRange(unsigned first, unsigned last, unsigned flags) {
  return first > last || syscall(SYS_close_range, first, last, flags) == 0;
}

// The layout of an entry returned by getdents64(2). The entry's name continues beyond this struct.
struct Entry {
  std::uint64_t inode;
  std::int64_t next;
  std::uint16_t length;
  std::uint8_t type;
  char name[1];
};

// Returns the number in `text`, or -1 if `text` is not a number.
int NumberOf(const char* text) {
  int number = 0;
  for (const char* at = text; *at != '\0'; ++at) {
    if (*at < '0' || *at > '9') return -1;
    number = 10 * number + (*at - '0');
  }
  return number;
}

// Calls `change` for each descriptor from 3 on. `change` may close it.
template <typename Change>
void ForEachDescriptor(const Change& change) {
  const int folder = open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) {
    // Without /proc, try every possible descriptor; kMost keeps the loop short.
    constexpr rlim_t kMost = 1 << 16;
    rlimit limit = {};
    getrlimit(RLIMIT_NOFILE, &limit);
    for (int fd = kFirst; fd < static_cast<int>(std::min(limit.rlim_cur, kMost)); ++fd) change(fd);
    return;
  }
  alignas(Entry) char buffer[4096];
  for (long bytes = 0; (bytes = syscall(SYS_getdents64, folder, buffer, sizeof(buffer))) > 0;) {
    for (long at = 0; at < bytes;) {
      std::uint16_t length = 0;
      std::memcpy(&length, buffer + at + offsetof(Entry, length), sizeof(length));
      const int fd = NumberOf(buffer + at + offsetof(Entry, name));
      if (fd >= kFirst && fd != folder) change(fd);
      at += length;
    }
  }
  close(folder);
}

}  // namespace

void CloseAllOnExec() {
  if (CloseRange(kFirst, UINT_MAX, CLOSE_RANGE_CLOEXEC)) return;
  ForEachDescriptor([](int fd) { fcntl(fd, F_SETFD, FD_CLOEXEC); });
}

void CloseAllBut(int kept) {
  const auto before = static_cast<unsigned>(kept) - 1;
  if (CloseRange(kFirst, before, 0) && CloseRange(static_cast<unsigned>(kept) + 1, UINT_MAX, 0)) return;
  ForEachDescriptor([kept](int fd) {
    if (fd != kept) close(fd);
  });
}

}  // namespace ronda
