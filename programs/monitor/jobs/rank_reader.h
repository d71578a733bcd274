// SPDX-License-Identifier: Apache-2.0

// Reads the state of ranks on this host from another process. This works even while the ranks are stopped. A rank keeps
// data about itself, its words (RankWords), in a memfd.
#ifndef RONDA_PROGRAMS_MONITOR_JOBS_RANK_READER_H_
#define RONDA_PROGRAMS_MONITOR_JOBS_RANK_READER_H_

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/base/peer.h"
#include "runtime/base/unique_fd.h"
#include "runtime/monitor/flight_recorder.h"
#include "runtime/monitor/peer_monitor.h"
#include "runtime/monitor/rank_words.h"

namespace ronda {

// A rank on this host.
struct RankIdentity {
  std::string job;
  Topology topology;
  ProcessId process;  // as this process sees it
};

// The values in a rank's RankWords at one moment.
struct RankSample {
  Statistics counts;
  std::array<std::array<uint64_t, kBucketModeCount>, kOpTypeCount> collectives{};
  std::array<uint64_t, DeviceTimes::kPhases> device_nanoseconds{};  // of the buckets that were timed
  uint64_t buckets = 0;                                             // so far
  uint64_t first_kept = 1;           // from this bucket on, `entries` has all buckets in which the rank has a part
  uint64_t current = 0;              // the rank's current bucket; 0: none
  FlightTime current_since;          // when it entered `current`
  FlightTime last_step;              // when its last step ended; zero: none has
  std::vector<BucketEntry> entries;  // the last ones, by bucket
  std::optional<FlightEvent> last;   // the last event of the flight recorder; nullopt: none, or it cannot be read
};

// Checks that `words`, the first `bytes` bytes of a rank's file, have the layout that this code knows. Errors:
// FAILED_PRECONDITION, with both versions, if the layout has another version; INVALID_ARGUMENT if the bytes are not a
// rank's words.
absl::Status CheckRankWords(const RankWords& words, size_t bytes);

// Unmaps pages of a file that another process created.
struct Unmapper {
  size_t bytes = 0;
  void operator()(void* base) const;
};
using MappedPages = std::unique_ptr<void, Unmapper>;

// Reads the words of one rank, through a mapping that stays valid when the rank ends.
//
// Thread-compatible.
class RankReader {
 public:
  // `descriptor` is a file descriptor of process `pid`. Errors: NOT_FOUND if the descriptor does not refer to a rank's
  // file, or if `pid` is a child of that rank; those of CheckRankWords; those of the operating system.
  static absl::StatusOr<std::unique_ptr<RankReader>> Open(pid_t pid, int descriptor);

  // Reads a rank that has ended. `bytes` are the RankWords that the rank left in a SummaryFile. Errors: those of
  // CheckRankWords; those of the operating system.
  static absl::StatusOr<std::unique_ptr<RankReader>> OfFinalWords(absl::string_view bytes);

  const RankIdentity& identity() const { return identity_; }
  // Returns false if the process has ended. Also returns false after shutdown(), because the process may become a rank
  // again, with new RankWords.
  bool IsAlive() const { return !HasShutDown() && ronda::IsAlive(identity_.process); }
  bool HasShutDown() const { return words().ended != 0; }  // costs almost nothing
  RankSample Read() const;
  // Returns the events of the rank's flight recorder, oldest first. The list is empty if the recorder cannot be read.
  std::vector<FlightEvent> Events() const;

  // Opens the file that contains the rank's words, for writing. Errors: NOT_FOUND if the rank has ended; those of the
  // operating system.
  absl::StatusOr<UniqueFd> OpenToWrite() const;

 private:
  RankReader(MappedPages words, ProcessId process, std::string path);
  // Maps `bytes` bytes of the file `path`, starting at `offset`. Errors: INVALID_ARGUMENT if the file is too short;
  // those of the operating system.
  static absl::StatusOr<MappedPages> Map(const std::string& path, uint64_t offset, size_t bytes);
  void MapRecorder();

  const RankWords& words() const { return *static_cast<const RankWords*>(words_.get()); }

  const MappedPages words_;
  const std::string path_;  // while the rank has not ended
  RankIdentity identity_;
  MappedPages recorder_pages_;
  const FlightRecorder* recorder_ = nullptr;  // nullptr: it cannot be read
};

// The ranks of this user on this host. FindRanks() leaves out ranks that it cannot read, and adds the reasons to
// `problems`.
struct FoundRanks {
  std::vector<std::unique_ptr<RankReader>> ranks;  // by job and rank
  std::vector<std::string> problems;
};
FoundRanks FindRanks();

// Returns the ranks for which the filter `is_one`, such as OfJob(), returns true.
using RankFilter = std::function<bool(const RankIdentity& rank)>;
std::vector<std::unique_ptr<RankReader>> FindRanks(const RankFilter& is_one);
RankFilter OfJob(std::string job);
RankFilter OfJobInAnyEpoch(std::string job_id);

}  // namespace ronda

#endif  // RONDA_PROGRAMS_MONITOR_JOBS_RANK_READER_H_
