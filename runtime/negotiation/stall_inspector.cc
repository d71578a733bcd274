#include "runtime/negotiation/stall_inspector.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace ronda {
namespace {

constexpr size_t kRanksNamed = 8;
constexpr size_t kTensorsNamed = 3;

// "rank 1 (host h, pid 42), which has submitted 'b' instead"
std::string DescribeLateRank(const Negotiator& negotiator, RankId rank) {
  const std::vector<std::string> others = negotiator.SubmittedBy(rank, kTensorsNamed);
  const std::string instead = others.empty()
                                  ? ", which has nothing else in flight"
                                  : absl::StrCat(", which has submitted '", absl::StrJoin(others, "', '"), "' instead");
  return negotiator.Describe(rank) + instead;
}

std::string DescribeStall(const Negotiator& negotiator, const Negotiator::Waiting& waiting, absl::Time now) {
  std::vector<std::string> late;
  for (RankId rank : waiting.missing) {
    if (late.size() == kRanksNamed) {
      late.push_back(absl::StrCat(waiting.missing.size() - kRanksNamed, " more ranks"));
      break;
    }
    late.push_back(DescribeLateRank(negotiator, rank));
  }
  const size_t ranks = waiting.present.size() + waiting.missing.size();
  return absl::StrCat(waiting.description, " has waited for ",
                      absl::FormatDuration(absl::Trunc(now - waiting.since, absl::Milliseconds(1))), ": ",
                      waiting.present.size(), " of ", ranks, " ranks are ready; missing: ", absl::StrJoin(late, "; "));
}

}  // namespace

std::vector<StallInspector::Finding> StallInspector::Inspect(const Negotiator& negotiator, absl::Time now) {
  std::vector<Finding> findings;
  absl::flat_hash_map<std::string, absl::Time> still_waiting;
  for (const Negotiator::Waiting& waiting :
       negotiator.WaitingSince(now - std::min(options_.warning, options_.deadline))) {
    if (now - waiting.since >= options_.deadline) {
      findings.push_back({waiting.name, DescribeStall(negotiator, waiting, now), Finding::Verdict::kFail});
      continue;
    }
    still_waiting.emplace(waiting.name, waiting.since);
    const auto warned = warned_.find(waiting.name);
    if (warned != warned_.end() && warned->second == waiting.since) continue;
    findings.push_back({waiting.name, DescribeStall(negotiator, waiting, now), Finding::Verdict::kWarn});
  }
  warned_ = std::move(still_waiting);
  return findings;
}

absl::Time StallInspector::NextInspection(const Negotiator& negotiator, absl::Time now) const {
  if (!negotiator.anything_waits()) return absl::InfiniteFuture();
  return now + std::min(options_.warning, options_.deadline) / 8;
}

}  // namespace ronda
