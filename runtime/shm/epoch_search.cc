// SPDX-License-Identifier: Apache-2.0

#include "runtime/shm/epoch_search.h"

#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "runtime/base/config.h"

namespace ronda {
namespace {

constexpr absl::Duration kFirstLook = absl::Milliseconds(200);
constexpr absl::Duration kLongestPause = absl::Seconds(2);  // for few ranks

// A rough estimate of the number of other processes on a host.
constexpr int kOtherProcesses = 200;

// The time between the searches of two consecutive ranks. A search takes about a fifth of it, because it examines every
// process in /proc.
absl::Duration TurnOf(int size) { return (size + kOtherProcesses) * absl::Microseconds(100); }

// Calls `visit` with the path and the name of each entry of a folder. Does nothing if it cannot read the folder.
template <typename Visit>
void ForEachEntry(const std::string& folder, const Visit& visit) {
  std::error_code error;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    visit(it->path().string(), it->path().filename().string());
  }
}

}  // namespace

std::string ShmNameOf(absl::string_view job_id, int64_t epoch) {
  return absl::StrCat("/ronda-", NameInEpoch(job_id, epoch));
}

std::optional<int64_t> EpochInLink(absl::string_view target, absl::string_view job_id) {
  absl::ConsumeSuffix(&target, " (deleted)");
  const size_t name = target.rfind('/');
  if (name == absl::string_view::npos) return std::nullopt;
  target.remove_prefix(name);
  if (!absl::ConsumePrefix(&target, ShmNameOf(job_id, 0))) return std::nullopt;
  if (target.empty()) return 0;
  int64_t epoch = 0;
  if (!absl::ConsumePrefix(&target, "@") || !absl::SimpleAtoi(target, &epoch) || epoch < 0) return std::nullopt;
  return epoch;
}

EpochSearch::EpochSearch(std::string job_id, int64_t epoch, const Place& place, absl::Time now)
    : job_id_(std::move(job_id)),
      epoch_(epoch),
      shortest_pause_(place.size * TurnOf(place.size)),
      pause_(kFirstLook),
      next_(now + kFirstLook + place.rank * TurnOf(place.size)) {}

std::optional<EpochHolder> EpochSearch::LookIfDue(absl::Time now) {
  if (now < next_) return std::nullopt;
  pause_ = std::min(2 * pause_, kLongestPause);
  next_ = now + std::max(pause_, shortest_pause_);
  return Look();
}

std::optional<EpochHolder> EpochSearch::Look() const {
  std::optional<EpochHolder> found;
  const pid_t self = getpid();
  ForEachEntry("/proc", [&](const std::string& process, const std::string& name) {
    pid_t pid = 0;
    if (!absl::SimpleAtoi(name, &pid) || pid == self) return;
    ForEachEntry(process + "/fd", [&](const std::string& path, const std::string&) {
      char target[PATH_MAX];
      const ssize_t bytes = readlink(path.c_str(), target, sizeof(target));
      if (bytes <= 0) return;
      const std::optional<int64_t> epoch = EpochInLink({target, static_cast<size_t>(bytes)}, job_id_);
      if (epoch && *epoch != epoch_ && (!found || found->epoch < *epoch)) found = {.epoch = *epoch, .pid = pid};
    });
  });
  return found;
}

}  // namespace ronda
