#include "runtime/monitor/jobs/diagnosis.h"

#include <algorithm>
#include <map>
#include <utility>

namespace ronda {
namespace {

// Of the time that a rank was watched, its threads have waited for a core.
constexpr double kStarvedShare = 0.25;

constexpr int kFewestBuckets = 20;
constexpr double kStragglersShare = 0.05;

bool IsStopped(const WatchedRank& rank) { return rank.after.state == 'T' || rank.after.state == 't'; }

absl::Duration WaitedForCores(const WatchedRank& rank) { return rank.after.waiting - rank.before.waiting; }

// The mean over the ranks but for `rank`; zero if there is no other.
template <typename Value>
absl::Duration MeanOfOthers(absl::Span<const WatchedRank> ranks, size_t except, const Value& value) {
  absl::Duration sum;
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (i != except) sum += value(i);
  }
  return ranks.size() < 2 ? absl::ZeroDuration() : sum / static_cast<int64_t>(ranks.size() - 1);
}

// On a host with too few cores all ranks wait for them, and that makes none of them late.
bool IsStarved(absl::Span<const WatchedRank> ranks, size_t index, absl::Duration watched) {
  const absl::Duration others = MeanOfOthers(ranks, index, [&](size_t i) { return WaitedForCores(ranks[i]); });
  return WaitedForCores(ranks[index]) - others > kStarvedShare * watched;
}

Holdup WhyLate(absl::Span<const WatchedRank> ranks, size_t index, absl::Duration watched) {
  if (IsStopped(ranks[index])) return Holdup::kStopped;
  return IsStarved(ranks, index, watched) ? Holdup::kStarved : Holdup::kNotSubmitted;
}

// When the rank began to wait, and for which bucket; 0: for the coordinator's answer. nullopt: it does not wait.
struct Wait {
  uint64_t bucket = 0;
  FlightTime since;
};
std::optional<Wait> WaitOf(const WatchedRank& rank) {
  const RankSample& sample = rank.sample;
  if (sample.current != 0) return Wait{.bucket = sample.current, .since = sample.current_since};
  // An engine that carries nothing out, with tensors in flight, waits for the coordinator's answer.
  if (sample.counts.tensors_in_flight == 0 || !sample.last.has_value()) return std::nullopt;
  return Wait{.bucket = 0, .since = sample.last->time};
}

// The rank is not past, and not in, what the others wait for.
bool IsMissing(const WatchedRank& rank, const std::optional<Wait>& wait, uint64_t bucket) {
  if (bucket == 0) return !wait.has_value();
  return rank.sample.buckets < bucket;
}

}  // namespace

const char* Describe(Holdup holdup) {
  switch (holdup) {
    case Holdup::kStopped:
      return "its process is stopped";
    case Holdup::kStarved:
      return "its process is starved of CPU";
    case Holdup::kNetwork:
      return "all ranks are in the collective, and its data does not move";
    case Holdup::kNotSubmitted:
      return "its program has not submitted the tensor";
  }
  return "";
}

std::optional<Standstill> FindStandstill(absl::Span<const WatchedRank> ranks, const Moment& moment) {
  std::vector<std::optional<Wait>> waits;
  uint64_t bucket = 0;  // the first one that ranks are in
  for (const WatchedRank& rank : ranks) {
    waits.push_back(WaitOf(rank));
    const uint64_t current = rank.sample.current;
    if (current != 0) bucket = bucket == 0 ? current : std::min(bucket, current);
  }
  Standstill found = {.since = absl::InfiniteDuration()};
  std::vector<size_t> missing, stopped;
  for (size_t i = 0; i < ranks.size(); ++i) {
    const bool is_missing = IsMissing(ranks[i], waits[i], bucket);
    if (is_missing) missing.push_back(i);
    if (IsStopped(ranks[i])) stopped.push_back(i);
    if (is_missing || IsStopped(ranks[i]) || !waits[i].has_value()) continue;
    found.waiting.push_back(ranks[i].rank);
    if (waits[i]->since >= found.since) continue;
    found.since = waits[i]->since;
    if (ranks[i].sample.last.has_value()) found.tensor = ranks[i].sample.last->name;
  }
  if (found.waiting.empty() || moment.now - found.since < moment.patience) return std::nullopt;
  for (const size_t i : missing.empty() ? stopped : missing) {
    found.blamed.push_back({.rank = ranks[i].rank, .why = WhyLate(ranks, i, moment.watched)});
  }
  if (found.blamed.empty() && bucket != 0) {
    for (const RankId rank : found.waiting) found.blamed.push_back({.rank = rank, .why = Holdup::kNetwork});
  }
  if (found.blamed.empty()) return std::nullopt;
  return found;
}

Lateness MeasureLateness(absl::Span<const WatchedRank> ranks, absl::Duration watched) {
  // A bucket counts if every rank is past it and has not overwritten its place since.
  uint64_t first = 1, last = ~uint64_t{0};
  for (const WatchedRank& rank : ranks) {
    const uint64_t buckets = rank.sample.buckets;
    // One more for a bucket that the rank may have entered while it was read.
    if (buckets >= RankWords::kEntries) first = std::max(first, buckets - RankWords::kEntries + 2);
    last = std::min(last, buckets);
  }
  struct Entered {
    size_t rank;
    uint64_t time;
  };
  std::map<uint64_t, std::vector<Entered>> entered;
  for (size_t i = 0; i < ranks.size(); ++i) {
    for (const BucketEntry& entry : ranks[i].sample.entries) {
      if (entry.bucket >= first && entry.bucket <= last) entered[entry.bucket].push_back({i, entry.time});
    }
  }
  Lateness lateness;
  for (size_t i = 0; i < ranks.size(); ++i) {
    lateness.ranks.push_back({.rank = ranks[i].rank, .why = WhyLate(ranks, i, watched)});
  }
  uint64_t begin = ~uint64_t{0}, end = 0;
  for (const auto& [bucket, entries] : entered) {
    if (entries.size() < 2) continue;
    const auto by_time = [](const Entered& a, const Entered& b) { return a.time < b.time; };
    const auto [earliest, latest] = std::minmax_element(entries.begin(), entries.end(), by_time);
    ++lateness.buckets;
    begin = std::min(begin, earliest->time);
    end = std::max(end, latest->time);
    for (const Entered& entry : entries) {
      lateness.ranks[entry.rank].total += absl::Nanoseconds(static_cast<int64_t>(entry.time - earliest->time));
    }
    ++lateness.ranks[latest->rank].last;
    lateness.ranks[latest->rank].blamed += absl::Nanoseconds(static_cast<int64_t>(latest->time - earliest->time));
  }
  if (lateness.buckets > 0) lateness.span = absl::Nanoseconds(static_cast<int64_t>(end - begin));
  return lateness;
}

const RankLateness* FindStraggler(const Lateness& lateness) {
  if (lateness.buckets < kFewestBuckets) return nullptr;
  absl::Duration all;
  for (const RankLateness& rank : lateness.ranks) all += rank.blamed;
  const auto others = static_cast<int64_t>(lateness.ranks.size()) - 1;
  for (const RankLateness& rank : lateness.ranks) {
    const absl::Duration beyond = rank.blamed - (all - rank.blamed) / std::max<int64_t>(others, 1);
    if (2 * rank.last >= lateness.buckets && beyond > kStragglersShare * lateness.span) return &rank;
  }
  return nullptr;
}

}  // namespace ronda
