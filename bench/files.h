#ifndef RONDA_BENCH_FILES_H_
#define RONDA_BENCH_FILES_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ronda::bench {

// What a file holds. Errors: NOT_FOUND that names it.
absl::StatusOr<std::string> ReadFile(const std::string& path);

// Makes `text` all that the file holds. Errors: UNAVAILABLE that names the file and says why.
absl::Status WriteFile(const std::string& path, const std::string& text);

}  // namespace ronda::bench

#endif  // RONDA_BENCH_FILES_H_
