#include "runtime/negotiation/stall_inspector.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace ronda {
namespace {

constexpr size_t kRanksNamed = 8;
constexpr size_t kTensorsNamed = 3;

}  // namespace

// "rank 1 (host h, pid 42), which has submitted 'b' instead and did last, 12 s ago: started allreduce 'x'"
std::string StallInspector::DescribeLateRank(const Negotiator& negotiator, RankId rank) const {
  const std::vector<std::string> others = negotiator.SubmittedBy(rank, kTensorsNamed);
  std::string text = negotiator.Describe(rank);
  if (others.empty()) {
    absl::StrAppend(&text, ", which has nothing else in flight");
  } else {
    absl::StrAppend(&text, ", which has submitted '", absl::StrJoin(others, "', '"), "' instead");
  }
  const std::string last_act = options_.last_act ? options_.last_act(rank) : "";
  if (!last_act.empty()) absl::StrAppend(&text, " and ", last_act);
  return text;
}

std::string StallInspector::DescribeStall(const Negotiator& negotiator, const Waiting& waiting, absl::Time now) const {
  const size_t ranks = waiting.present.size() + waiting.missing.size();
  std::string text = absl::StrCat(waiting.description, " has waited for ",
                                  absl::FormatDuration(absl::Trunc(now - waiting.since, absl::Milliseconds(1))), ": ",
                                  waiting.present.size(), " of ", ranks, " ranks are ready");
  if (waiting.missing.empty()) return text;
  std::vector<std::string> late;
  for (RankId rank : waiting.missing) {
    if (late.size() == kRanksNamed) {
      late.push_back(absl::StrCat(waiting.missing.size() - kRanksNamed, " more ranks"));
      break;
    }
    late.push_back(DescribeLateRank(negotiator, rank));
  }
  absl::StrAppend(&text, "; missing: ", absl::StrJoin(late, "; "));
  return text;
}

std::vector<StallInspector::Finding> StallInspector::Inspect(const Negotiator& negotiator, absl::Time now) {
  std::vector<Finding> findings;
  absl::flat_hash_map<TensorKey, absl::Time> still_waiting;
  for (const Waiting& waiting : negotiator.Overdue(now)) {
    if (now - waiting.since >= waiting.limits.deadline) {
      findings.push_back({waiting.tensor, DescribeStall(negotiator, waiting, now), Finding::Verdict::kFail});
      continue;
    }
    still_waiting.emplace(waiting.tensor, waiting.since);
    const auto warned = warned_.find(waiting.tensor);
    if (warned != warned_.end() && warned->second == waiting.since) continue;
    findings.push_back({waiting.tensor, DescribeStall(negotiator, waiting, now), Finding::Verdict::kWarn});
  }
  warned_ = std::move(still_waiting);
  return findings;
}

absl::Time StallInspector::NextInspection(const Negotiator& negotiator, absl::Time now) const {
  return now + negotiator.ShortestLimit() / 8;
}

}  // namespace ronda
