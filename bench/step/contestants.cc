#include "bench/step/contestants.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "bench/step/peer_exchange.h"
#include "bench/step/ronda_exchange.h"
#include "client/ronda.hpp"
#include "runtime/base/mutex.h"
#include "runtime/base/status_macros.h"

namespace ronda::bench {
namespace {

class ComputeContestant : public StepContestant {
 public:
  explicit ComputeContestant(const Arena& arena) : arena_(arena) {}

  std::string name() const override { return "compute only"; }

  BlockResult RunBlock(Checking) override {
    NoExchange exchange;
    arena_.rank.team.Barrier();
    return arena_.loop.Run(&exchange, &arena_.gradients, nullptr);
  }

 private:
  const Arena arena_;
};

class PeerContestant : public StepContestant {
 public:
  PeerContestant(std::string name, std::unique_ptr<GradientExchange> exchange, const Arena& arena)
      : name_(std::move(name)), exchange_(std::move(exchange)), arena_(arena) {}

  std::string name() const override { return name_; }

  BlockResult RunBlock(Checking checking) override {
    const StepLoop::Check check = {.rank = arena_.rank.team.rank(), .ranks = arena_.rank.team.size()};
    arena_.rank.team.Barrier();
    return arena_.loop.Run(exchange_.get(), &arena_.gradients, checking == Checking::kOn ? &check : nullptr);
  }

 private:
  const std::string name_;
  const std::unique_ptr<GradientExchange> exchange_;
  const Arena arena_;
};

// Runs a block as the calling thread's rank, which has joined its job.
BlockResult RunAsRank(const Arena& arena, const Setting& setting, Checking checking, Gradients* gradients) {
  RondaExchange exchange(arena.model, gradients, setting.wire);
  const StepLoop::Check check = {
      .rank = ronda::rank(), .ranks = ronda::size(), .expected = Gradients::Expected::kAverage, .wire = setting.wire};
  return arena.loop.Run(&exchange, gradients, checking == Checking::kOn ? &check : nullptr);
}

// The ranks are the job's processes.
class ProcessContestant : public StepContestant {
 public:
  ProcessContestant(const Setting& setting, const Arena& arena) : setting_(setting), arena_(arena) {}

  std::string name() const override { return "ronda"; }
  const Setting* setting() const override { return &setting_; }

  BlockResult RunBlock(Checking checking) override {
    const SettingEnvironment environment(setting_);
    ronda::init(OptionsOf(setting_));
    BlockResult result = RunAsRank(arena_, setting_, checking, &arena_.gradients);
    ronda::shutdown();
    return result;
  }

 private:
  const Setting setting_;
  const Arena arena_;
};

// The ranks are threads of the first process; the other processes wait.
class ThreadContestant : public StepContestant {
 public:
  ThreadContestant(const Setting& setting, const Arena& arena) : setting_(setting), arena_(arena) {
    if (!arena.rank.team.is_first()) return;
    for (int i = 1; i < arena.rank.team.size(); ++i) others_.push_back(std::make_unique<Gradients>(arena.model));
  }

  std::string name() const override { return "ronda"; }
  const Setting* setting() const override { return &setting_; }

  BlockResult RunBlock(Checking checking) override {
    if (arena_.rank.team.is_first()) {
      const SettingEnvironment environment(setting_);
      ronda::run_threads(
          arena_.rank.team.size(), [&] { RunThread(checking); }, OptionsOf(setting_));
    }
    arena_.rank.team.Barrier();
    const MutexLock lock(&mutex_);
    slowest_.step_ms.resize(static_cast<size_t>(arena_.loop.steps()));  // zeros where no rank has run
    return std::exchange(slowest_, {});
  }

 private:
  void RunThread(Checking checking) {
    const int rank = ronda::rank();
    Gradients* const gradients = rank == 0 ? &arena_.gradients : others_[static_cast<size_t>(rank) - 1].get();
    const BlockResult own = RunAsRank(arena_, setting_, checking, gradients);
    const MutexLock lock(&mutex_);
    slowest_.step_ms.resize(own.step_ms.size());
    for (size_t i = 0; i < own.step_ms.size(); ++i) {
      slowest_.step_ms[i] = std::max(slowest_.step_ms[i], own.step_ms[i]);
    }
    slowest_.control_messages += own.control_messages;
    slowest_.wrong += own.wrong;
  }

  const Setting setting_;
  const Arena arena_;
  std::vector<std::unique_ptr<Gradients>> others_;  // of ranks 1 and up, where those are
  Mutex mutex_;
  BlockResult slowest_ ABSL_GUARDED_BY(mutex_);  // of each step; of the block that runs
};

}  // namespace

std::unique_ptr<StepContestant> ComputeOnly(const Arena& arena) { return std::make_unique<ComputeContestant>(arena); }

std::unique_ptr<StepContestant> RondaWith(const Setting& setting, const Arena& arena) {
  if (setting.backend == Backend::kInProcess) return std::make_unique<ThreadContestant>(setting, arena);
  return std::make_unique<ProcessContestant>(setting, arena);
}

absl::StatusOr<std::vector<std::unique_ptr<StepContestant>>> FormsOf(Peer* peer, const Arena& arena) {
  std::vector<std::unique_ptr<StepContestant>> forms;
  RONDA_ASSIGN_OR_RETURN(std::unique_ptr<PeerLoop> loop, PeerLoop::Create(peer, &arena.rank.team, &arena.gradients));
  RONDA_ASSIGN_OR_RETURN(std::unique_ptr<PeerFlat> flat, PeerFlat::Create(peer, &arena.rank.team, &arena.gradients));
  const std::string name = peer->info().name;
  forms.push_back(std::make_unique<PeerContestant>(name + " per tensor", std::move(loop), arena));
  forms.push_back(std::make_unique<PeerContestant>(name + " flat", std::move(flat), arena));
  return forms;
}

}  // namespace ronda::bench
