// SPDX-License-Identifier: Apache-2.0

#include "runtime/negotiation/pending_tensors.h"

#include <algorithm>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/logging.h"
#include "runtime/negotiation/response_cache.h"

namespace ronda {

void PendingTensor::SpellOut() {
  if (!cached) return;
  spelled = RequestOf(*cached, first_rank, *participants);
  first_dims = cached->first_dims;
  cached_as = 0;
  cached = nullptr;
}

bool PendingTensor::CachedResponseHolds(const std::vector<RankId>& joined) const {
  if (!cached) return false;
  const std::vector<int64_t>& rows = cached->first_dims;
  return rows.empty() || std::all_of(joined.begin(), joined.end(),
                                     [&](RankId rank) { return rows[*participants->PositionOf(rank)] == 0; });
}

std::shared_ptr<Response> PendingTensor::TakeResponse(const std::vector<RankId>& joined) {
  SpellOut();
  auto response = std::make_shared<Response>();
  response->request = std::move(spelled);
  TensorRequest& request = response->request;
  const FirstDimension meaning = TraitsOf(request.op).first_dimension;
  if (meaning == FirstDimension::kGathered || meaning == FirstDimension::kLocal) request.shape.front() = 0;
  if (meaning == FirstDimension::kGathered) {
    response->first_dims = std::move(first_dims);
    for (RankId rank : joined) response->first_dims[*participants->PositionOf(rank)] = 0;
  }
  return response;
}

PendingTensor* PendingTable::Find(TensorKeyView key) const {
  const auto it = tensors_.find(key);
  return it == tensors_.end() ? nullptr : it->get();
}

PendingTensor* PendingTable::FindById(CacheId id) const {
  const auto it = by_id_.find(id);
  return it == by_id_.end() ? nullptr : it->second;
}

PendingTensor* PendingTable::Start(const TensorRequest& request) {
  std::unique_ptr<PendingTensor> tensor = Fresh();
  tensor->spelled = request;
  return Insert(std::move(tensor));
}

PendingTensor* PendingTable::Start(CacheId id, std::shared_ptr<const Response> response) {
  std::unique_ptr<PendingTensor> tensor = Fresh();
  tensor->cached = std::move(response);
  tensor->cached_as = id;
  PendingTensor* inserted = Insert(std::move(tensor));
  by_id_.emplace(id, inserted);
  return inserted;
}

void PendingTable::SpellOut(PendingTensor* tensor) {
  by_id_.erase(tensor->cached_as);
  tensor->SpellOut();
}

std::unique_ptr<PendingTensor> PendingTable::Extract(PendingTensor* tensor) {
  if (tensor->cached_as != 0) by_id_.erase(tensor->cached_as);
  const auto it = tensors_.find(tensor->request().key());
  RONDA_CHECK(it != tensors_.end() && it->get() == tensor);
  return std::move(tensors_.extract(it).value());
}

void PendingTable::Recycle(std::unique_ptr<PendingTensor> tensor) {
  // There are at most as many spare tensors as were ever pending at the same time.
  spare_.push_back(std::move(tensor));
}

void PendingTable::Clear() {
  by_id_.clear();
  while (!tensors_.empty()) Recycle(std::move(tensors_.extract(tensors_.begin()).value()));
}

std::vector<PendingTensor*> PendingTable::Select(const std::function<bool(const PendingTensor&)>& wanted) const {
  std::vector<PendingTensor*> selected;
  for (const std::unique_ptr<PendingTensor>& tensor : tensors_) {
    if (wanted(*tensor)) selected.push_back(tensor.get());
  }
  std::sort(selected.begin(), selected.end(),
            [](const PendingTensor* a, const PendingTensor* b) { return a->sequence < b->sequence; });
  return selected;
}

std::unique_ptr<PendingTensor> PendingTable::Fresh() {
  if (spare_.empty()) return std::make_unique<PendingTensor>();
  std::unique_ptr<PendingTensor> tensor = std::move(spare_.back());
  spare_.pop_back();
  tensor->cached = nullptr;
  tensor->cached_as = 0;
  tensor->first_dims.clear();
  tensor->mismatch.clear();
  tensor->other_groups.clear();
  tensor->refusal.clear();
  return tensor;
}

PendingTensor* PendingTable::Insert(std::unique_ptr<PendingTensor> tensor) {
  tensor->sequence = next_sequence_++;
  PendingTensor* raw = tensor.get();
  RONDA_CHECK(tensors_.insert(std::move(tensor)).second);
  return raw;
}

PendingTensor* OldestMessageFor(const TensorRequest& receive, const PendingTable& pending,
                                const std::function<bool(RankId)>& may_send) {
  const absl::string_view tag = PartsOfMessageName(receive.name).tag;
  const std::vector<PendingTensor*> messages = pending.Select([&](const PendingTensor& tensor) {
    const TensorRequest& request = tensor.request();
    return request.op == OpType::kSendRecv && request.process_set == receive.process_set &&
           request.receiver == receive.receiver && !IsOrderedReceive(request) &&
           (IsFromAnyRank(receive) || request.root == receive.root) && PartsOfMessageName(request.name).tag == tag &&
           !tensor.submitted.Contains(*tensor.participants->PositionOf(receive.receiver)) && may_send(request.root);
  });
  // The waiting messages of one sender have consecutive numbers, because the receiver takes them in order.
  std::set<std::pair<RankId, uint64_t>> numbers;
  const auto number_of = [](const PendingTensor& message) { return PartsOfMessageName(message.request().name).number; };
  for (const PendingTensor* message : messages) numbers.emplace(message->request().root, number_of(*message));
  for (PendingTensor* message : messages) {
    const uint64_t before = (number_of(*message) + kMessageNumbers - 1) % kMessageNumbers;
    if (!numbers.contains({message->request().root, before})) return message;
  }
  return messages.empty() ? nullptr : messages.front();
}

absl::Status HeldGroup::Verdict() const {
  const TensorRequest& first = tensors.front().tensor->request();
  for (const ConcludedTensor& member : tensors) {
    const TensorRequest& request = member.tensor->request();
    if (!member.verdict.ok()) {
      return absl::Status(member.verdict.code(),
                          absl::StrCat("no tensor of group '", first.group, "' is carried out, because of tensor '",
                                       request.name, "': ", member.verdict.message()));
    }
    if (request.group_size != first.group_size) {
      return absl::FailedPreconditionError(
          absl::StrCat("no tensor of group '", first.group, "' is carried out: tensor '", first.name, "' is one of ",
                       first.group_size, " tensors, and tensor '", request.name, "' is one of ", request.group_size));
    }
  }
  if (static_cast<int>(tensors.size()) == size) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("no tensor of group '", first.group, "' is carried out: it has ",
                                                    tensors.size(), " tensors, and not ", size, " as they say"));
}

void GroupTable::Hold(ConcludedTensor tensor, absl::Time now) {
  const TensorRequest& request = tensor.tensor->request();
  const auto [it, is_new] = groups_.try_emplace(TensorKey(GroupOf(request)));
  HeldGroup& group = it->second;
  if (is_new) {
    group.size = request.group_size;
    group.since = now;
    group.sequence = next_sequence_++;
  }
  group.tensors.push_back(std::move(tensor));
}

template <typename Predicate>
std::vector<HeldGroup> GroupTable::TakeIf(Predicate predicate) {
  std::vector<HeldGroup> taken;
  for (auto it = groups_.begin(); it != groups_.end();) {
    const auto current = it++;
    if (!predicate(*current)) continue;
    taken.push_back(std::move(current->second));
    groups_.erase(current);
  }
  std::sort(taken.begin(), taken.end(), [](const HeldGroup& a, const HeldGroup& b) { return a.sequence < b.sequence; });
  return taken;
}

std::vector<HeldGroup> GroupTable::TakeComplete() {
  return TakeIf([](const auto& entry) { return static_cast<int>(entry.second.tensors.size()) >= entry.second.size; });
}

std::vector<HeldGroup> GroupTable::Take(TensorKeyView group) {
  return TakeIf([&](const auto& entry) { return TensorKeyView(entry.first) == group; });
}

std::vector<HeldGroup> GroupTable::TakeAllOf(ProcessSetId set) {
  return TakeIf([&](const auto& entry) { return entry.first.process_set == set; });
}

void GroupTable::SpellOut(CacheId id) {
  for (auto& [key, group] : groups_) {
    for (ConcludedTensor& member : group.tensors) {
      if (member.tensor->cached_as == id) member.tensor->SpellOut();
    }
  }
}

const HeldGroup* GroupTable::FindByTensor(TensorKeyView tensor) const {
  for (const auto& [key, group] : groups_) {
    for (const ConcludedTensor& member : group.tensors) {
      if (member.tensor->request().key() == tensor) return &group;
    }
  }
  return nullptr;
}

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

std::vector<Waiting> WaitingView::All() const {
  return Select([](absl::Time, const WaitLimits&) { return true; });
}

std::vector<Waiting> WaitingView::Overdue(absl::Time now) const {
  return Select([&](absl::Time since, const WaitLimits& limits) { return IsOverdue(since, limits, now); });
}

std::vector<Waiting> WaitingView::Select(Filter wanted) const {
  std::vector<Waiting> waiting;
  tables_.pending.ForEach([&](const PendingTensor& tensor) {
    if (wanted(tensor.since, LimitsOf(tensor.request()))) waiting.push_back(WaitingOf(tensor));
  });
  for (ProcessSetId set : tables_.joins.sets()) {
    const SetJoins& joins = *tables_.joins.Find(set);
    if (wanted(joins.since, LimitsOf(joins.request))) waiting.push_back(WaitingOf(joins));
  }
  for (const auto& [key, group] : tables_.groups.held()) {
    const WaitLimits limits = LimitsOf(group.tensors.front().tensor->request());
    if (wanted(group.since, limits)) waiting.push_back(WaitingOf(group));
  }
  if (tables_.ranks.some_departed() && wanted(tables_.ranks.first_departure(), limits_)) {
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

// All ranks have submitted the held tensors. The group waits for further tensors, which no rank has submitted in this
// group yet.
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

// Returns, for example, "rank 1 (host h, pid 42), which has submitted 'b' instead and did last, 12 s ago: started
// allreduce 'x'".
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
  std::map<TensorKey, absl::Time> still_waiting;
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
