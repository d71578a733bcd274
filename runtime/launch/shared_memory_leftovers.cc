#include "runtime/launch/shared_memory_leftovers.h"

#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace ronda {

void RemoveSharedMemoryLeftovers(const std::string& job_id) {
  if (job_id.empty()) return;
  const std::string prefix = absl::StrCat("ronda-", job_id);
  // A machine without /dev/shm has no leftovers, and a file that is gone already is as good as removed.
  std::error_code ignored;
  std::vector<std::filesystem::path> leftovers;
  for (std::filesystem::directory_iterator it("/dev/shm", ignored), end; it != end; it.increment(ignored)) {
    if (absl::StartsWith(it->path().filename().string(), prefix)) leftovers.push_back(it->path());
  }
  for (const std::filesystem::path& leftover : leftovers) std::filesystem::remove(leftover, ignored);
}

}  // namespace ronda
