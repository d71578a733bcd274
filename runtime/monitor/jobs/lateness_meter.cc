#include "runtime/monitor/jobs/lateness_meter.h"

#include <algorithm>

namespace ronda {
namespace {

// The last bucket that `sample` is past, or in. Between its count of the newest bucket and its entry a rank may, or may
// not, come into it.
uint64_t LastSurelyEntered(const RankSample& sample) {
  const bool is_in_newest = !sample.entries.empty() && sample.entries.back().bucket >= sample.buckets;
  return is_in_newest ? sample.buckets : sample.buckets - std::min<uint64_t>(sample.buckets, 1);
}

}  // namespace

void LatenessMeter::Add(absl::Span<const RankSample> samples) {
  if (samples.empty()) return;
  uint64_t first = 1, last = ~uint64_t{0};
  for (const RankSample& sample : samples) {
    first = std::max(first, sample.first_kept);
    last = std::min(last, LastSurelyEntered(sample));
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
  for (const auto& [number, entries] : buckets) {
    if (entries.size() >= 2) Measure(entries);
  }
  next_ = std::max(first, last + 1);
}

void LatenessMeter::Measure(const std::vector<Entered>& entries) {
  const auto by_time = [](const Entered& a, const Entered& b) { return a.entry->time < b.entry->time; };
  const auto [earliest, latest] = std::minmax_element(entries.begin(), entries.end(), by_time);
  const auto late = [first = earliest->entry->time](const Entered& entered) {
    return absl::Nanoseconds(static_cast<int64_t>(entered.entry->time - first));
  };
  ++measured_;
  for (const Entered& entered : entries) lateness_[entered.rank].histogram.Add(late(entered));
  ++lateness_[latest->rank].last;
  lateness_[latest->rank].blamed_wait += late(*latest);
  straggler_.Add({.step = entries.front().entry->step,
                  .first = absl::Nanoseconds(static_cast<int64_t>(earliest->entry->time)),
                  .last = ranks_[latest->rank],
                  .waited = late(*latest)});
}

}  // namespace ronda
