// SPDX-License-Identifier: Apache-2.0

// Simulates the training loop that makes schedules begin, and a rank's engine while a schedule is locked.
#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/runtime/negotiation/simulation.h"

namespace ronda {
namespace {

constexpr absl::Duration kPhase = absl::Seconds(1000);
constexpr int kPhases = 8;  // in the first of them the ranks do not run the loop
constexpr absl::Duration kStrayPeriod = absl::Seconds(300);
constexpr absl::Duration kShortPeriod = absl::Seconds(600);
constexpr absl::Duration kShapePeriod = absl::Seconds(1700);
constexpr absl::Duration kLimit = absl::Seconds(30);    // how long a rank waits for tensors of its own program
constexpr absl::Duration kWarning = absl::Seconds(60);  // how long a rank waits in a bucket
constexpr int kLoopItems = 5;

}  // namespace

// --- The training loop ---

bool Simulation::InLoop() const {
  return world_.identical_steps > 0 && (now_ - absl::UnixEpoch()) / kPhase % kPhases != 0;
}

// Submits a tensor that is in no step, at most once per rank and period.
void Simulation::SubmitStray(RankId id) {
  Rank& rank = ranks_[id];
  const int number = static_cast<int>((now_ - absl::UnixEpoch()) / kStrayPeriod);
  if (rank.next_stray > number) return;
  rank.next_stray = number + 1;
  switch (number % 6) {
    case 0:
      return Submit(id, {.name = absl::StrCat("stray", number), .shape = {2}});
    case 1:
      return Submit(id, {.name = std::string(kJoinName), .op = OpType::kJoin});
    case 2:
      return SubmitPlan(id);
    case 3:
      return Submit(id, Tensor(0, kGlobalProcessSet, id));
    default:
      break;  // a pause, long enough for a schedule that needs more steps than before
  }
}

// Runs until rank 0 can shut down between two steps of a locked schedule. Gives up if that takes too long.
void Simulation::ShutDownInTheLoop() {
  const uint64_t wait_for = schedules_ + 2;
  for (int i = 0; i < 20000 && violations_.empty(); ++i) {
    Step();
    Rank& rank = ranks_[0];
    if (schedules_ < wait_for || !rank.schedule.locked() || !rank.in_flight.empty() || rank.in_bucket) continue;
    return Leave(0);
  }
}

// Returns whether a rank can submit item number `item` of a step. Usually a step begins when all items of the previous
// step are complete. Sometimes a step begins as soon as its first item is free, although items of the previous step are
// still in flight.
bool Simulation::IsFree(RankId id, int item) {
  const std::map<TensorKey, TensorRequest>& in_flight = ranks_[id].in_flight;
  if (item == 0 && Percent(95)) {
    return std::none_of(in_flight.begin(), in_flight.end(),
                        [](const auto& entry) { return absl::StartsWith(entry.first.name, "loop/"); });
  }
  const std::string name = absl::StrCat("loop/", item);
  return !in_flight.contains(TensorKey(kGlobalProcessSet, name)) &&
         !in_flight.contains(TensorKey(kGlobalProcessSet, name + "b"));
}

// Submits the next item of a step.
void Simulation::SubmitLoop(RankId id) {
  Rank& rank = ranks_[id];
  const absl::Duration time = now_ - absl::UnixEpoch();
  if (HasJoin(rank, kGlobalProcessSet) || now_ < rank.asleep_until) return;
  if (Random(1000) == 0) rank.asleep_until = now_ + 3 * kWarning;
  SubmitStray(id);
  const int item = rank.next_in_loop;
  if (!IsFree(id, item)) return;
  rank.next_in_loop = (item + 1) % kLoopItems;
  if (item == 0 && time / kShortPeriod % 5 == 4) return;  // steps at this time have no item 0
  TensorRequest request = {.name = absl::StrCat("loop/", item), .shape = {4, 1 + time / kShapePeriod % 2}};
  if (item == 1) request.op = OpType::kBroadcast;
  if (item == 3) {
    request.op = OpType::kAllgather;
    request.shape.front() = id;
  }
  if (item != 2) return Submit(id, std::move(request));
  request.group = "loop/pair";
  request.group_size = 2;
  TensorRequest second = request;
  second.name += "b";
  Submit(id, std::move(request));
  Submit(id, std::move(second));
}

// --- The engine ---

void Simulation::HandOverFresh(RankId id) {
  Rank& rank = ranks_[id];
  if (rank.in_bucket) return;  // busy
  while (!rank.fresh.empty()) {
    const TensorKey key = std::move(rank.fresh.front());
    rank.fresh.pop_front();
    rank.popped.emplace(rank.submissions++, key);
    SubmitPopped(id, key);
  }
}

void Simulation::SubmitAgain(RankId id) {
  for (const auto& [sequence, key] : ranks_[id].popped) SubmitPopped(id, key);
  HandOverFresh(id);
}

void Simulation::SubmitPopped(RankId id, const TensorKey& key) {
  Rank& rank = ranks_[id];
  const TensorRequest& request = rank.in_flight.at(key);
  if (!rank.schedule.locked()) return rank.reporter.Submit(request);
  const bool follows = !rank.schedule.unlocking();
  rank.schedule.Submit(rank.reporter.Find(request));
  if (follows && rank.schedule.unlocking()) CountCause(request);
}

void Simulation::CountCause(const TensorRequest& request) {
  if (request.op == OpType::kJoin) {
    ++counts_.unlocked_for_join;
  } else if (TraitsOf(request.op).changes_process_sets) {
    ++counts_.unlocked_for_set;
  } else if (absl::StartsWith(request.name, "loop/")) {
    ++counts_.unlocked_for_change;
  } else {
    ++counts_.unlocked_for_tensor;
  }
}

void Simulation::Complete(RankId id, std::map<TensorKey, TensorRequest>::iterator it) {
  Rank& rank = ranks_[id];
  std::erase_if(rank.popped, [&](const auto& entry) { return entry.second == it->first; });
  rank.in_flight.erase(it);
}

void Simulation::ActInSchedule(RankId id) {
  Rank& rank = ranks_[id];
  if (Percent(50)) DeliverRequest(id);
  if (!rank.schedule.locked()) return;
  if (rank.in_bucket) return SeeVote(id);
  ConsiderUnlocking(id);
  if (rank.schedule.Next().has_value()) Enter(id);
}

void Simulation::DeliverRequest(RankId id) {
  Rank& rank = ranks_[id];
  if (rank.requests.empty()) return;
  rank.known_request = std::max(rank.known_request, rank.requests.front());
  rank.requests.pop_front();
}

void Simulation::ConsiderUnlocking(RankId id) {
  Rank& rank = ranks_[id];
  LockedSchedule& schedule = rank.schedule;
  if (!schedule.unlocking() && rank.known_request >= schedule.number()) {
    ++counts_.unlocked_for_request;
    schedule.VetoNext();
  }
  const bool lacks = schedule.submitted() > 0 && !schedule.Next().has_value();
  if (lacks && now_ - rank.since >= kLimit) {
    ++counts_.unlocked_for_lack;
    schedule.VetoNext();
  }
  if (schedule.unlocking()) RequestUnlock(id, schedule.number());
}

void Simulation::RequestUnlock(RankId id, uint64_t schedule) {
  if (ranks_[id].own_request >= schedule) return;
  ranks_[id].own_request = schedule;
  for (Rank& rank : ranks_) rank.requests.push_back(schedule);
}

void Simulation::Enter(RankId id) {
  Rank& rank = ranks_[id];
  const LockedSchedule& schedule = rank.schedule;
  Vote& vote = votes_[{schedule.number(), rank.votes}];
  ++vote.entered;
  vote.vetoes += schedule.unlocking() ? 1 : 0;
  rank.in_bucket = rank.votes;
  rank.since = now_;
}

void Simulation::SeeVote(RankId id) {
  Rank& rank = ranks_[id];
  LockedSchedule& schedule = rank.schedule;
  const Vote& vote = votes_[{schedule.number(), *rank.in_bucket}];
  if (vote.entered < world_.ranks) {
    if (now_ - rank.since < kWarning || rank.own_request >= schedule.number()) return;
    ++counts_.unlocked_for_lateness;
    return RequestUnlock(id, schedule.number());
  }
  rank.in_bucket.reset();
  ++rank.votes;
  rank.since = now_;
  if (vote.vetoes > 0) {
    schedule.Enter(Ballot::Result::kVetoed, now_);
    return Unlock(id);
  }
  counts_.scheduled += id == 0 ? 1 : 0;
  if (schedule.unlocking()) Violate(absl::StrCat("rank ", id, " wants to unlock, and its vote does not count"));
  ReceiveBucket(id, rank.buckets[*schedule.Next()]);
  schedule.Enter(Ballot::Result::kCarriedOut, now_);
  HandOverFresh(id);
}

void Simulation::Unlock(RankId id) {
  Rank& rank = ranks_[id];
  rank.schedule.Unlock();
  if (id == 0) {
    ++counts_.vetoes;
    recording_.events.push_back(NegotiationEvent::Unlock(rank.schedule.progress(), now_));
    negotiator_.Unlock(rank.schedule.progress());
  }
  SubmitAgain(id);
}

// --- Until nothing moves ---

// Returns whether anything has happened.
bool Simulation::DrainSchedule() {
  bool busy = false;
  for (RankId id = 0; id < world_.ranks; ++id) {
    Rank& rank = ranks_[id];
    while (!rank.requests.empty()) DeliverRequest(id);
    if (!rank.schedule.locked()) continue;
    const uint64_t votes = rank.votes;
    const bool was_in = rank.in_bucket.has_value();
    ActInSchedule(id);
    busy |= rank.votes != votes || rank.in_bucket.has_value() != was_in || !rank.schedule.locked();
  }
  const auto is_requested = [](const Rank& rank) { return !rank.requests.empty(); };
  return busy || std::any_of(ranks_.begin(), ranks_.end(), is_requested);
}

// Lets time pass for the ranks that wait in a schedule. Returns false if no rank waits.
bool Simulation::LetWaitsTimeOut() {
  const auto waits = [](const Rank& rank) {
    return rank.schedule.locked() && (rank.in_bucket || rank.schedule.submitted() > 0);
  };
  if (std::none_of(ranks_.begin(), ranks_.end(), waits)) return false;
  now_ += std::max(kLimit, kWarning);
  return true;
}

}  // namespace ronda
