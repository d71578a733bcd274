// SPDX-License-Identifier: Apache-2.0

// Reading and writing whole files, and the folders for shared memory.
#ifndef RONDA_RUNTIME_BASE_FILES_H_
#define RONDA_RUNTIME_BASE_FILES_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ronda {

// The contents of a file. Errors: NOT_FOUND, "PATH: REASON"; also for a folder, and for a file of /proc whose process
// has ended since it was opened. (A std::ifstream that is read through its buffer throws in both cases.)
absl::StatusOr<std::string> ReadFile(const std::string& path);

// Replaces the contents of a file. Errors: UNAVAILABLE, "cannot write PATH: REASON".
absl::Status WriteFile(const std::string& path, const std::string& text);

// Whether this process may have a file of so many bytes (ulimit -f). Beyond the limit the system sends SIGXFSZ.
bool IsWithinFileLimit(size_t bytes);

// The folders in which the ranks of a host look for the job's shared memory: /dev/shm, then the folders for temporary
// files (TMPDIR and /tmp), for hosts where /dev/shm is missing, closed or full.
std::vector<std::string> ShmFolders();

}  // namespace ronda

#endif  // RONDA_RUNTIME_BASE_FILES_H_
