// SPDX-License-Identifier: Apache-2.0

// A library for LD_PRELOAD that shifts the calendar clock, and no other clock. The file that SHIFTED_CLOCK names has
// the number of seconds, and may change at any time.
#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <cstdlib>

namespace {

long Shift() {
  const char* const path = std::getenv("SHIFTED_CLOCK");
  const int file = path == nullptr ? -1 : open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  char text[32] = {};
  const ssize_t length = read(file, text, sizeof(text) - 1);
  close(file);
  return length > 0 ? std::strtol(text, nullptr, 10) : 0;
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, timespec* now) {
  const int result = static_cast<int>(syscall(SYS_clock_gettime, clock, now));
  if (result == 0 && clock == CLOCK_REALTIME) now->tv_sec += Shift();
  return result;
}

__attribute__((visibility("default"))) int gettimeofday(timeval* now, void* /*zone*/) {
  timespec precise = {};
  clock_gettime(CLOCK_REALTIME, &precise);
  *now = {.tv_sec = precise.tv_sec, .tv_usec = precise.tv_nsec / 1000};
  return 0;
}

__attribute__((visibility("default"))) time_t time(time_t* to) {
  timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
  if (to != nullptr) *to = now.tv_sec;
  return now.tv_sec;
}
}
