#include "runtime/negotiation/stall_inspector.h"

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace ronda {
namespace {

constexpr size_t kRanksNamed = 8;
constexpr size_t kTensorsNamed = 3;

bool IsOverdue(absl::Time since, const WaitLimits& limits, absl::Time now) {
  return now - since >= std::min(limits.warning, limits.deadline);
}

}  // namespace

absl::Duration WaitingView::ShortestLimit() const {
  if (empty()) return absl::InfiniteDuration();
  absl::Duration shortest = std::min(limits_.warning, limits_.deadline);
  if (own_limits_ == OwnLimits::kNone) return shortest;
  const auto take = [&](const TensorRequest& request) {
    const WaitLimits limits = LimitsOf(request);
    shortest = std::min({shortest, limits.warning, limits.deadline});
  };
  tables_.pending.ForEach([&](const PendingTensor& tensor) { take(tensor.request()); });
  for (ProcessSetId set : tables_.joins.sets()) take(tables_.joins.Find(set)->request);
  for (const auto& [key, group] : tables_.groups.held()) take(group.tensors.front().tensor->request());
  return shortest;
}

std::vector<Waiting> WaitingView::Overdue(absl::Time now) const {
  std::vector<Waiting> waiting;
  tables_.pending.ForEach([&](const PendingTensor& tensor) {
    if (IsOverdue(tensor.since, LimitsOf(tensor.request()), now)) waiting.push_back(WaitingOf(tensor));
  });
  for (ProcessSetId set : tables_.joins.sets()) {
    const SetJoins& joins = *tables_.joins.Find(set);
    if (IsOverdue(joins.since, LimitsOf(joins.request), now)) waiting.push_back(WaitingOf(joins));
  }
  for (const auto& [key, group] : tables_.groups.held()) {
    const WaitLimits limits = LimitsOf(group.tensors.front().tensor->request());
    if (IsOverdue(group.since, limits, now)) waiting.push_back(WaitingOf(group));
  }
  if (tables_.ranks.some_departed() && IsOverdue(tables_.ranks.first_departure(), limits_, now)) {
    waiting.push_back(WaitingForDepartures());
  }
  std::sort(waiting.begin(), waiting.end(), [](const Waiting& a, const Waiting& b) {
    return std::tie(a.since, a.tensor) < std::tie(b.since, b.tensor);
  });
  return waiting;
}

Waiting WaitingView::WaitingOf(const PendingTensor& tensor) const {
  const TensorRequest& request = tensor.request();
  Waiting waiting = {TensorKey(request.key()), DescribeTensor(request), tensor.since, LimitsOf(request)};
  const Group& participants = *tensor.participants;
  const SetJoins* joins = tables_.joins.Find(request.process_set);
  for (int position = 0; position < participants.size(); ++position) {
    const RankId rank = participants[position];
    if (tensor.submitted.Contains(position)) {
      waiting.present.push_back(rank);
    } else if (joins == nullptr || !joins->Contains(rank)) {
      waiting.missing.push_back(rank);
    }
  }
  return waiting;
}

Waiting WaitingView::WaitingOf(const SetJoins& joins) const {
  Waiting waiting = {TensorKey(joins.request.key()), DescribeTensor(joins.request), joins.since,
                     LimitsOf(joins.request), joins.ranks()};
  waiting.missing = joins.members->Without(waiting.present).ranks();
  return waiting;
}

// All ranks have submitted the held tensors. They wait for tensors that no rank has submitted as part of the group.
Waiting WaitingView::WaitingOf(const HeldGroup& group) const {
  const PendingTensor& first = *group.tensors.front().tensor;
  const TensorRequest& request = first.request();
  return {TensorKey(request.key()),
          absl::StrCat("group '", request.group, "', of which ", group.tensors.size(), " of ", group.size,
                       " tensors are ready,"),
          group.since, LimitsOf(request), first.participants->ranks()};
}

Waiting WaitingView::WaitingForDepartures() const {
  Waiting waiting = {TensorKey(), "shutdown", tables_.ranks.first_departure(), limits_};
  for (RankId rank = 0; rank < tables_.ranks.size(); ++rank) {
    (tables_.ranks.HasShutDown(rank) ? waiting.present : waiting.missing).push_back(rank);
  }
  return waiting;
}

std::vector<std::string> WaitingView::SubmittedBy(RankId rank, size_t limit) const {
  std::vector<std::string> names;
  tables_.pending.ForEach([&](const PendingTensor& tensor) {
    const std::optional<int> position = tensor.participants->PositionOf(rank);
    if (position && tensor.submitted.Contains(*position)) names.push_back(tensor.request().name);
  });
  std::sort(names.begin(), names.end());
  if (names.size() > limit) names.resize(limit);
  return names;
}

// "rank 1 (host h, pid 42), which has submitted 'b' instead and did last, 12 s ago: started allreduce 'x'"
std::string StallInspector::DescribeLateRank(const WaitingView& view, RankId rank) const {
  const std::vector<std::string> others = view.SubmittedBy(rank, kTensorsNamed);
  std::string text = view.Describe(rank);
  if (others.empty()) {
    absl::StrAppend(&text, ", which has nothing else in flight");
  } else {
    absl::StrAppend(&text, ", which has submitted '", absl::StrJoin(others, "', '"), "' instead");
  }
  const std::string last_activity = options_.last_activity ? options_.last_activity(rank) : "";
  if (!last_activity.empty()) absl::StrAppend(&text, " and ", last_activity);
  return text;
}

std::string StallInspector::DescribeStall(const WaitingView& view, const Waiting& waiting, absl::Time now) const {
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
    late.push_back(DescribeLateRank(view, rank));
  }
  absl::StrAppend(&text, "; missing: ", absl::StrJoin(late, "; "));
  return text;
}

std::vector<StallInspector::Finding> StallInspector::Inspect(const WaitingView& view, absl::Time now) {
  std::vector<Finding> findings;
  absl::flat_hash_map<TensorKey, absl::Time> still_waiting;
  for (const Waiting& waiting : view.Overdue(now)) {
    if (now - waiting.since >= waiting.limits.deadline) {
      findings.push_back({waiting.tensor, DescribeStall(view, waiting, now), Finding::Verdict::kFail});
      continue;
    }
    still_waiting.emplace(waiting.tensor, waiting.since);
    const auto warned = warned_.find(waiting.tensor);
    if (warned != warned_.end() && warned->second == waiting.since) continue;
    findings.push_back({waiting.tensor, DescribeStall(view, waiting, now), Finding::Verdict::kWarn});
  }
  warned_ = std::move(still_waiting);
  return findings;
}

absl::Time StallInspector::NextInspection(const WaitingView& view, absl::Time now) const {
  return now + view.ShortestLimit() / 8;
}

}  // namespace ronda
