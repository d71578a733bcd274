// SPDX-License-Identifier: Apache-2.0

#include "tests/chaos/chaos_rank.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "client/ronda.hpp"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/chaos/operation.h"
#include "tests/chaos/round_plan.h"

namespace ronda::chaos {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// The resources that a job must release when it ends.
struct Possessions {
  static long Count(const char* directory) {
    return std::distance(std::filesystem::directory_iterator(directory), std::filesystem::directory_iterator());
  }
  static Possessions Now() { return {Count("/proc/self/fd"), Count("/proc/self/task")}; }

  bool Exceed(const Possessions& other) const {
    return file_descriptors > other.file_descriptors || threads > other.threads;
  }

  long file_descriptors;
  long threads;
};

// Expects that the job's resources have been released. Polls, because the system lists a thread for a moment after it
// has been joined.
void ExpectGivenBack(const Possessions& before) {
  Possessions now = Possessions::Now();
  for (int i = 0; i < 200 && now.Exceed(before); ++i) {
    std::this_thread::sleep_for(milliseconds(10));
    now = Possessions::Now();
  }
  EXPECT_LE(now.file_descriptors, before.file_descriptors);
  EXPECT_LE(now.threads, before.threads);
}

class Rank {
 public:
  Rank(const RoundPlan& plan, uint64_t seed)
      : plan_(plan), rank_(ronda::rank()), random_(seed + static_cast<uint64_t>(rank_)) {}
  ~Rank() {
    if (injuring_.joinable()) injuring_.join();
  }

  // Runs the round, and returns the first failure.
  Status Run() {
    std::vector<int32_t> pids(kRanks);
    const int32_t pid = getpid();
    Result<std::vector<int32_t>> all_pids = try_allgather("pids", &pid, {1});
    if (!all_pids.ok()) return all_pids.status();
    injuring_ = std::thread([this, all = all_pids.value()] { Injure(all); });
    Status status = AddSets();
    for (size_t i = 0; i < plan_.batches.size(); ++i) {
      if (status.ok()) status = RunBatch(plan_.batches[i]);
      if (status.ok()) status = RunBatch({plan_.in_turn[i]});
    }
    if (status.ok()) status = RunLastSteps();
    if (status.ok()) status = RemoveSets();
    return status;
  }

 private:
  bool IsVictim() const { return std::count(plan_.injury.victims.begin(), plan_.injury.victims.end(), rank_) > 0; }

  void Injure(const std::vector<int32_t>& pids) {
    const Injury& injury = plan_.injury;
    // A rank that will be killed waits here for the signal, because the job would not notice the death of a rank that
    // has already shut down.
    while (injury.kind == Injury::Kind::kKill && IsVictim()) pause();
    std::this_thread::sleep_for(injury.after);
    if (injury.kind == Injury::Kind::kExit && IsVictim()) _exit(kExitCode);
    if (rank_ != injury.attacker) return;
    Random random(static_cast<uint64_t>(injury.after.count()));
    for (int victim : injury.victims) {
      const pid_t pid = pids[static_cast<size_t>(victim)];
      if (injury.kind == Injury::Kind::kKill) kill(pid, SIGKILL);
      if (injury.kind != Injury::Kind::kStop) continue;
      kill(pid, SIGSTOP);
      std::this_thread::sleep_for(random.UpTo(milliseconds(60)));
      kill(pid, SIGCONT);
    }
  }

  Status AddSets() {
    sets_ = {ProcessSet()};
    for (size_t i = 1; i < plan_.sets.size(); ++i) {
      Result<ProcessSet> set = try_add_process_set(plan_.sets[i]);
      if (!set.ok()) return set.status();
      sets_.push_back(set.value());
    }
    return {};
  }

  Status RemoveSets() {
    for (size_t i = 1; i < sets_.size(); ++i) {
      const Status status = try_remove_process_set(sets_[i]);
      if (!status.ok()) return status;
    }
    return {};
  }

  Status RunBatch(const std::vector<OperationPlan>& batch) {
    std::vector<std::pair<int, std::unique_ptr<Operation>>> mine;
    for (const OperationPlan& plan : batch) {
      if (std::binary_search(plan.members.begin(), plan.members.end(), rank_)) {
        mine.emplace_back(plan.set, MakeOperation(plan, rank_));
      }
    }
    random_.Shuffle(mine);
    Status first_failure;
    size_t submitted = 0;
    for (; submitted < mine.size() && first_failure.ok(); ++submitted) {
      MaybeDelay();
      const auto& [set, operation] = mine[submitted];
      first_failure = operation->Submit({sets_[static_cast<size_t>(set)]});
    }
    if (!first_failure.ok()) --submitted;
    for (size_t i = 0; i < submitted; ++i) {
      const Status status = mine[i].second->Finish();
      if (first_failure.ok()) first_failure = status;
    }
    return first_failure;
  }

  // Each rank makes its own number of steps, and then calls join(). Once all ranks have joined, all of them take part
  // in operations again.
  Status RunLastSteps() {
    const int steps = plan_.last_steps[static_cast<size_t>(rank_)];
    for (int step = 0; step < steps; ++step) {
      MaybeDelay();
      int64_t participants = 1;
      const Status status = try_allreduce(tensor("step " + std::to_string(step), &participants), {Op::Sum});
      if (!status.ok()) return status;
      EXPECT_EQ(participants, std::count_if(plan_.last_steps.begin(), plan_.last_steps.end(),
                                            [step](int of_rank) { return of_rank > step; }));
    }
    Result<int> last = try_join();
    if (!last.ok()) return last.status();
    int32_t least = last.value();
    int32_t most = last.value();
    Status status = try_allreduce(tensor("least", &least), {Op::Min});
    if (status.ok()) status = try_allreduce(tensor("most", &most), {Op::Max});
    if (!status.ok()) return status;
    EXPECT_EQ(least, most) << "the last rank to join is the same on every rank";
    return {};
  }

  void MaybeDelay() {
    if (random_.OneIn(8)) std::this_thread::sleep_for(random_.UpTo(milliseconds(4)));
  }

  const RoundPlan& plan_;
  const int rank_;
  Random random_;
  std::thread injuring_;
  std::vector<ProcessSet> sets_;
};

bool EndsJob(const Injury& injury) { return injury.kind == Injury::Kind::kKill || injury.kind == Injury::Kind::kExit; }

}  // namespace

void RunRound() {
  const uint64_t seed = std::strtoull(std::getenv(kSeedVariable), nullptr, 10);
  const RoundPlan plan = PlanRound(seed, kRanks);
  std::thread([] {}).join();  // with the first thread, ThreadSanitizer starts its own, which stays
  const Possessions before = Possessions::Now();
  init();
  Status of_operation;
  {
    Rank rank(plan, seed);
    of_operation = rank.Run();
  }
  // Operations in flight fail with "tensor 'x': <the job's failure>". Later calls return the job's failure itself.
  const Status later = of_operation.ok() ? Status() : try_barrier();
  const Status failure = try_shutdown();
  EXPECT_EQ(failure.ok(), !EndsJob(plan.injury)) << failure.message();
  if (!of_operation.ok()) {
    EXPECT_THAT(of_operation.message(), ::testing::EndsWith(failure.message()));
    EXPECT_EQ(later.message(), failure.message());
  }
  if (!failure.ok()) {
    EXPECT_EQ(failure.code(), RONDA_ERROR_PEER_FAILED);
    std::printf("%s%s\n", kFailureLine, failure.message().c_str());
  }
  ExpectGivenBack(before);
}

}  // namespace ronda::chaos
