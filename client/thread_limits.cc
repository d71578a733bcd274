// SPDX-License-Identifier: Apache-2.0

#include "client/thread_limits.h"

#include <pthread.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace ronda {
namespace {

std::string FirstLine(const std::string& path) {
  std::string line;
  std::ifstream file(path);
  std::getline(file, line);
  return line;
}

// In /proc/self/cgroup, "0::/docker/71" is the process's cgroup folder in the version 2 hierarchy.
std::string MostOfGroup() {
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    if (absl::StartsWith(line, "0::")) return FirstLine(absl::StrCat("/sys/fs/cgroup", line.substr(3), "/pids.max"));
  }
  return "";
}

}  // namespace

std::string DescribeThreadError(int error_number) {
  std::string text = absl::StrCat("cannot start a thread: ", std::strerror(error_number));
  if (error_number == EPERM) {
    absl::StrAppend(&text,
                    "; older profiles of containers refuse clone3(): update the container engine, or start the "
                    "container with another profile (--security-opt seccomp=unconfined)");
    return text;
  }
  rlimit limit = {};
  getrlimit(RLIMIT_NPROC, &limit);
  absl::StrAppend(&text, "; the most processes and threads are ",
                  limit.rlim_cur == RLIM_INFINITY ? "unlimited" : absl::StrCat(limit.rlim_cur),
                  " for this user (RLIMIT_NPROC, ulimit -u)");
  if (const std::string most = MostOfGroup(); !most.empty()) {
    absl::StrAppend(&text, ", ", most, " for this control group (pids.max; docker run --pids-limit)");
  }
  absl::StrAppend(&text, ", and ", FirstLine("/proc/sys/kernel/threads-max"),
                  " for the machine (kernel.threads-max): raise what is reached");
  return text;
}

absl::Status CheckThreads() {
  pthread_t thread;
  const int error_number = pthread_create(
      &thread, nullptr, [](void* nothing) { return nothing; }, nullptr);
  if (error_number == 0) {
    pthread_join(thread, nullptr);
    return absl::OkStatus();
  }
  const std::string text = DescribeThreadError(error_number);
  return error_number == EPERM ? absl::PermissionDeniedError(text) : absl::ResourceExhaustedError(text);
}

}  // namespace ronda
