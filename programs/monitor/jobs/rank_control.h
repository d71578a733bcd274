// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_PROGRAMS_MONITOR_JOBS_RANK_CONTROL_H_
#define RONDA_PROGRAMS_MONITOR_JOBS_RANK_CONTROL_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "programs/monitor/jobs/rank_reader.h"
#include "runtime/base/types.h"
#include "runtime/base/unique_fd.h"
#include "runtime/monitor/rank_request.h"

namespace ronda {

// Sends requests to a rank (RankRequestWords). The words are in a file that only processes of the rank's user can open.
// Only one process at a time may send requests to a rank.
//
// Thread-compatible. RankControl maps the rank's words itself, so it does not depend on the RankReader.
class RankControl {
 public:
  // Errors: UNAVAILABLE if another process is currently sending a request to this rank. NOT_FOUND if the rank has
  // ended. All other errors are system errors.
  static absl::StatusOr<std::unique_ptr<RankControl>> Open(const RankReader& rank);

  // Errors: those of ronda::Ask.
  absl::Status Ask(const TimelineRequest& request);

  // Returns the answer to the last request, or nullopt if there is no answer yet.
  std::optional<absl::StatusOr<std::string>> answer() const { return AnswerTo(asked_, words().request); }

 private:
  RankControl(UniqueFd file, MappedPages pages) : file_(std::move(file)), pages_(std::move(pages)) {}

  RankWords& words() const { return *static_cast<RankWords*>(pages_.get()); }

  const UniqueFd file_;  // has the lock
  const MappedPages pages_;
  uint64_t asked_ = 0;
};

// A rank's answer to a timeline request.
struct RankAnswer {
  RankId rank = 0;
  // The timeline file that the rank now writes. nullopt: the rank has not seen the request yet, and will see it with
  // its next tensor.
  std::optional<absl::StatusOr<std::string>> file;
};

// Sends the request to all of `ranks`, and waits for their answers, for at most `timeout`. Errors: those of
// RankControl::Open, with the number of the rank; those of RankControl::Ask.
absl::StatusOr<std::vector<RankAnswer>> AskRanks(absl::Span<const std::unique_ptr<RankReader>> ranks,
                                                 const TimelineRequest& request, absl::Duration timeout);

}  // namespace ronda

#endif  // RONDA_PROGRAMS_MONITOR_JOBS_RANK_CONTROL_H_
