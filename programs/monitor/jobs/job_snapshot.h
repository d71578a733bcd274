// SPDX-License-Identifier: Apache-2.0

// What is known about a job at one moment. A JobSnapshot is plain data. Reports, metrics and pages are made from it.
#ifndef RONDA_PROGRAMS_MONITOR_JOBS_JOB_SNAPSHOT_H_
#define RONDA_PROGRAMS_MONITOR_JOBS_JOB_SNAPSHOT_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "programs/monitor/jobs/job_origin.h"
#include "programs/monitor/jobs/process_times.h"
#include "programs/monitor/jobs/rank_reader.h"
#include "runtime/base/types.h"
#include "runtime/monitor/flight_recorder.h"

namespace ronda {

// The upper bounds of the bins of a lateness histogram. The bins are narrowest from 0.1 to 100 ms, because a wait of a
// few milliseconds is already several percent of a typical training step.
inline constexpr std::array<absl::Duration, 11> kLatenessBounds = {
    absl::Microseconds(10), absl::Microseconds(100), absl::Microseconds(300), absl::Milliseconds(1),
    absl::Milliseconds(3),  absl::Milliseconds(10),  absl::Milliseconds(30),  absl::Milliseconds(100),
    absl::Seconds(1),       absl::Seconds(10),       absl::Seconds(30)};

// How late a rank enters buckets, each time relative to the first rank to enter the same bucket.
struct LatenessHistogram {
  // counts[i] is the number of entries whose lateness is above bound i - 1 and at most bound i. The last count is the
  // number of entries above all bounds.
  std::array<uint64_t, kLatenessBounds.size() + 1> counts{};
  uint64_t count = 0;
  absl::Duration sum;

  void Add(absl::Duration lateness);
};

// How late a rank has entered buckets since watching began, and how long other ranks have waited for it.
struct RankLateness {
  LatenessHistogram histogram;
  uint64_t last = 0;           // buckets that it entered last of all ranks
  absl::Duration blamed_wait;  // the first ranks' waits in those buckets
};

// The rates of a rank over roughly the last second.
struct RankRates {
  double steps_per_second = 0;
  double bytes_per_second = 0;  // of the tensors, in their own dtype
  double waited_share = 0;      // of the time: in buckets, waits for other ranks and transfers; from 0 to 1
  double wire_ratio = 1;        // bytes as they travel by bytes of the tensors
  absl::Duration lateness;      // mean over the buckets that were measured; zero: none was
  double blamed_share = 0;      // of the time: RankLateness::blamed_wait
};

// Totals over the time between the first and the last sample that saw a step end. If fewer than two samples did,
// `steps` is 0, step_time is computed from the buckets that the rank still has on record, and the other fields are
// zero.
struct RankTotals {
  uint64_t steps = 0;        // that ended in that time
  absl::Duration step_time;  // mean; zero: not known
  absl::Duration exposed;    // of a step: the time for which its program has waited for tensors
  double waited_share = 0;   // as in RankRates
  double blamed_share = 0;
  double exposed_share = 0;  // of the time
};

struct RankSnapshot {
  RankIdentity identity;
  bool is_here = true;  // false: it is on another host
  bool is_alive = true;
  bool is_heard = true;  // false: the monitor of its host has not answered for OtherHost::kSilence
  RankSample sample;
  RankLateness lateness;
  RankRates rates;
  RankTotals totals;
  // The times of the process at the start and at the end of JobSnapshot::process_span.
  ProcessTimes process_before;
  ProcessTimes process_now;

  RankId rank() const { return identity.topology.rank; }
};

// Why other ranks wait for a rank.
enum class Holdup : uint8_t {
  kStopped,       // a signal, a debugger or a job control has stopped its process
  kEnded,         // its process is gone
  kStarved,       // its threads are ready to run and get no core
  kNetwork,       // all ranks are in the bucket, and its data does not move
  kUnheard,       // its host does not answer: the network, or the host
  kNotSubmitted,  // its program has not submitted the tensor
};

// A job that makes no progress: the ranks that wait, and the ranks that they wait for.
struct Standstill {
  struct Blamed {
    RankId rank = 0;
    Holdup why = Holdup::kNotSubmitted;
  };
  std::vector<RankId> waiting;
  std::vector<Blamed> blamed;
  std::string tensor;  // or bucket, if the waiting ranks' flight recorders have it; else empty
  FlightTime since;    // when the first of the waiting ranks began to wait
};

// The rank that slows down a job that does make progress.
struct StragglerVerdict {
  enum class Kind : uint8_t {
    kNone,
    kEvent,   // in one step the others have waited for it for very long
    kOneOff,  // in the last window of steps
    kChronic  // in three windows, one after the other
  };
  Kind kind = Kind::kNone;
  RankId rank = 0;
  int steps = 0;          // looked at: the last window; of kChronic: three of them
  int last_steps = 0;     // of these, the steps in which the others have waited most for this rank
  absl::Duration waited;  // for this rank, in last_steps; of kEvent: in that step
  absl::Duration span;    // of `steps`
  FlightTime since;       // when the first of last_steps began; of kEvent: that step
  Holdup why = Holdup::kNotSubmitted;
};

// A host with a slow network connection. Round trips to the host take long, and all ranks spend much of their time in
// buckets.
struct SlowNetwork {
  std::string host;
  std::vector<RankId> ranks;
  absl::Duration round_trip;  // between the monitors
  double waited_share = 0;    // the least of all ranks, as in RankRates
};

// The times at which a rank took part in a bucket. The rank first waits until all ranks have entered the bucket. Then
// data moves between the ranks.
struct BucketPart {
  RankId rank = 0;
  FlightTime entered;  // when all of its tensors were ready, and the rank had left the previous bucket
  FlightTime left;
};

struct StepBucket {
  std::string name;               // as the timeline names it; empty: no rank still has it
  uint64_t bytes = 0;             // of its tensors; 0: no rank still has the number
  FlightTime complete;            // when the last rank entered it
  std::vector<BucketPart> parts;  // by rank
};

// One step of the ranks on this host. While a rank is not in a bucket, its program computes.
struct StepRecord {
  FlightTime begin;  // when the first rank left the last bucket of the previous step, as far as that is known
  FlightTime end;    // when the last rank left the last bucket
  std::vector<StepBucket> buckets;  // in the order in which all ranks enter them
};

struct JobSnapshot {
  std::string job;
  JobOrigin origin;
  FlightTime now;
  std::vector<RankSnapshot> ranks;  // of this host, and of hosts whose monitors are asked; by rank
  absl::Duration process_span;      // about a second; zero: the processes were looked at once
  uint64_t buckets_measured = 0;    // entered by all of these ranks that have a part in them, and by two at least
  uint64_t buckets_missed = 0;      // ranks have overwritten their entries before they were read
  std::optional<Standstill> standstill;
  StragglerVerdict straggler;
  std::optional<SlowNetwork> network;
  std::optional<StepRecord> last_step;
};

// What the monitor of another host reports about the job's ranks on that host. Its times are converted to this host's
// clock. A converted time may be off by up to the time that a message takes.
struct OtherHost {
  static constexpr absl::Duration kSilence = absl::Seconds(2);  // after this time a host is treated as unreachable

  std::string address;  // of its monitor
  std::string job;
  std::vector<RankSnapshot> ranks;  // identity, is_alive, sample and process_now
  FlightTime taken;                 // when the ranks were read
  absl::Duration round_trip;        // of a question and its answer: the least of the last few
};

}  // namespace ronda

#endif  // RONDA_PROGRAMS_MONITOR_JOBS_JOB_SNAPSHOT_H_
