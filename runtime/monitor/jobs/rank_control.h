#ifndef RONDA_RUNTIME_MONITOR_JOBS_RANK_CONTROL_H_
#define RONDA_RUNTIME_MONITOR_JOBS_RANK_CONTROL_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "runtime/base/types.h"
#include "runtime/base/unique_fd.h"
#include "runtime/monitor/jobs/rank_reader.h"
#include "runtime/monitor/rank_request.h"

namespace ronda {

// Asks a rank for something (RankRequestWords). Only a process of the rank's user can open its words, and only one
// process at a time asks.
//
// Thread-compatible. Owns its own mapping of the words.
class RankControl {
 public:
  // Errors: UNAVAILABLE if another process asks this rank at this moment; NOT_FOUND if the rank has ended; the
  // system's.
  static absl::StatusOr<std::unique_ptr<RankControl>> Open(const RankReader& rank);

  // Errors: as ronda::Ask.
  absl::Status Ask(const TimelineRequest& request);

  // To the last request; nullopt: there is no answer yet.
  std::optional<absl::StatusOr<std::string>> answer() const { return AnswerTo(asked_, words().request); }

 private:
  RankControl(UniqueFd file, MappedPages pages) : file_(std::move(file)), pages_(std::move(pages)) {}

  RankWords& words() const { return *static_cast<RankWords*>(pages_.get()); }

  const UniqueFd file_;  // has the lock
  const MappedPages pages_;
  uint64_t asked_ = 0;
};

// What a rank of a job has done about a request.
struct RankAnswer {
  RankId rank = 0;
  // The file that it writes now. nullopt: it has not looked yet, and does so with its next tensor.
  std::optional<absl::StatusOr<std::string>> file;
};

// Asks all of `ranks`, and waits for their answers for `patience` at most.
// Errors: those of RankControl, with the rank; then none was asked.
absl::StatusOr<std::vector<RankAnswer>> AskRanks(absl::Span<const std::unique_ptr<RankReader>> ranks,
                                                 const TimelineRequest& request, absl::Duration patience);

}  // namespace ronda

#endif  // RONDA_RUNTIME_MONITOR_JOBS_RANK_CONTROL_H_
