// SPDX-License-Identifier: Apache-2.0

#include "runtime/base/wake_pipe.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace ronda {
namespace {

// Returns the inode of the pipe `fd`, or 0 if `fd` is not a pipe.
ino_t InodeOf(int fd) {
  struct stat info = {};
  return fstat(fd, &info) == 0 && S_ISFIFO(info.st_mode) ? info.st_ino : 0;
}

}  // namespace

absl::StatusOr<WakePipe> WakePipe::Create() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
    return absl::ResourceExhaustedError(absl::StrCat("pipe2: ", std::strerror(errno)));
  }
  return WakePipe(UniqueFd(ends[0]), UniqueFd(ends[1]), InodeOf(ends[0]));
}

WakePipe::~WakePipe() {
  if (reader_.valid() && !IsIntact()) {
    reader_.Release();
    writer_.Release();
  }
}

// Both ends of a pipe have the same inode.
bool WakePipe::IsIntact() const { return InodeOf(reader_.get()) == inode_ && InodeOf(writer_.get()) == inode_; }

void WakePipe::Wake() const {
  if (!IsIntact()) return;
  // If the pipe is full, the other thread is already due to wake.
  [[maybe_unused]] const ssize_t count = write(writer_.get(), "x", 1);
}

void WakePipe::Clear() const {
  std::array<char, 64> bytes;
  while (IsIntact() && read(reader_.get(), bytes.data(), bytes.size()) > 0) {
  }
}

}  // namespace ronda
