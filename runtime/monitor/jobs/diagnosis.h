// Who holds a job up: from the words of its ranks on one host, and from what the kernel says about their processes.
// Pure functions.
#ifndef RONDA_RUNTIME_MONITOR_JOBS_DIAGNOSIS_H_
#define RONDA_RUNTIME_MONITOR_JOBS_DIAGNOSIS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "runtime/base/types.h"
#include "runtime/monitor/flight_recorder.h"
#include "runtime/monitor/jobs/process_times.h"
#include "runtime/monitor/jobs/rank_reader.h"

namespace ronda {

// A rank that was watched for a while.
struct WatchedRank {
  RankId rank = 0;
  RankSample sample;  // at the end
  ProcessTimes before;
  ProcessTimes after;
};

// Why others wait for a rank.
enum class Holdup : uint8_t {
  kStopped,       // a signal, a debugger or a job control has stopped its process
  kStarved,       // its threads are ready to run and get no core
  kNetwork,       // all ranks are in the bucket, and its data does not move
  kNotSubmitted,  // its program has not submitted the tensor
};
const char* Describe(Holdup holdup);

// Of ranks that have not gone on: those that wait, and those that they wait for.
struct Standstill {
  struct Blamed {
    RankId rank = 0;
    Holdup why = Holdup::kNotSubmitted;
  };
  std::vector<RankId> waiting;
  std::vector<Blamed> blamed;
  std::string tensor;  // or bucket, as far as the waiting ranks' flight recorders tell; else empty
  FlightTime since;    // when the first of the waiting ranks began to wait
};

// nullopt if no rank waits for another at this moment, or none has waited longer than `patience`. `watched` is how long
// the ranks were, up to `now`.
struct Moment {
  FlightTime now;
  absl::Duration watched;
  absl::Duration patience;
};
std::optional<Standstill> FindStandstill(absl::Span<const WatchedRank> ranks, const Moment& moment);

// How late one rank was in the last buckets: its entry minus the first rank's in the same bucket.
struct RankLateness {
  RankId rank = 0;
  int last = 0;           // buckets into which it came last of all
  absl::Duration total;   // over all buckets
  absl::Duration blamed;  // over those into which it came last: so long the first rank has waited
  Holdup why = Holdup::kNotSubmitted;
};

// The buckets whose entries all ranks here still have. Buckets of which only some ranks are part count for these.
struct Lateness {
  int buckets = 0;
  absl::Duration span;              // from the first entry into the first of them to the last into the last
  std::vector<RankLateness> ranks;  // in the order of the ranks that were given
};
Lateness MeasureLateness(absl::Span<const WatchedRank> ranks, absl::Duration watched);

// The rank that came last into at least half of the buckets, and for which the others have waited for more than 5 % of
// the time, beyond what they have waited for the other ranks on average. nullptr: none, or there are fewer than 20
// buckets, from which nothing follows.
const RankLateness* FindStraggler(const Lateness& lateness);

}  // namespace ronda

#endif  // RONDA_RUNTIME_MONITOR_JOBS_DIAGNOSIS_H_
