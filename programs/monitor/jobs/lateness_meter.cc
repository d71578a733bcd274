// SPDX-License-Identifier: Apache-2.0

#include "programs/monitor/jobs/lateness_meter.h"

#include <algorithm>
#include <utility>

namespace ronda {
namespace {

FlightTime FromNanoseconds(uint64_t time) { return absl::Nanoseconds(static_cast<int64_t>(time)); }

}  // namespace

// Returns the last bucket that can be measured for this rank: the newest bucket that it has entered or, if hosts have
// different clocks, has left. If the rank has counted the newest bucket but not recorded it, the rank may still be
// about to enter it.
uint64_t LatenessMeter::LastToMeasure(const RankSample& sample) const {
  const bool is_in_newest = !sample.entries.empty() && sample.entries.back().bucket >= sample.buckets;
  const bool is_known = is_in_newest && (clocks_ == Clocks::kOne || sample.entries.back().left != 0);
  return is_known ? sample.buckets : sample.buckets - std::min<uint64_t>(sample.buckets, 1);
}

void LatenessMeter::Add(absl::Span<const RankSample> samples) {
  if (samples.empty()) return;
  uint64_t first = 1, last = ~uint64_t{0};
  for (const RankSample& sample : samples) {
    first = std::max(first, sample.first_kept);
    last = std::min(last, LastToMeasure(sample));
  }
  if (next_ != 0 && first > next_) {
    missed_ += first - next_;
    straggler_.Skip();
  }
  first = std::max(first, next_);
  std::map<uint64_t, std::vector<Entered>> buckets;
  for (size_t i = 0; i < samples.size(); ++i) {
    for (const BucketEntry& entry : samples[i].entries) {
      if (entry.bucket >= first && entry.bucket <= last) buckets[entry.bucket].push_back({i, &entry});
    }
  }
  for (auto& [number, entries] : buckets) {
    if (entries.size() >= 2) Measure(std::move(entries));
  }
  next_ = std::max(first, last + 1);
}

uint64_t LatenessMeter::Compare(std::vector<Entered>* entries) const {
  if (clocks_ == Clocks::kOne) {
    uint64_t first = ~uint64_t{0};
    for (const Entered& entered : *entries) first = std::min(first, entered.entry->time);
    for (Entered& entered : *entries) entered.late = entered.entry->time - first;
    return first;
  }
  const auto spent = [](const Entered& entered) {
    return entered.entry->left - std::min(entered.entry->left, entered.entry->time);
  };
  uint64_t longest = 0;
  for (const Entered& entered : *entries) longest = std::max(longest, spent(entered));
  for (Entered& entered : *entries) entered.late = longest - spent(entered);
  const uint64_t left = entries->front().entry->left;
  return left - std::min(left, longest);
}

void LatenessMeter::Measure(std::vector<Entered> entries) {
  const FlightTime first = FromNanoseconds(Compare(&entries));
  const auto by_lateness = [](const Entered& a, const Entered& b) { return a.late < b.late; };
  const Entered& latest = *std::minmax_element(entries.begin(), entries.end(), by_lateness).second;
  ++measured_;
  for (const Entered& entered : entries) lateness_[entered.rank].histogram.Add(FromNanoseconds(entered.late));
  ++lateness_[latest.rank].last;
  lateness_[latest.rank].blamed_wait += FromNanoseconds(latest.late);
  straggler_.Add({.step = entries.front().entry->step,
                  .first = first,
                  .last = ranks_[latest.rank],
                  .waited = FromNanoseconds(latest.late)});
}

}  // namespace ronda
