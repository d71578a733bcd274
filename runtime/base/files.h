// SPDX-License-Identifier: Apache-2.0

// Functions that read and write whole files, and that find the folders for shared memory.
#ifndef RONDA_RUNTIME_BASE_FILES_H_
#define RONDA_RUNTIME_BASE_FILES_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ronda {

// Returns the contents of a file. Errors: NOT_FOUND, "PATH: REASON". ReadFile() also returns this error for a folder,
// and for a file of /proc whose process has ended after the file was opened. (For such a folder or file, a
// std::ifstream that is read through its buffer would throw an exception.)
absl::StatusOr<std::string> ReadFile(const std::string& path);

// Replaces the contents of a file. Errors: UNAVAILABLE, "cannot write PATH: REASON".
absl::Status WriteFile(const std::string& path, const std::string& text);

// Returns whether the limit on file sizes (ulimit -f) lets this process write a file of this size. If a process writes
// beyond the limit, the system sends SIGXFSZ.
bool IsWithinFileLimit(size_t bytes);

// Returns the folders in which the ranks of a host look for the job's shared memory. The first is /dev/shm. The folders
// for temporary files (TMPDIR and /tmp) come next, for hosts where /dev/shm is missing, not writable or full.
std::vector<std::string> ShmFolders();

}  // namespace ronda

#endif  // RONDA_RUNTIME_BASE_FILES_H_
