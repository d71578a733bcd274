// SPDX-License-Identifier: Apache-2.0

#include "programs/monitor/jobs/job_sampler.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "programs/monitor/jobs/diagnosis.h"
#include "programs/monitor/jobs/last_step.h"

namespace ronda {
namespace {

// Rates are computed over this span of time. kSecond is also how often process data is read, because reading /proc
// takes much longer than reading the ranks' shared memory.
constexpr absl::Duration kSecond = absl::Seconds(1);

// Returns how long the rank has been in buckets so far, including its current bucket.
absl::Duration WaitedBy(const RankSample& sample, FlightTime now) {
  const absl::Duration ended = absl::Nanoseconds(static_cast<int64_t>(sample.counts.bucket_nanoseconds));
  if (sample.current == 0) return ended;
  return ended + std::max(absl::ZeroDuration(), now - sample.current_since);
}

double Ratio(uint64_t part, uint64_t whole) {
  return whole == 0 ? 1 : static_cast<double>(part) / static_cast<double>(whole);
}

// Returns the mean duration of the steps in `entries`, measured from the first bucket of one step to the first bucket
// of a later step. Returns zero if `entries` do not include the first buckets of two steps. The first entry may be any
// bucket of its step, so it does not count.
absl::Duration StepTimeIn(const std::vector<BucketEntry>& entries) {
  const BucketEntry *first = nullptr, *last = nullptr;
  for (size_t i = 1; i < entries.size(); ++i) {
    if (entries[i].step == entries[i - 1].step) continue;
    if (first == nullptr) first = &entries[i];
    last = &entries[i];
  }
  if (first == last) return absl::ZeroDuration();
  return absl::Nanoseconds(static_cast<int64_t>(last->time - first->time)) /
         static_cast<int64_t>(last->step - first->step);
}

}  // namespace

void LatenessHistogram::Add(absl::Duration lateness) {
  const auto bound = std::lower_bound(kLatenessBounds.begin(), kLatenessBounds.end(), lateness);
  ++counts[static_cast<size_t>(bound - kLatenessBounds.begin())];
  ++count;
  sum += lateness;
}

JobSampler::JobSampler(std::vector<std::unique_ptr<RankReader>> ranks)
    : origin_(ranks.empty() ? JobOrigin() : OriginOf(ranks.front()->identity().process.pid)) {
  for (std::unique_ptr<RankReader>& rank : ranks) {
    RankIdentity identity = rank->identity();
    ranks_.push_back({.reader = std::move(rank), .identity = std::move(identity)});
  }
  Gather({});
}

std::vector<JobSampler::RankKey> JobSampler::KeysOf(const OtherHosts& others) {
  std::vector<RankKey> keys;
  for (const auto& [address, host] : others) {
    for (const RankSnapshot& rank : host.ranks) {
      const ProcessId& process = rank.identity.process;
      keys.emplace_back(&host, rank.rank(), process.pid, process.start_time);
    }
  }
  return keys;
}

// If several ranks have the same number, keeps the one on this host, or else the one on the host with the first
// address.
void JobSampler::Gather(const OtherHosts& others) {
  known_ = KeysOf(others);
  std::map<RankId, Rank> gathered;
  for (Rank& rank : ranks_) {
    if (rank.reader == nullptr) continue;
    rank.points.clear();
    rank.first_step = rank.last_step = std::nullopt;
    gathered.emplace(rank.identity.topology.rank, std::move(rank));
  }
  for (const auto& [address, host] : others) {
    for (const RankSnapshot& rank : host.ranks) {
      gathered.try_emplace(rank.rank(), Rank{.host = &host, .identity = rank.identity});
    }
  }
  ranks_.clear();
  std::vector<RankId> numbers;
  for (auto& [number, rank] : gathered) {
    numbers.push_back(number);
    ranks_.push_back(std::move(rank));
  }
  using Clocks = LatenessMeter::Clocks;
  lateness_.emplace(std::move(numbers), known_.empty() ? Clocks::kOne : Clocks::kOfEachHost);
}

void JobSampler::Hear(FlightTime now, const OtherHosts& others) {
  if (KeysOf(others) != known_) Gather(others);
  links_.clear();
  oldest_ = absl::ZeroDuration();
  for (const auto& [address, host] : others) {
    const bool is_heard = now - host.taken < OtherHost::kSilence;
    if (is_heard) oldest_ = std::max(oldest_, now - host.taken);
    HostLink link = {.round_trip = host.round_trip};
    for (const RankSnapshot& told : host.ranks) {
      const auto rank = std::find_if(ranks_.begin(), ranks_.end(), [&host = host, &told](const Rank& known) {
        return known.host == &host && known.identity.topology.rank == told.rank();
      });
      if (rank == ranks_.end()) continue;
      rank->is_heard = is_heard;
      rank->is_alive = told.is_alive;
      rank->told = told.sample;
      rank->told_process = told.process_now;
      link.host = told.identity.topology.hostname;
      link.ranks.push_back(told.rank());
    }
    if (is_heard && !link.ranks.empty()) links_.push_back(std::move(link));
  }
}

void JobSampler::Sample(FlightTime now, const OtherHosts& others) {
  now_ = now;
  Hear(now, others);
  // Process states are read before the ranks' data (RankWords). So if a process has ended, the data read from it is
  // final.
  if (IsTimeToLookAtProcesses(now)) LookAtProcesses(now);
  samples_.clear();
  for (const Rank& rank : ranks_) samples_.push_back(rank.reader != nullptr ? rank.reader->Read() : rank.told);
  lateness_->Add(samples_);
  for (size_t i = 0; i < ranks_.size(); ++i) {
    KeepGrowing(ranks_[i], &samples_[i]);
    const RankLateness& lateness = lateness_->lateness()[i];
    Remember({.time = now,
              .counts = samples_[i].counts,
              .buckets = samples_[i].buckets,
              .last_step = samples_[i].last_step,
              .waited = WaitedBy(samples_[i], now),
              .measured = lateness.histogram.count,
              .lateness = lateness.histogram.sum,
              .blamed = lateness.blamed_wait},
             &ranks_[i]);
  }
}

size_t JobSampler::living() const {
  return static_cast<size_t>(
      std::count_if(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.reader && rank.is_alive; }));
}

bool JobSampler::Watches(const RankIdentity& rank) const {
  return std::any_of(ranks_.begin(), ranks_.end(), [&](const Rank& known) {
    const RankIdentity& identity = known.identity;
    return known.reader != nullptr && identity.topology.rank == rank.topology.rank &&
           identity.process.pid == rank.process.pid && known.reader->IsAlive();
  });
}

// Returns true once per second, even if a timer fires a little early. Also returns true if a rank has left the job:
// other ranks may have died, and the remaining ranks will soon form another epoch.
bool JobSampler::IsTimeToLookAtProcesses(FlightTime now) const {
  if (now - processes_seen_ > kSecond - kPeriod / 2) return true;
  return std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) {
    return rank.reader != nullptr && rank.is_alive && rank.reader->HasShutDown();
  });
}

void JobSampler::LookAtProcesses(FlightTime now) {
  const bool is_first = processes_seen_ == -absl::InfiniteDuration();
  for (Rank& rank : ranks_) {
    rank.process_before = rank.process_now;
    if (rank.reader != nullptr) {
      rank.is_alive = rank.reader->IsAlive();
      rank.process_now = ReadProcessTimes(rank.identity.process.pid).value_or(ProcessTimes{});
    } else {
      rank.process_now = rank.told_process;
    }
    if (is_first) rank.process_before = rank.process_now;
  }
  process_span_ = is_first ? absl::ZeroDuration() : now - processes_seen_;
  processes_seen_ = now;
}

void JobSampler::KeepGrowing(const Rank& rank, RankSample* sample) {
  if (rank.points.empty()) return;
  uint64_t& exposed = sample->counts.exposed_nanoseconds;
  exposed = std::max(exposed, rank.points.back().counts.exposed_nanoseconds);
}

void JobSampler::Remember(const Point& point, Rank* rank) {
  std::deque<Point>& points = rank->points;
  const bool has_step = point.counts.steps > (points.empty() ? 0 : points.back().counts.steps);
  if (has_step && !rank->first_step.has_value()) rank->first_step = point;
  if (has_step) rank->last_step = point;
  points.push_back(point);
  while (points.size() > 2 && point.time - points[1].time >= kSecond) points.pop_front();
}

RankTotals JobSampler::TotalsOf(const Rank& rank, const RankSample& sample) {
  if (!rank.first_step.has_value() || rank.last_step->counts.steps == rank.first_step->counts.steps) {
    return {.step_time = StepTimeIn(sample.entries)};
  }
  const Point &first = *rank.first_step, &last = *rank.last_step;
  const uint64_t steps = last.counts.steps - first.counts.steps;
  const absl::Duration span = last.time - first.time;
  const absl::Duration exposed =
      absl::Nanoseconds(static_cast<int64_t>(last.counts.exposed_nanoseconds - first.counts.exposed_nanoseconds));
  return {.steps = steps,
          .step_time = (last.last_step - first.last_step) / static_cast<int64_t>(steps),
          .exposed = exposed / static_cast<int64_t>(steps),
          .waited_share = std::clamp(absl::FDivDuration(last.waited - first.waited, span), 0.0, 1.0),
          .blamed_share = absl::FDivDuration(last.blamed - first.blamed, span),
          .exposed_share = std::min(1.0, absl::FDivDuration(exposed, span))};
}

absl::Duration JobSampler::NextPeriod() const {
  // Allows a quarter of the ring of entries per period, because a job may become faster.
  constexpr double kBuckets = RankWords::kEntries / 4.0;
  absl::Duration period = kLongestPeriod;
  for (const Rank& rank : ranks_) {
    if (rank.points.size() < 2) return kPeriod;
    const Point &before = rank.points.front(), &now = rank.points.back();
    const auto buckets = static_cast<double>(now.buckets - before.buckets);
    if (buckets > 0) period = std::min(period, kBuckets / buckets * (now.time - before.time));
  }
  return std::max(period, kPeriod);
}

RankRates JobSampler::RatesOf(const Rank& rank) {
  if (rank.points.empty()) return {};
  const Point &before = rank.points.front(), &now = rank.points.back();
  const uint64_t payload = now.counts.payload_bytes - before.counts.payload_bytes;
  const uint64_t wire = now.counts.wire_bytes - before.counts.wire_bytes;
  RankRates rates = {.wire_ratio =
                         payload > 0 ? Ratio(wire, payload) : Ratio(now.counts.wire_bytes, now.counts.payload_bytes)};
  if (now.measured > before.measured) {
    rates.lateness = (now.lateness - before.lateness) / static_cast<int64_t>(now.measured - before.measured);
  }
  const absl::Duration span = now.time - before.time;
  if (span <= absl::ZeroDuration()) return rates;
  const double seconds = absl::ToDoubleSeconds(span);
  rates.steps_per_second = static_cast<double>(now.counts.steps - before.counts.steps) / seconds;
  rates.bytes_per_second = static_cast<double>(payload) / seconds;
  rates.waited_share = std::clamp(absl::FDivDuration(now.waited - before.waited, span), 0.0, 1.0);
  rates.blamed_share = absl::FDivDuration(now.blamed - before.blamed, span);
  return rates;
}

JobSnapshot JobSampler::Snapshot() const {
  JobSnapshot snapshot = {.origin = origin_,
                          .now = now_,
                          .process_span = process_span_,
                          .buckets_measured = lateness_->measured(),
                          .buckets_missed = lateness_->missed()};
  for (size_t i = 0; i < samples_.size(); ++i) {
    const Rank& rank = ranks_[i];
    snapshot.ranks.push_back({.identity = rank.identity,
                              .is_here = rank.reader != nullptr,
                              .is_alive = rank.is_alive,
                              .is_heard = rank.is_heard,
                              .sample = samples_[i],
                              .lateness = lateness_->lateness()[i],
                              .rates = RatesOf(rank),
                              .totals = TotalsOf(rank, samples_[i]),
                              .process_before = rank.process_before,
                              .process_now = rank.process_now});
  }
  if (!snapshot.ranks.empty()) snapshot.job = snapshot.ranks.front().identity.job;
  snapshot.standstill = FindStandstill(
      snapshot.ranks, {.now = now_, .watched = process_span_, .threshold = kStandstillThreshold + oldest_});
  snapshot.straggler = lateness_->straggler().Judge();
  for (size_t i = 0; i < snapshot.ranks.size(); ++i) {
    if (snapshot.ranks[i].rank() == snapshot.straggler.rank) {
      snapshot.straggler.why = WhyLate(snapshot.ranks, i, process_span_);
    }
  }
  snapshot.network = FindSlowNetwork(snapshot.ranks, links_);
  snapshot.last_step = FindLastStep(snapshot.ranks, [this](size_t index) { return ranks_[index].reader->Events(); });
  // A slow network makes ranks late. So a late rank is not reported as a straggler unless its lateness has another
  // known reason.
  if (snapshot.network.has_value() && snapshot.straggler.why == Holdup::kNotSubmitted) snapshot.straggler = {};
  return snapshot;
}

}  // namespace ronda
