#ifndef RONDA_RUNTIME_BASE_JOB_ID_H_
#define RONDA_RUNTIME_BASE_JOB_ID_H_

#include <algorithm>
#include <cstddef>

#include "absl/strings/ascii.h"
#include "absl/strings/string_view.h"

namespace ronda {

inline constexpr size_t kMaxJobIdLength = 64;

// Whether `id` can name a job: 1 to 64 letters, digits, '-', '_' or '.', not beginning with '.'. A job's id becomes
// part of file names under /dev/shm, and it comes from the environment or from the network.
inline bool IsValidJobId(absl::string_view id) {
  if (id.empty() || id.size() > kMaxJobIdLength || id.front() == '.') return false;
  return std::all_of(id.begin(), id.end(),
                     [](unsigned char c) { return absl::ascii_isalnum(c) || c == '-' || c == '_' || c == '.'; });
}

}  // namespace ronda

#endif  // RONDA_RUNTIME_BASE_JOB_ID_H_
