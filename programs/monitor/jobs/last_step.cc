// SPDX-License-Identifier: Apache-2.0

#include "programs/monitor/jobs/last_step.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

namespace ronda {
namespace {

// The number of steps to try, from the newest backwards. When one rank has finished the newest step, another rank may
// still be in it.
constexpr uint64_t kStepsToTry = 3;

FlightTime FromNanoseconds(uint64_t time) { return absl::Nanoseconds(static_cast<int64_t>(time)); }

// The numbers of the first and last bucket of a step.
struct BucketRange {
  uint64_t first = 0;
  uint64_t last = 0;
};

// Returns the buckets of a step, or nullopt if `sample` does not cover the whole step.
std::optional<BucketRange> BucketsOf(const RankSample& sample, uint64_t step) {
  std::optional<BucketRange> found;
  bool has_earlier = false;
  for (const BucketEntry& entry : sample.entries) {
    if (entry.bucket < sample.first_kept) continue;
    if (entry.step < step) has_earlier = true;
    if (entry.step != step) continue;
    if (!found.has_value()) found = BucketRange{.first = entry.bucket};
    found->last = entry.bucket;
  }
  if (!found.has_value() || (!has_earlier && found->first != 1)) return std::nullopt;
  return found;
}

bool HasLeftAll(const RankSample& sample, const BucketRange& range) {
  if (sample.first_kept > range.first || sample.buckets < range.last) return false;
  return std::all_of(sample.entries.begin(), sample.entries.end(), [&](const BucketEntry& entry) {
    return entry.bucket < range.first || entry.bucket > range.last || entry.left != 0;
  });
}

// Returns when the rank left the last bucket before the step. If that time is unknown, returns when the rank entered
// the first bucket of the step.
FlightTime BeginOf(const RankSample& sample, const BucketRange& range) {
  uint64_t begin = 0;
  for (const BucketEntry& entry : sample.entries) {
    if (entry.bucket < range.first) begin = std::max(begin, entry.left);
    if (entry.bucket >= range.first && begin == 0) begin = entry.time;
  }
  return begin == 0 ? absl::InfiniteDuration() : FromNanoseconds(begin);
}

// Names each bucket after the event that the rank recorded when the bucket started.
void NameBuckets(RankId rank, absl::Span<const FlightEvent> events, std::vector<StepBucket>* buckets) {
  for (StepBucket& bucket : *buckets) {
    const auto part = std::find_if(bucket.parts.begin(), bucket.parts.end(),
                                   [&](const BucketPart& each) { return each.rank == rank; });
    if (part == bucket.parts.end() || !bucket.name.empty()) continue;
    const auto started = std::find_if(events.begin(), events.end(), [&](const FlightEvent& event) {
      return event.kind == FlightKind::kStarted && event.time >= part->entered && event.time <= part->left;
    });
    if (started == events.end()) continue;
    bucket.name = started->name;
    bucket.bytes = started->bytes;
  }
}

StepRecord RecordOf(absl::Span<const RankSnapshot* const> ranks, const BucketRange& range) {
  StepRecord record = {.begin = absl::InfiniteDuration(), .end = -absl::InfiniteDuration()};
  std::map<uint64_t, StepBucket> buckets;
  for (const RankSnapshot* rank : ranks) {
    record.begin = std::min(record.begin, BeginOf(rank->sample, range));
    for (const BucketEntry& entry : rank->sample.entries) {
      if (entry.bucket < range.first || entry.bucket > range.last) continue;
      const BucketPart part = {
          .rank = rank->rank(), .entered = FromNanoseconds(entry.time), .left = FromNanoseconds(entry.left)};
      StepBucket& bucket = buckets[entry.bucket];
      bucket.complete = std::max(bucket.complete, part.entered);
      bucket.parts.push_back(part);
      record.end = std::max(record.end, part.left);
    }
  }
  for (auto& [number, bucket] : buckets) record.buckets.push_back(std::move(bucket));
  return record;
}

}  // namespace

std::optional<StepRecord> FindLastStep(absl::Span<const RankSnapshot> ranks, const EventsOfRank& events) {
  std::vector<const RankSnapshot*> here;
  for (const RankSnapshot& rank : ranks) {
    if (rank.is_here) here.push_back(&rank);
  }
  if (here.empty()) return std::nullopt;
  const RankSample& first = here.front()->sample;
  std::optional<BucketRange> range;
  for (uint64_t back = 1; back <= std::min(kStepsToTry, first.counts.steps); ++back) {
    range = BucketsOf(first, first.counts.steps - back);
    const auto has_left = [&](const RankSnapshot* rank) { return HasLeftAll(rank->sample, *range); };
    if (range.has_value() && std::all_of(here.begin(), here.end(), has_left)) break;
    range.reset();
  }
  if (!range.has_value()) return std::nullopt;
  StepRecord record = RecordOf(here, *range);
  for (size_t i = 0; i < ranks.size(); ++i) {
    const auto is_named = [](const StepBucket& bucket) { return !bucket.name.empty(); };
    if (std::all_of(record.buckets.begin(), record.buckets.end(), is_named)) break;
    if (ranks[i].is_here) NameBuckets(ranks[i].rank(), events(i), &record.buckets);
  }
  return record;
}

}  // namespace ronda
