// The part of the simulation that is about schedules: the loop that makes them begin, and what a rank's engine does
// while one is locked.
#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/runtime/negotiation/simulation.h"

namespace ronda {
namespace {

constexpr absl::Duration kPhase = absl::Seconds(1000);
constexpr int kPhases = 8;  // of which the first is no loop
constexpr absl::Duration kStrayPeriod = absl::Seconds(300);
constexpr absl::Duration kShortPeriod = absl::Seconds(600);
constexpr absl::Duration kShapePeriod = absl::Seconds(1700);
constexpr absl::Duration kPatience = absl::Seconds(30);  // with a rank's own lack of tensors
constexpr absl::Duration kWarning = absl::Seconds(60);   // in a bucket
constexpr int kLoopItems = 5;

}  // namespace

// --- The training loop ---

bool Simulation::InLoop() const {
  return world_.identical_steps > 0 && (now_ - absl::UnixEpoch()) / kPhase % kPhases != 0;
}

// What is in between the steps, at most once a rank and period.
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
      break;  // long enough for more steps to be needed the next time
  }
}

// Until a schedule has been left because a rank shuts down between two steps, or it takes too long.
void Simulation::LeaveInTheLoop() {
  const uint64_t wait_for = schedules_ + 2;
  for (int i = 0; i < 20000 && violations_.empty(); ++i) {
    Step();
    Rank& rank = ranks_[0];
    if (schedules_ < wait_for || rank.reporter.lock() == nullptr || !rank.in_flight.empty() || rank.in_bucket) continue;
    return Leave(0);
  }
}

// Whether a rank can go on with item number `item` of a step: the next step begins when all of the last one is
// complete, or, now and then, as soon as an item is.
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

// The next item of a step.
void Simulation::SubmitLoop(RankId id) {
  Rank& rank = ranks_[id];
  const absl::Duration time = now_ - absl::UnixEpoch();
  if (HasJoin(rank, kGlobalProcessSet) || now_ < rank.asleep_until) return;
  if (Random(1000) == 0) rank.asleep_until = now_ + 3 * kWarning;
  SubmitStray(id);
  const int item = rank.next_in_loop;
  if (!IsFree(id, item)) return;
  rank.next_in_loop = (item + 1) % kLoopItems;
  if (item == 0 && time / kShortPeriod % 5 == 4) return;  // the steps of this time do without
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

// --- What the engine does ---

void Simulation::TakeFresh(RankId id) {
  Rank& rank = ranks_[id];
  if (rank.in_bucket) return;  // busy
  while (!rank.fresh.empty()) {
    const TensorKey key = std::move(rank.fresh.front());
    rank.fresh.pop_front();
    rank.taken.emplace(rank.submissions++, key);
    SubmitTaken(id, key);
  }
}

void Simulation::SubmitAgain(RankId id) {
  for (const auto& [sequence, key] : ranks_[id].taken) SubmitTaken(id, key);
  TakeFresh(id);
}

void Simulation::SubmitTaken(RankId id, const TensorKey& key) {
  Rank& rank = ranks_[id];
  const TensorRequest& request = rank.in_flight.at(key);
  const ScheduleLock* lock = rank.reporter.lock();
  const bool stays = lock != nullptr && !lock->leaving();
  rank.reporter.Submit(request);
  if (stays && lock->leaving()) CountCause(request);
}

void Simulation::CountCause(const TensorRequest& request) {
  if (request.op == OpType::kJoin) {
    ++counts_.left_for_join;
  } else if (request.op == OpType::kAddProcessSet || request.op == OpType::kRemoveProcessSet) {
    ++counts_.left_for_set;
  } else if (absl::StartsWith(request.name, "loop/")) {
    ++counts_.left_for_change;
  } else {
    ++counts_.left_for_tensor;
  }
}

void Simulation::Complete(RankId id, std::map<TensorKey, TensorRequest>::iterator it) {
  Rank& rank = ranks_[id];
  std::erase_if(rank.taken, [&](const auto& entry) { return entry.second == it->first; });
  rank.in_flight.erase(it);
}

void Simulation::ActInSchedule(RankId id) {
  Rank& rank = ranks_[id];
  if (Percent(50)) DeliverCall(id);
  if (rank.reporter.lock() == nullptr) return;
  if (rank.in_bucket) return SeeVote(id);
  ConsiderLeaving(id);
  if (rank.reporter.lock()->Next() != nullptr) Enter(id);
}

void Simulation::DeliverCall(RankId id) {
  Rank& rank = ranks_[id];
  if (rank.calls.empty()) return;
  rank.called_off = std::max(rank.called_off, rank.calls.front());
  rank.calls.pop_front();
}

void Simulation::ConsiderLeaving(RankId id) {
  Rank& rank = ranks_[id];
  ScheduleLock& lock = *rank.reporter.lock();
  if (!lock.leaving() && rank.called_off >= lock.number()) {
    ++counts_.left_for_call;
    lock.Leave();
  }
  const bool lacks = lock.submitted() > 0 && lock.Next() == nullptr;
  if (lacks && now_ - rank.since >= kPatience) {
    ++counts_.left_for_lack;
    lock.Leave();
  }
  if (lock.leaving()) CallOff(id, lock.number());
}

void Simulation::CallOff(RankId id, uint64_t schedule) {
  if (ranks_[id].calling_off >= schedule) return;
  ranks_[id].calling_off = schedule;
  for (Rank& rank : ranks_) rank.calls.push_back(schedule);
}

void Simulation::Enter(RankId id) {
  Rank& rank = ranks_[id];
  const ScheduleLock& lock = *rank.reporter.lock();
  Vote& vote = votes_[{lock.number(), rank.votes}];
  ++vote.entered;
  vote.vetoes += lock.leaving() ? 1 : 0;
  rank.in_bucket = rank.votes;
  rank.since = now_;
}

void Simulation::SeeVote(RankId id) {
  Rank& rank = ranks_[id];
  ScheduleLock& lock = *rank.reporter.lock();
  const Vote& vote = votes_[{lock.number(), *rank.in_bucket}];
  if (vote.entered < world_.ranks) {
    if (now_ - rank.since < kWarning || rank.calling_off >= lock.number()) return;
    ++counts_.left_for_lateness;
    return CallOff(id, lock.number());
  }
  rank.in_bucket.reset();
  ++rank.votes;
  rank.since = now_;
  if (vote.vetoes > 0) return LeaveSchedule(id);
  counts_.scheduled += id == 0 ? 1 : 0;
  if (lock.leaving()) Violate(absl::StrCat("rank ", id, " wants to leave, and its vote does not count"));
  TakeBucket(id, *lock.Next());
  lock.Advance();
  TakeFresh(id);
}

void Simulation::LeaveSchedule(RankId id) {
  Rank& rank = ranks_[id];
  if (id == 0) {
    ++counts_.vetoes;
    const uint64_t rounds = rank.reporter.lock()->rounds();
    recording_.events.push_back(NegotiationEvent::Leave(rounds, now_));
    negotiator_.LeaveSchedule(rounds);
  }
  rank.reporter.LeaveSchedule();
  SubmitAgain(id);
}

// --- Until nothing moves ---

// Whether anything has happened.
bool Simulation::DrainSchedule() {
  bool busy = false;
  for (RankId id = 0; id < world_.ranks; ++id) {
    Rank& rank = ranks_[id];
    while (!rank.calls.empty()) DeliverCall(id);
    const ScheduleLock* lock = rank.reporter.lock();
    if (lock == nullptr) continue;
    const uint64_t votes = rank.votes;
    const bool was_in = rank.in_bucket.has_value();
    ActInSchedule(id);
    busy |= rank.votes != votes || rank.in_bucket.has_value() != was_in || rank.reporter.lock() == nullptr;
  }
  const auto called = [](const Rank& rank) { return !rank.calls.empty(); };
  return busy || std::any_of(ranks_.begin(), ranks_.end(), called);
}

// Lets time pass for those who wait in a schedule. False if nobody does.
bool Simulation::ExpirePatience() {
  const auto waits = [](const Rank& rank) {
    return rank.reporter.lock() != nullptr && (rank.in_bucket || rank.reporter.lock()->submitted() > 0);
  };
  if (std::none_of(ranks_.begin(), ranks_.end(), waits)) return false;
  now_ += std::max(kPatience, kWarning);
  return true;
}

}  // namespace ronda
