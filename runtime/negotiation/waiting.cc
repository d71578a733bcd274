#include "runtime/negotiation/waiting.h"

#include <algorithm>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "runtime/negotiation/describe.h"

namespace ronda {
namespace {

bool IsOverdue(absl::Time since, const WaitLimits& limits, absl::Time now) {
  return now - since >= std::min(limits.warning, limits.deadline);
}

}  // namespace

absl::Duration WaitingView::ShortestLimit() const {
  absl::Duration shortest = std::min(limits_.warning, limits_.deadline);
  const auto take = [&](const TensorRequest& request) {
    const WaitLimits limits = LimitsOf(request);
    shortest = std::min({shortest, limits.warning, limits.deadline});
  };
  pending_.ForEach([&](const PendingTensor& tensor) { take(tensor.request()); });
  for (ProcessSetId set : joins_.sets()) take(joins_.Find(set)->request);
  for (const auto& [key, group] : groups_.held()) take(group.tensors.front().tensor->request());
  return shortest;
}

std::vector<Waiting> WaitingView::Overdue(absl::Time now) const {
  std::vector<Waiting> waiting;
  pending_.ForEach([&](const PendingTensor& tensor) {
    if (IsOverdue(tensor.since, LimitsOf(tensor.request()), now)) waiting.push_back(WaitingOf(tensor));
  });
  for (ProcessSetId set : joins_.sets()) {
    const SetJoins& joins = *joins_.Find(set);
    if (IsOverdue(joins.since, LimitsOf(joins.request), now)) waiting.push_back(WaitingOf(joins));
  }
  for (const auto& [key, group] : groups_.held()) {
    const WaitLimits limits = LimitsOf(group.tensors.front().tensor->request());
    if (IsOverdue(group.since, limits, now)) waiting.push_back(WaitingOf(group));
  }
  if (roster_.departing() && IsOverdue(roster_.first_leave(), limits_, now)) {
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
  const SetJoins* joins = joins_.Find(request.process_set);
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

// All ranks have submitted what is held; it waits for tensors that no rank has submitted as part of the group.
Waiting WaitingView::WaitingOf(const HeldGroup& group) const {
  const PendingTensor& first = *group.tensors.front().tensor;
  const TensorRequest& request = first.request();
  return {TensorKey(request.key()),
          absl::StrCat("group '", request.group, "', of which ", group.tensors.size(), " of ", group.size,
                       " tensors are ready,"),
          group.since, LimitsOf(request), first.participants->ranks()};
}

Waiting WaitingView::WaitingForDepartures() const {
  Waiting waiting = {TensorKey(), "shutdown", roster_.first_leave(), limits_};
  for (RankId rank = 0; rank < roster_.size(); ++rank) {
    (roster_.HasLeft(rank) ? waiting.present : waiting.missing).push_back(rank);
  }
  return waiting;
}

}  // namespace ronda
