// SPDX-License-Identifier: Apache-2.0

#include "programs/monitor/jobs/rank_control.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

constexpr absl::Duration kLookPeriod = absl::Milliseconds(10);

absl::Status OfRank(RankId rank, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat("rank ", rank, ": ", status.message()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<RankControl>> RankControl::Open(const RankReader& rank) {
  RONDA_ASSIGN_OR_RETURN(UniqueFd file, rank.OpenToWrite());
  // The file lock lets only one process at a time send a request. The kernel releases the lock when this process ends.
  if (flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return absl::UnavailableError("another process asks it at this moment: try again");
    return absl::ErrnoToStatus(errno, "cannot lock its words");
  }
  void* const base = mmap(nullptr, sizeof(RankWords), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (base == MAP_FAILED) return absl::ErrnoToStatus(errno, "cannot map its words");
  MappedPages pages(base, Unmapper{.bytes = sizeof(RankWords)});
  return std::unique_ptr<RankControl>(new RankControl(std::move(file), std::move(pages)));
}

absl::Status RankControl::Ask(const TimelineRequest& request) {
  RONDA_ASSIGN_OR_RETURN(asked_, ronda::Ask(request, &words().request));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<RankAnswer>> AskRanks(absl::Span<const std::unique_ptr<RankReader>> ranks,
                                                 const TimelineRequest& request, absl::Duration timeout) {
  std::vector<std::unique_ptr<RankControl>> controls;
  for (const std::unique_ptr<RankReader>& rank : ranks) {
    auto control = RankControl::Open(*rank);
    if (!control.ok()) return OfRank(rank->identity().topology.rank, control.status());
    controls.push_back(*std::move(control));
  }
  for (const std::unique_ptr<RankControl>& control : controls) RONDA_RETURN_IF_ERROR(control->Ask(request));
  const auto has_answer = [](const std::unique_ptr<RankControl>& control) { return control->answer().has_value(); };
  const FlightTime deadline = FlightNow() + timeout;
  while (!std::all_of(controls.begin(), controls.end(), has_answer) && FlightNow() < deadline) {
    absl::SleepFor(kLookPeriod);
  }
  std::vector<RankAnswer> answers;
  for (size_t i = 0; i < ranks.size(); ++i) {
    answers.push_back({.rank = ranks[i]->identity().topology.rank, .file = controls[i]->answer()});
  }
  return answers;
}

}  // namespace ronda
