// SPDX-License-Identifier: Apache-2.0

#include "programs/monitor/jobs/diagnosis.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <vector>

namespace ronda {
namespace {

// A rank is starved if its threads wait for a core longer than those of the other ranks, by more than this share of the
// watched time.
constexpr double kStarvedShare = 0.25;

// Within one network, a round trip takes less than a millisecond. Between more distant hosts, every round trip may take
// kSlowRoundTrip. So FindSlowNetwork() returns a host only while all ranks spend at least kWaitingShare of their time
// in buckets.
constexpr absl::Duration kSlowRoundTrip = absl::Milliseconds(10);
constexpr double kFarther = 3;          // times as far as the nearest host
constexpr double kWaitingShare = 0.25;  // of each rank's time is in buckets

bool IsStopped(const RankSnapshot& rank) { return rank.process_now.state == 'T' || rank.process_now.state == 't'; }

absl::Duration WaitedForCores(const RankSnapshot& rank) {
  return rank.process_now.waiting - rank.process_before.waiting;
}

// Returns the mean of `value` over all ranks except ranks[except], or zero if there are no other ranks.
template <typename Value>
absl::Duration MeanOfOthers(absl::Span<const RankSnapshot> ranks, size_t except, const Value& value) {
  absl::Duration sum;
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (i != except) sum += value(i);
  }
  return ranks.size() < 2 ? absl::ZeroDuration() : sum / static_cast<int64_t>(ranks.size() - 1);
}

// If a host has too few cores, all of its ranks wait for cores equally. Such a wait makes no single rank late, so
// IsStarved() subtracts the mean wait of the other ranks.
bool IsStarved(absl::Span<const RankSnapshot> ranks, size_t index, absl::Duration watched) {
  const absl::Duration others = MeanOfOthers(ranks, index, [&](size_t i) { return WaitedForCores(ranks[i]); });
  return WaitedForCores(ranks[index]) - others > kStarvedShare * watched;
}

// The bucket for which a rank waits, and since when. Bucket 0 stands for the coordinator's answer. WaitOf() returns
// nullopt if the rank is not waiting.
struct Wait {
  uint64_t bucket = 0;
  FlightTime since;
};
std::optional<Wait> WaitOf(const RankSnapshot& rank) {
  const RankSample& sample = rank.sample;
  if (sample.current != 0) return Wait{.bucket = sample.current, .since = sample.current_since};
  // If tensors are in flight but the engine is in no bucket, the engine is waiting for the coordinator's answer.
  if (sample.counts.tensors_in_flight == 0 || !sample.last.has_value()) return std::nullopt;
  return Wait{.bucket = 0, .since = sample.last->time};
}

// Returns whether the rank has not yet reached the bucket for which the other ranks wait (0: the coordinator's answer).
// If a host does not answer, its last report is out of date, so its ranks count as missing.
bool IsMissing(const RankSnapshot& rank, const std::optional<Wait>& wait, uint64_t bucket) {
  if (!rank.is_heard) return true;
  if (bucket == 0) return !wait.has_value();
  return rank.sample.buckets < bucket;
}

}  // namespace

const char* Name(StragglerVerdict::Kind kind) {
  switch (kind) {
    case StragglerVerdict::Kind::kNone:
      return "none";
    case StragglerVerdict::Kind::kEvent:
      return "event";
    case StragglerVerdict::Kind::kOneOff:
      return "one-off";
    case StragglerVerdict::Kind::kChronic:
      return "chronic";
  }
  return "";
}

const char* Describe(Holdup holdup) {
  switch (holdup) {
    case Holdup::kStopped:
      return "its process is stopped";
    case Holdup::kEnded:
      return "its process has ended";
    case Holdup::kStarved:
      return "its process is starved of CPU";
    case Holdup::kNetwork:
      return "the network: all ranks are in the collective, and its data does not move";
    case Holdup::kUnheard:
      return "the network: its host does not answer";
    case Holdup::kNotSubmitted:
      return "its program has not submitted the tensor";
  }
  return "";
}

Holdup WhyLate(absl::Span<const RankSnapshot> ranks, size_t index, absl::Duration watched) {
  if (!ranks[index].is_heard) return Holdup::kUnheard;
  if (!ranks[index].is_alive) return Holdup::kEnded;
  if (IsStopped(ranks[index])) return Holdup::kStopped;
  return IsStarved(ranks, index, watched) ? Holdup::kStarved : Holdup::kNotSubmitted;
}

std::optional<SlowNetwork> FindSlowNetwork(absl::Span<const RankSnapshot> ranks, const std::vector<HostLink>& links) {
  if (links.empty()) return std::nullopt;
  const auto by_time = [](const HostLink& a, const HostLink& b) { return a.round_trip < b.round_trip; };
  const auto [nearest, farthest] = std::minmax_element(links.begin(), links.end(), by_time);
  if (farthest->round_trip < kSlowRoundTrip) return std::nullopt;
  SlowNetwork slow = {
      .host = farthest->host, .ranks = farthest->ranks, .round_trip = farthest->round_trip, .waited_share = 1};
  for (const RankSnapshot& rank : ranks) slow.waited_share = std::min(slow.waited_share, rank.rates.waited_share);
  if (slow.waited_share < kWaitingShare) return std::nullopt;
  if (links.size() > 1 && farthest->round_trip < kFarther * nearest->round_trip) {
    slow.host.clear();
    slow.ranks.clear();
    slow.round_trip = nearest->round_trip;
    std::set<RankId> others;
    for (const HostLink& link : links) others.insert(link.ranks.begin(), link.ranks.end());
    for (const RankSnapshot& rank : ranks) {
      if (others.contains(rank.rank())) continue;
      slow.host = rank.identity.topology.hostname;
      slow.ranks.push_back(rank.rank());
    }
    if (slow.round_trip < kSlowRoundTrip) return std::nullopt;
  }
  return slow;
}

std::optional<Standstill> FindStandstill(absl::Span<const RankSnapshot> ranks, const Moment& moment) {
  std::vector<std::optional<Wait>> waits;
  uint64_t bucket = 0;  // the first bucket in which ranks are
  for (const RankSnapshot& rank : ranks) {
    waits.push_back(WaitOf(rank));
    const uint64_t current = rank.sample.current;
    if (current != 0) bucket = bucket == 0 ? current : std::min(bucket, current);
  }
  Standstill found = {.since = absl::InfiniteDuration()};
  std::vector<size_t> missing, halted;
  for (size_t i = 0; i < ranks.size(); ++i) {
    const bool is_missing = IsMissing(ranks[i], waits[i], bucket);
    if (is_missing) missing.push_back(i);
    const bool is_halted = IsStopped(ranks[i]) || !ranks[i].is_alive;
    if (is_halted) halted.push_back(i);
    if (is_missing || is_halted || !waits[i].has_value()) continue;
    found.waiting.push_back(ranks[i].rank());
    if (waits[i]->since >= found.since) continue;
    found.since = waits[i]->since;
    if (ranks[i].sample.last.has_value()) found.tensor = ranks[i].sample.last->name;
  }
  if (found.waiting.empty() || moment.now - found.since < moment.threshold) return std::nullopt;
  for (const size_t i : missing.empty() ? halted : missing) {
    found.blamed.push_back({.rank = ranks[i].rank(), .why = WhyLate(ranks, i, moment.watched)});
  }
  if (found.blamed.empty() && bucket != 0) {
    for (const RankId rank : found.waiting) found.blamed.push_back({.rank = rank, .why = Holdup::kNetwork});
  }
  if (found.blamed.empty()) return std::nullopt;
  return found;
}

}  // namespace ronda
