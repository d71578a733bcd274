#include "runtime/control/tree/report_batch.h"

#include <algorithm>
#include <utility>

namespace ronda {

uint64_t ReportBatch::Earliest(const std::vector<RankId>& ranks) const {
  uint64_t earliest = first_number_;
  for (const RankId rank : ranks) {
    const auto last = last_of_rank_.find(rank);
    if (last != last_of_rank_.end()) earliest = std::max(earliest, last->second + 1);
  }
  return earliest;
}

void ReportBatch::Add(SharedReport report) {
  const auto equal = last_of_payload_.find(report.payload);
  const bool joins = equal != last_of_payload_.end() && equal->second >= Earliest(report.ranks);
  const uint64_t number = joins ? equal->second : next_number();
  for (const RankId rank : report.ranks) last_of_rank_[rank] = number;
  if (joins) {
    std::vector<RankId>& ranks = reports_[number - first_number_].ranks;
    ranks.insert(ranks.end(), report.ranks.begin(), report.ranks.end());
    return;
  }
  if (equal != last_of_payload_.end()) last_of_payload_.erase(equal);
  reports_.push_back(std::move(report));
  last_of_payload_[reports_.back().payload] = number;
}

SharedReport ReportBatch::PopFront() {
  SharedReport& front = reports_.front();
  const auto last = last_of_payload_.find(front.payload);
  if (last != last_of_payload_.end() && last->second == first_number_) last_of_payload_.erase(last);
  SharedReport taken = std::move(front);
  reports_.pop_front();
  ++first_number_;
  std::sort(taken.ranks.begin(), taken.ranks.end());
  return taken;
}

std::vector<SharedReport> ReportBatch::Take(size_t max_bytes) {
  std::vector<SharedReport> taken;
  size_t bytes = 0;
  while (!reports_.empty()) {
    bytes += reports_.front().payload.size();
    if (!taken.empty() && bytes > max_bytes) break;
    taken.push_back(PopFront());
  }
  return taken;
}

}  // namespace ronda
