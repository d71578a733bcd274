// SPDX-License-Identifier: Apache-2.0

// Functions that read and write whole files, and that list the folders for shared memory.
#ifndef RONDA_RUNTIME_BASE_FILES_H_
#define RONDA_RUNTIME_BASE_FILES_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ronda {

// Returns the contents of a file. Errors: NOT_FOUND, "PATH: REASON". ReadFile() also returns this error for a folder,
// and for a /proc file whose process exits while the file is open. (Reading either through the buffer of a
// std::ifstream would throw an exception.)
absl::StatusOr<std::string> ReadFile(const std::string& path);

// Replaces the contents of a file. Errors: UNAVAILABLE, "cannot write PATH: REASON".
absl::Status WriteFile(const std::string& path, const std::string& text);

// Returns whether the file size limit (ulimit -f) lets this process write a file of this size. Writing beyond the limit
// raises SIGXFSZ.
bool IsWithinFileLimit(size_t bytes);

// Returns the folders in which the ranks of a host look for the job's shared memory: /dev/shm, then TMPDIR and /tmp for
// hosts where /dev/shm is missing, not writable or full.
std::vector<std::string> ShmFolders();

}  // namespace ronda

#endif  // RONDA_RUNTIME_BASE_FILES_H_
