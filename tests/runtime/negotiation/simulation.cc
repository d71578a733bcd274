// SPDX-License-Identifier: Apache-2.0

#include "tests/runtime/negotiation/simulation.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/negotiation/messages.h"

namespace ronda {
namespace {

constexpr WaitLimits kLimits = {.warning = absl::Seconds(300), .deadline = absl::Seconds(600)};  // a step is a second
constexpr absl::Duration kPlanPeriod = absl::Seconds(250);
constexpr int kGroups = 3;
constexpr int kGroupSize = 3;

Negotiator::Options OptionsOf(const World& world) {
  return {.world_size = world.ranks,
          .cache_capacity = world.cache_capacity,
          .limits = kLimits,
          .fusion = {.threshold = 64},
          .schedule = {.identical_steps = world.identical_steps, .min_bucket_bytes = 32}};
}

std::string Show(const TensorRequest& request) {
  return absl::StrCat(Name(request.op), " '", request.name, "' ", ToString(request.shape), " on set ",
                      request.process_set, ", root ", request.root);
}

}  // namespace

bool MayMeet(const TensorRequest& a, const TensorRequest& b) {
  TensorRequest x = a, y = b;
  x.limits = y.limits = std::nullopt;
  const bool own_rows =
      a.op == OpType::kAllgather || a.op == OpType::kGather || a.op == OpType::kAlltoall || a.op == OpType::kScatter;
  if (own_rows && a.op == b.op && !x.shape.empty() && !y.shape.empty()) x.shape[0] = y.shape[0] = 0;
  return x == y;
}

Simulation::Simulation(const World& world)
    : world_(world),
      random_(world.seed),
      negotiator_(OptionsOf(world)),
      inspector_({}),
      settings_(JobSettings{.cache_capacity = world.cache_capacity, .limits = kLimits}),
      up_(world.ranks),
      recording_({OptionsOf(world), {}}) {
  for (RankId rank = 0; rank < world.ranks; ++rank) {
    ranks_.emplace_back(Reporter({.rank = rank, .world_size = world.ranks, .identity = absl::StrCat("pid ", rank)}));
  }
}

void Simulation::Run(int steps) {
  for (int i = 0; i < steps && violations_.empty(); ++i) Step();
  Drain();
  CheckNothingIsLeftBehind();
}

void Simulation::Step() {
  now_ += world_.identical_steps > 0 ? absl::Milliseconds(200) : absl::Seconds(1);  // a step needs many actions
  const RankId rank = Random(world_.ranks);
  switch (Random(world_.identical_steps > 0 ? 9 : 6)) {
    case 0:
    case 1:
      for (int i = Random(3); i >= 0; --i) SubmitSomething(rank);
      break;
    case 2:
      SendReport(rank);
      break;
    case 3:
      ReceiveReport(rank);
      break;
    case 4:
      Broadcast();
      break;
    case 5:
      ApplyList(rank);
      break;
    default:
      ActInSchedule(rank);
      break;
  }
  if (Percent(5)) Inspect();
}

// --- Submissions ---

void Simulation::SubmitSomething(RankId id) {
  Rank& rank = ranks_[id];
  if (rank.state != Rank::State::kPresent) return;
  if (InLoop()) return Random(3000) == 0 ? Submit(id, Tensor(0, kGlobalProcessSet, id)) : SubmitLoop(id);
  if (Percent(20)) SubmitPlan(id);
  const ProcessSetId set = RandomSetOf(id);
  if (HasJoin(rank, set) && !Percent(world_.late_percent)) return;
  if (Percent(3)) {
    TensorRequest join = {.name = std::string(kJoinName), .process_set = set, .op = OpType::kJoin};
    if (Percent(world_.mismatch_percent)) join.absent = TensorRequest::Absent::kCountedAsZeros;
    return Submit(id, std::move(join));
  }
  if (Percent(15)) return SubmitGroup(id, set, Random(kGroups));
  TensorRequest request = Tensor(Random(world_.names), set, id);
  if (request.op == OpType::kSendRecv && id != request.root && id != request.receiver) return;
  if (Percent(world_.mismatch_percent)) Disturb(&request);
  if (Percent(1)) request.limits = WaitLimits{.warning = absl::Seconds(50), .deadline = absl::Seconds(100)};
  Submit(id, std::move(request));
}

void Simulation::Submit(RankId id, TensorRequest request) {
  Rank& rank = ranks_[id];
  const TensorKey key(request.key());
  if (!rank.in_flight.emplace(key, std::move(request)).second) return;
  rank.fresh.push_back(key);
  HandOverFresh(id);
}

void Simulation::SubmitGroup(RankId id, ProcessSetId set, int number) {
  std::vector<TensorRequest> members;
  for (int i = 0; i < kGroupSize; ++i) {
    TensorRequest& member = members.emplace_back();
    member = {.name = absl::StrCat("group", number, "/", i), .process_set = set, .shape = {2 + i}};
    member.group = absl::StrCat("group", number);
    member.group_size = kGroupSize;
    if (ranks_[id].in_flight.contains(TensorKey(member.key()))) return;
  }
  if (Percent(world_.mismatch_percent)) Disturb(&members[Random(kGroupSize)]);
  for (TensorRequest& member : members) Submit(id, std::move(member));
}

// Each plan is submitted at a fixed time, so that all ranks submit the later plans together, even if a plan fails on a
// rank.
void Simulation::SubmitPlan(RankId id) {
  Rank& rank = ranks_[id];
  const int number = static_cast<int>((now_ - absl::UnixEpoch()) / kPlanPeriod);
  if (rank.next_plan > number) return;
  const Plan& plan = PlanAt(number);
  const bool busy = std::any_of(rank.in_flight.begin(), rank.in_flight.end(),
                                [](const auto& entry) { return TraitsOf(entry.second.op).changes_process_sets; });
  if (busy) return;
  rank.next_plan = number + 1;
  TensorRequest request = plan.request;
  const std::vector<RankId>& created = request.members;
  if (request.op == OpType::kCreateProcessSet && !std::binary_search(created.begin(), created.end(), id)) return;
  if (plan.adds >= 0) {
    const ProcessSetTable& sets = rank.reporter.process_sets();
    const auto added = set_of_plan_.find(plan.adds);
    if (added == set_of_plan_.end() || sets.Find(added->second) == nullptr) return;
    request.subject = added->second;
    if (sets.CreatedByMembers(request.subject)) request.process_set = request.subject;
    if (!sets.Find(request.process_set)->Contains(id)) return;
  }
  Submit(id, std::move(request));
}

const Simulation::Plan& Simulation::PlanAt(int number) {
  while (static_cast<int>(plans_.size()) <= number) {
    const int next = static_cast<int>(plans_.size());
    Plan& plan = plans_.emplace_back();
    plan.request.name = absl::StrCat("plan", next);
    if (next % 4 == 3) {
      plan.request.op = OpType::kRemoveProcessSet;
      plan.adds = next - 1 - Random(3);
      continue;
    }
    plan.request.op = next % 4 == 1 ? OpType::kCreateProcessSet : OpType::kAddProcessSet;
    for (RankId rank = 0; rank < world_.ranks; ++rank) {
      if (Percent(60)) plan.request.members.push_back(rank);
    }
    if (plan.request.members.empty()) plan.request.members.push_back(Random(world_.ranks));
  }
  return plans_[number];
}

ProcessSetId Simulation::RandomSetOf(RankId id) {
  const ProcessSetTable& table = ranks_[id].reporter.process_sets();
  std::vector<ProcessSetId> sets;
  for (ProcessSetId set = 0; set < table.next_id(); ++set) {
    const auto members = table.Find(set);
    if (members != nullptr && members->Contains(id)) sets.push_back(set);
  }
  return sets[Random(static_cast<int>(sets.size()))];
}

// Returns a request that depends only on the arguments and the hour, so that the ranks' requests match, although the
// ranks exchange no messages about them.
TensorRequest Simulation::Tensor(int number, ProcessSetId set, RankId rank) {
  const int64_t hour = (now_ - absl::UnixEpoch()) / absl::Hours(1);
  TensorRequest request = {.name = absl::StrCat("tensor", number), .process_set = set, .shape = {4, 1 + hour % 2}};
  SetOperation(number, *ranks_[rank].reporter.process_sets().Find(set), &request);
  const bool own_rows = request.op == OpType::kAllgather || request.op == OpType::kGather ||
                        request.op == OpType::kAlltoall || request.op == OpType::kScatter;
  if (own_rows) request.shape[0] = rank + hour % 3;
  return request;
}

void Simulation::SetOperation(int number, const Group& members, TensorRequest* request) const {
  constexpr OpType kOps[] = {OpType::kAllreduce, OpType::kAllgather,     OpType::kAllreduce, OpType::kBroadcast,
                             OpType::kReduce,    OpType::kReduceScatter, OpType::kGather,    OpType::kAlltoall,
                             OpType::kScatter,   OpType::kSendRecv,      OpType::kBarrier,   OpType::kAllreduce};
  request->op = kOps[number % 12];
  const bool rooted = request->op == OpType::kBroadcast || request->op == OpType::kReduce ||
                      request->op == OpType::kGather || request->op == OpType::kScatter;
  if (rooted) request->root = members[number % members.size()];
  if (request->op != OpType::kSendRecv) return;
  if (members.size() < 2) {
    request->op = OpType::kBarrier;
    return;
  }
  request->root = members[number % members.size()];
  request->receiver = members[(number + 1) % members.size()];
}

void Simulation::Disturb(TensorRequest* request) {
  switch (Random(5)) {
    case 4:
      request->memory = Memory::kCuda;
      break;
    case 0:
      request->dtype = DType::kInt32;
      break;
    case 1:
      request->shape.back() += 10;
      break;
    case 2:
      request->prescale = 0.5;
      break;
    default:
      request->reduction = Reduction::kMax;
      break;
  }
}

// --- How messages travel ---

void Simulation::SendReport(RankId id) {
  Reporter& reporter = ranks_[id].reporter;
  if (ranks_[id].schedule.locked() || !reporter.has_news()) return;
  const RankReport report = reporter.TakeReport();
  counts_.repeated += static_cast<int>(report.repeated.size());
  counts_.by_id += static_cast<int>(report.cached.size());
  up_[id].push_back(Encode(report));
}

void Simulation::ReceiveReport(RankId id) {
  if (up_[id].empty()) return;
  if (ranks_[0].in_bucket) return;
  const std::string bytes = std::move(up_[id].front());
  up_[id].pop_front();
  recording_.events.push_back(NegotiationEvent::Report(id, bytes, now_));
  const auto report = DecodeRankReport(bytes, world_.cache_capacity);
  if (!report.ok()) return Violate(report.status().ToString());
  counts_.stale_reports += report->schedule < schedules_ ? 1 : 0;
  const absl::Status added = negotiator_.Add(id, *report, now_);
  if (!added.ok()) Violate(added.ToString());
}

void Simulation::Broadcast() {
  if (ranks_[0].in_bucket) return;
  const bool locked = negotiator_.locked();
  ResponseList list = negotiator_.TakeResponses();
  if (locked && !list.empty()) Violate("rank 0 sends a list while a schedule is locked");
  if (list.schedule) schedules_ = list.schedule->number;
  list.settings = std::exchange(settings_, std::nullopt);
  if (list.empty() || ended_) return;
  ended_ = list.job == ResponseList::Job::kEnds;
  const std::string bytes = Encode(list);
  recording_.events.push_back(NegotiationEvent::List(bytes, now_));
  for (Rank& rank : ranks_) rank.inbox.push_back(bytes);
}

void Simulation::Inspect() {
  for (const StallInspector::Finding& finding : inspector_.Inspect(negotiator_.waiting(), now_)) {
    if (finding.verdict == StallInspector::Finding::Verdict::kWarn || finding.tensor.name.empty()) continue;
    const absl::Status late = absl::DeadlineExceededError(finding.text);
    recording_.events.push_back(NegotiationEvent::Failure(finding.tensor, late, now_));
    negotiator_.Fail(finding.tensor, late);
    ++counts_.deadlines;
  }
}

void Simulation::ApplyList(RankId id) {
  Rank& rank = ranks_[id];
  if (rank.inbox.empty() || rank.in_bucket) return;
  const auto list = DecodeResponseList(rank.inbox.front(), world_.cache_capacity);
  rank.inbox.pop_front();
  if (!list.ok()) return Violate(list.status().ToString());
  const auto work = rank.reporter.Apply(*list);
  if (!work.ok()) return Violate(work.status().ToString());
  const size_t number = rank.lists++;
  // Records the joined sets first, because errors come before buckets: one list may fail a rank's join, and also carry
  // out tensors without this rank.
  rank.joined.clear();
  for (const auto& [key, request] : rank.in_flight) {
    if (request.op == OpType::kJoin) rank.joined.insert(key.process_set);
  }
  for (size_t i = 0; i < list->errors.size(); ++i) ReceiveError(id, number, i, list->errors[i]);
  size_t own = 0;
  for (const TensorError& error : list->errors) own += std::count(error.ranks.begin(), error.ranks.end(), id);
  if (own != work->errors.size()) Violate(absl::StrCat("rank ", id, " gets other errors than its own"));
  for (const AgreedBucket& bucket : work->buckets) ReceiveBucket(id, bucket);
  if (work->schedule) {
    rank.schedule.Begin(work->schedule->schedule, now_);
    rank.buckets = std::move(work->schedule->buckets);
    if (rank.state == Rank::State::kShuttingDown) rank.schedule.VetoNext();
    counts_.schedules += id == 0 ? 1 : 0;
    counts_.early_requests += rank.known_request >= rank.schedule.number() ? 1 : 0;
    rank.votes = 0;
    rank.since = now_;
    SubmitAgain(id);
  }
  if (work->job == ResponseList::Job::kEnds) rank.state = Rank::State::kDone;
}

// Delivers all messages in flight, and submits nothing new.
void Simulation::Drain() {
  bool busy = true;
  while (busy && violations_.empty()) {
    busy = false;
    for (RankId id = 0; id < world_.ranks; ++id) {
      SendReport(id);
      busy |= !up_[id].empty();
      while (!up_[id].empty() && !ranks_[0].in_bucket) ReceiveReport(id);
    }
    Broadcast();
    for (RankId id = 0; id < world_.ranks; ++id) {
      busy |= !ranks_[id].inbox.empty();
      while (!ranks_[id].inbox.empty() && !ranks_[id].in_bucket && violations_.empty()) ApplyList(id);
    }
    busy |= DrainSchedule();
    if (!busy) busy = LetWaitsTimeOut();
  }
}

void Simulation::Leave(RankId id) {
  if (ranks_[id].state != Rank::State::kPresent) return;
  counts_.unlocked_for_shutdown += ranks_[id].schedule.locked() ? 1 : 0;
  ranks_[id].reporter.ShutDown();
  ranks_[id].schedule.VetoNext();
  ranks_[id].state = Rank::State::kShuttingDown;
}

// --- Checks ---

void Simulation::ReceiveError(RankId id, size_t list, size_t number, const TensorError& error) {
  if (!std::binary_search(error.ranks.begin(), error.ranks.end(), id)) return;
  Rank& rank = ranks_[id];
  const auto it = rank.in_flight.find(TensorKey(error.key()));
  if (it == rank.in_flight.end()) {
    return Violate(absl::StrCat("rank ", id, " has not submitted '", error.name, "': ", error.status.message()));
  }
  Answer& answer = answers_[{list, number}];
  answer.error = error;
  answer.requests.push_back(it->second);
  Complete(id, it);
}

void Simulation::ReceiveBucket(RankId id, const AgreedBucket& bucket) {
  std::vector<std::string> shown;
  for (const auto& response : bucket.responses) {
    shown.push_back(Show(response->request));
    ReceiveExecution(id, bucket, *response);
  }
  ranks_[id].history.push_back(
      absl::StrCat(absl::StrJoin(shown, "; "), " without ", absl::StrJoin(bucket.joined, ",")));
  if (id != 0) return;
  const TensorRequest& first = bucket.responses.front()->request;
  ++counts_.executed;
  counts_.without_joined += bucket.joined.empty() ? 0 : 1;
  counts_.joins += first.op == OpType::kJoin ? 1 : 0;
  counts_.sets += TraitsOf(first.op).adds_process_set ? 1 : 0;
  counts_.sets_by_members += first.op == OpType::kCreateProcessSet ? 1 : 0;
  counts_.removals += first.op == OpType::kRemoveProcessSet ? 1 : 0;
  counts_.sent += first.op == OpType::kSendRecv ? 1 : 0;
  counts_.groups += first.group.empty() ? 0 : 1;
}

void Simulation::ReceiveExecution(RankId id, const AgreedBucket& bucket, const Response& response) {
  Rank& rank = ranks_[id];
  const TensorRequest& agreed = response.request;
  if (std::binary_search(bucket.joined.begin(), bucket.joined.end(), id) && !rank.joined.contains(agreed.process_set)) {
    Violate(absl::StrCat("rank ", id, " has not joined, and is left out of ", Show(agreed)));
  }
  if (TraitsOf(agreed.op).adds_process_set) {
    set_of_plan_[std::stoi(agreed.name.substr(4))] = agreed.subject;
  }
  if (!bucket.participants->Contains(id)) return;
  const auto it = rank.in_flight.find(TensorKey(agreed.key()));
  if (it == rank.in_flight.end()) return Violate(absl::StrCat("rank ", id, " has not submitted ", Show(agreed)));
  TensorRequest expected = agreed;
  if (TraitsOf(agreed.op).adds_process_set) expected.subject = 0;
  if (agreed.op == OpType::kJoin) expected.root = 0;
  if (!MayMeet(it->second, expected)) {
    Violate(absl::StrCat("rank ", id, " submitted ", Show(it->second), " and carries out ", Show(agreed)));
  }
  if (!response.first_dims.empty() &&
      response.first_dims[*bucket.members->PositionOf(id)] != it->second.shape.front()) {
    Violate(absl::StrCat("rank ", id, " has other rows in ", Show(agreed)));
  }
  if (agreed.op == OpType::kScatter && id == agreed.root && it->second.shape != agreed.shape) {
    Violate(absl::StrCat("the root's rows do not count in ", Show(agreed)));
  }
  Complete(id, it);
}

void Simulation::CheckCause(const Answer& answer) {
  const absl::string_view text = answer.error.status.message();
  if (absl::StrContains(text, "has joined process set")) ++counts_.refused;
  // If the tensor belongs to a group, the error may be about another tensor of the group.
  if (!absl::StrContains(text, "ranks disagree") || absl::StrContains(text, "of group")) return;
  ++counts_.mismatches;
  for (const TensorRequest& request : answer.requests) {
    if (!MayMeet(request, answer.requests.front())) return;
  }
  Violate(absl::StrCat("all submitted the same, and are told: ", text));
}

// Returns whether every rank that must submit the tensor with this key has submitted it, or has joined.
bool Simulation::AllAreReady(const TensorKey& key, const Group& participants) const {
  return std::all_of(participants.ranks().begin(), participants.ranks().end(), [&](RankId rank) {
    return ranks_[rank].in_flight.contains(key) || HasJoin(ranks_[rank], key.process_set);
  });
}

bool Simulation::GroupIsReady(const TensorRequest& member, const Group& members) const {
  for (int i = 0; i < member.group_size; ++i) {
    if (!AllAreReady(TensorKey(member.process_set, absl::StrCat(member.group, "/", i)), members)) return false;
  }
  return true;
}

void Simulation::CheckNothingIsLeftBehind() {
  for (RankId id = 0; id < world_.ranks; ++id) {
    for (const auto& [key, request] : ranks_[id].in_flight) CheckRightlyWaits(id, key, request);
  }
}

namespace {

// Returns the ranks that have to submit the tensor.
Group Participants(const TensorRequest& request, const Group& members) {
  if (request.op == OpType::kCreateProcessSet) return Group(request.members);
  if (request.op != OpType::kSendRecv) return members;
  return Group({std::min(request.root, request.receiver), std::max(request.root, request.receiver)});
}

}  // namespace

void Simulation::CheckRightlyWaits(RankId id, const TensorKey& key, const TensorRequest& request) {
  const auto members = ranks_[id].reporter.process_sets().Find(key.process_set);
  const std::string text = absl::StrCat("rank ", id, " still waits for ", Show(request));
  if (members == nullptr) return Violate(absl::StrCat(text, ", and the set is gone"));
  const Group participants = Participants(request, *members);
  const bool ready = request.group.empty() ? AllAreReady(key, participants) : GroupIsReady(request, *members);
  if (ready) return Violate(absl::StrCat(text, ", and all are ready"));
  for (RankId rank : participants.ranks()) {
    if (ranks_[rank].state != Rank::State::kPresent && !ranks_[rank].in_flight.contains(key)) {
      Violate(absl::StrCat(text, ", and rank ", rank, " has shut down"));
    }
  }
}

void Simulation::Finish() {
  if (world_.identical_steps > 0) ShutDownInTheLoop();
  for (RankId id = 0; id < world_.ranks; ++id) {
    if (ranks_[id].in_flight.empty() && Percent(50)) Leave(id);
  }
  Drain();
  CheckNothingIsLeftBehind();
  now_ += kLimits.deadline;
  Inspect();
  Drain();
  for (RankId id = 0; id < world_.ranks; ++id) {
    for (const auto& [key, request] : ranks_[id].in_flight) {
      Violate(absl::StrCat("rank ", id, " waits beyond the deadline for ", Show(request)));
    }
    Leave(id);
  }
  Drain();
  for (RankId id = 0; id < world_.ranks; ++id) {
    if (ranks_[id].state != Rank::State::kDone) Violate(absl::StrCat("the job does not end on rank ", id));
  }
  CheckCauses();
}

void Simulation::CheckCauses() {
  for (const auto& [place, answer] : answers_) CheckCause(answer);
  for (const Rank& rank : ranks_) {
    if (rank.history != ranks_[0].history) Violate("ranks have carried out different buckets");
  }
}

}  // namespace ronda
