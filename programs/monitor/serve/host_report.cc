// SPDX-License-Identifier: Apache-2.0

#include "programs/monitor/serve/host_report.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "proto/ronda/v1/monitor.pb.h"
#include "runtime/base/status_macros.h"
#include "runtime/monitor/rank_words.h"

namespace ronda {
namespace {

// The maximum number of ranks in a report.
constexpr int kMostRanks = 4096;
// The maximum time in a report. A host's clock starts at zero when the host boots, so real times are shorter. Sums of
// longer times would overflow.
constexpr int64_t kLongestTime = std::numeric_limits<int64_t>::max() / 8;

constexpr size_t kCounts = sizeof(Statistics) / sizeof(uint64_t);
using CountArray = std::array<uint64_t, kCounts>;

int64_t Nanoseconds(absl::Duration time) { return absl::ToInt64Nanoseconds(time); }

void Fill(const RankSample& sample, v1::SampledRank* message) {
  for (const uint64_t count : std::bit_cast<CountArray>(sample.counts)) message->add_counts(count);
  for (const auto& of_op : sample.collectives) {
    for (const uint64_t count : of_op) message->add_collectives(count);
  }
  for (const uint64_t time : sample.device_nanoseconds) message->add_device_nanoseconds(time);
  message->set_buckets(sample.buckets);
  message->set_first_kept(sample.first_kept);
  message->set_current(sample.current);
  message->set_current_since(Nanoseconds(sample.current_since));
  message->set_last_step(Nanoseconds(sample.last_step));
  for (const BucketEntry& entry : sample.entries) {
    v1::SampledRank::Entry* const added = message->add_entries();
    added->set_bucket(entry.bucket);
    added->set_time(entry.time);
    added->set_step(entry.step);
    added->set_spent(entry.left == 0 ? 0 : entry.left - std::min(entry.left, entry.time) + 1);
  }
  if (!sample.last.has_value()) return;
  v1::SampledRank::Event* const last = message->mutable_last();
  last->set_kind(static_cast<int>(sample.last->kind));
  last->set_op(static_cast<int>(sample.last->op));
  last->set_name(sample.last->name);
  last->set_bytes(sample.last->bytes);
  last->set_time(Nanoseconds(sample.last->time));
}

void Fill(const RankSnapshot& rank, v1::SampledRank* message) {
  const Topology& place = rank.identity.topology;
  message->set_rank(place.rank);
  message->set_size(place.size);
  message->set_local_rank(place.local_rank);
  message->set_local_size(place.local_size);
  message->set_cross_rank(place.cross_rank);
  message->set_cross_size(place.cross_size);
  message->set_host(place.hostname);
  message->set_pid(rank.identity.process.pid);
  message->set_start_time(rank.identity.process.start_time);
  message->set_alive(rank.is_alive);
  message->set_state(rank.process_now.state);
  message->set_running(Nanoseconds(rank.process_now.running));
  message->set_waiting(Nanoseconds(rank.process_now.waiting));
  Fill(rank.sample, message);
}

absl::Status Damaged(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("a damaged report of a monitor: ", what));
}

// Returns whether all characters of the name are safe to show on a terminal.
bool IsName(absl::string_view text, size_t longest) {
  return text.size() <= longest && std::all_of(text.begin(), text.end(), absl::ascii_isgraph);
}

// Converts times to this host's clock.
class Clock {
 public:
  explicit Clock(absl::Duration offset) : offset_(offset) {}

  // Zero means that the event has never happened.
  absl::StatusOr<FlightTime> Time(int64_t time) const {
    if (time < 0 || time > kLongestTime) return Damaged("a time that cannot be");
    return time == 0 ? absl::ZeroDuration() : std::max(absl::ZeroDuration(), absl::Nanoseconds(time) + offset_);
  }

 private:
  const absl::Duration offset_;
};

absl::StatusOr<std::vector<BucketEntry>> EntriesOf(const v1::SampledRank& message, const Clock& clock) {
  if (message.entries_size() > RankWords::kEntries) return Damaged("more entries than a rank keeps");
  std::vector<BucketEntry> entries;
  for (const v1::SampledRank::Entry& entry : message.entries()) {
    if (entry.bucket() > message.buckets() || (!entries.empty() && entry.bucket() <= entries.back().bucket)) {
      return Damaged("entries that are not in order");
    }
    if (entry.time() > kLongestTime || entry.spent() > kLongestTime) return Damaged("a time that cannot be");
    RONDA_ASSIGN_OR_RETURN(const FlightTime time, clock.Time(static_cast<int64_t>(entry.time())));
    // At least 1, so that `left` below is never accidentally zero, which would mean that the rank is still in the
    // bucket.
    const auto entered = static_cast<uint64_t>(std::max<int64_t>(1, Nanoseconds(time)));
    entries.push_back({.bucket = entry.bucket(),
                       .time = entered,
                       .step = entry.step(),
                       .left = entry.spent() == 0 ? 0 : entered + entry.spent() - 1});
  }
  return entries;
}

absl::StatusOr<FlightEvent> EventOf(const v1::SampledRank::Event& message, const Clock& clock) {
  const bool is_known = message.kind() >= 1 && message.kind() <= kLastFlightKind && message.op() >= 0 &&
                        message.op() < kOpTypeCount && message.name().size() <= FlightRecorder::kNameBytes;
  if (!is_known) return Damaged("an event that there is not");
  FlightEvent event = {.kind = static_cast<FlightKind>(message.kind()),
                       .op = static_cast<OpType>(message.op()),
                       .name = message.name(),
                       .bytes = message.bytes()};
  std::replace_if(event.name.begin(), event.name.end(), absl::ascii_iscntrl, '?');
  RONDA_ASSIGN_OR_RETURN(event.time, clock.Time(message.time()));
  return event;
}

absl::StatusOr<RankSample> SampleOf(const v1::SampledRank& message, const Clock& clock) {
  RankSample sample = {.buckets = message.buckets(), .first_kept = message.first_kept(), .current = message.current()};
  // A monitor of another version may send more or fewer counts. The counts known to both versions precede all others.
  CountArray counts = {};
  for (int i = 0; i < std::min(message.counts_size(), static_cast<int>(kCounts)); ++i) {
    counts[static_cast<size_t>(i)] = message.counts(i);
  }
  sample.counts = std::bit_cast<Statistics>(counts);
  for (int i = 0; i < std::min(message.collectives_size(), kOpTypeCount * kBucketModeCount); ++i) {
    sample.collectives[i / kBucketModeCount][i % kBucketModeCount] = message.collectives(i);
  }
  for (int i = 0; i < std::min(message.device_nanoseconds_size(), DeviceTimes::kPhases); ++i) {
    sample.device_nanoseconds[static_cast<size_t>(i)] = message.device_nanoseconds(i);
  }
  if (sample.current > sample.buckets || sample.first_kept > sample.buckets + 1 || sample.buckets > kLongestTime) {
    return Damaged("buckets that are not in order");
  }
  RONDA_ASSIGN_OR_RETURN(sample.current_since, clock.Time(message.current_since()));
  RONDA_ASSIGN_OR_RETURN(sample.last_step, clock.Time(message.last_step()));
  RONDA_ASSIGN_OR_RETURN(sample.entries, EntriesOf(message, clock));
  if (message.has_last()) {
    RONDA_ASSIGN_OR_RETURN(sample.last, EventOf(message.last(), clock));
  }
  return sample;
}

absl::StatusOr<RankSnapshot> RankOf(const v1::SampledRank& message, const std::string& job, const Clock& clock) {
  const bool has_place = message.rank() >= 0 && message.rank() < message.size() && message.local_rank() >= 0 &&
                         message.local_rank() < message.local_size() && message.local_size() <= message.size();
  if (!has_place || !IsName(message.host(), RankWords::kHostBytes)) return Damaged("a rank that cannot be");
  const bool has_times = message.running() >= 0 && message.running() <= kLongestTime && message.waiting() >= 0 &&
                         message.waiting() <= kLongestTime && message.state() >= 0 && message.state() < 128;
  if (!has_times) return Damaged("a process that cannot be");
  RankSnapshot rank = {.identity = {.job = job,
                                    .topology = {.rank = message.rank(),
                                                 .size = message.size(),
                                                 .local_rank = message.local_rank(),
                                                 .local_size = message.local_size(),
                                                 .cross_rank = message.cross_rank(),
                                                 .cross_size = message.cross_size(),
                                                 .hostname = message.host()},
                                    .process = {.pid = message.pid(), .start_time = message.start_time()}},
                       .is_alive = message.alive(),
                       .process_now = {.state = static_cast<char>(message.state()),
                                       .running = absl::Nanoseconds(message.running()),
                                       .waiting = absl::Nanoseconds(message.waiting())}};
  RONDA_ASSIGN_OR_RETURN(rank.sample, SampleOf(message, clock));
  return rank;
}

}  // namespace

std::string EncodeHostReport(const JobSnapshot& job, FlightTime now) {
  v1::HostReport report;
  report.set_job(job.job);
  report.set_now(Nanoseconds(now));
  report.set_taken(Nanoseconds(job.now));
  for (const RankSnapshot& rank : job.ranks) {
    if (rank.is_here) Fill(rank, report.add_ranks());
  }
  return report.SerializeAsString();
}

absl::StatusOr<OtherHost> DecodeHostReport(absl::string_view bytes, const Exchange& exchange) {
  v1::HostReport report;
  if (!report.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return Damaged("it is none");
  if (!IsName(report.job(), RankWords::kJobBytes)) return Damaged("a job's name that cannot be");
  if (report.ranks_size() > kMostRanks) return Damaged(absl::StrCat("more than ", kMostRanks, " ranks"));
  if (report.now() < 0 || report.now() > kLongestTime) return Damaged("a time that cannot be");
  const FlightTime written = exchange.asked + (exchange.answered - exchange.asked) / 2;
  const Clock clock(written - absl::Nanoseconds(report.now()));
  OtherHost host = {.job = report.job()};
  RONDA_ASSIGN_OR_RETURN(host.taken, clock.Time(report.taken()));
  host.taken = std::min(host.taken, exchange.answered);
  for (const v1::SampledRank& message : report.ranks()) {
    RONDA_ASSIGN_OR_RETURN(RankSnapshot rank, RankOf(message, host.job, clock));
    host.ranks.push_back(std::move(rank));
  }
  return host;
}

}  // namespace ronda
