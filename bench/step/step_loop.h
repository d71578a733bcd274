// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_BENCH_STEP_STEP_LOOP_H_
#define RONDA_BENCH_STEP_STEP_LOOP_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "bench/collectives/collective_case.h"
#include "bench/harness/model_shapes.h"
#include "runtime/base/types.h"

namespace ronda::bench {

// A gradient, and the time at which it becomes ready.
struct ReadyGradient {
  size_t parameter = 0;  // its index in ModelShapes::parameters
  absl::Duration after;  // since the backward pass began
};

// Returns the gradients in the order in which the backward pass of `model`, which takes `compute`, completes them. The
// gradient of the last parameter comes first. Each parameter takes a share of `compute` that is proportional to its
// work. If no parameter has any work, all shares are equal.
std::vector<ReadyGradient> BackwardPass(const ModelShapes& model, absl::Duration compute);

// What the calling thread does during a backward pass.
enum class ComputeKind {
  kSpin,   // the thread keeps its core busy until the time has passed, like a trainer that drives an accelerator
  kSleep,  // the thread sleeps
  kBurn,   // the thread uses this much CPU time, like a trainer that computes on the CPU, where other threads delay it
};

constexpr const char* Name(ComputeKind kind) {
  constexpr const char* kNames[] = {"spin", "sleep", "burn"};
  return kNames[static_cast<int>(kind)];
}

// Simulates one backward pass on the thread that constructs it. Thread-compatible.
class Computation {
 public:
  // Starts the backward pass.
  explicit Computation(ComputeKind kind);

  // Returns when the backward pass has run for `duration`.
  void Until(absl::Duration duration) const;

 private:
  const ComputeKind kind_;
  const absl::Duration start_;  // on the clock that belongs to the kind
};

// One rank's gradients, fp32. Each gradient has its own memory, which is aligned to a cache line, as in frameworks.
// Thread-compatible.
class Gradients {
 public:
  explicit Gradients(const ModelShapes& model);

  size_t size() const { return counts_.size(); }
  float* data(size_t parameter) const { return static_cast<float*>(buffers_[parameter].data()); }
  int64_t count(size_t parameter) const { return counts_[parameter]; }

  // Fills the gradients with values that do not change when averaged, and that stay finite in many sums.
  void FillForTiming();

  // Fills the gradients with small integers that depend on the rank and the index.
  void FillForCheck(int rank);

  enum class Expected { kSum, kAverage };
  // Returns how many elements differ, by more than the precision of `wire`, from the result that `ranks` ranks obtain
  // after FillForCheck().
  int64_t CountWrong(int ranks, Expected expected, WireFormat wire) const;

 private:
  std::vector<int64_t> counts_;
  std::vector<AlignedBytes> buffers_;
};

// Combines one rank's gradients with those of the other ranks.
class GradientExchange {
 public:
  virtual ~GradientExchange() = default;

  // Called when a gradient is complete on this rank.
  virtual void Ready(size_t parameter) = 0;

  // Called when all gradients are complete. Returns once this rank has all results.
  virtual void Finish() = 0;

  // Returns how many control messages this rank has sent or received so far.
  virtual int64_t control_messages() { return 0; }
};

// Exchanges nothing, in order to time a step that only computes.
class NoExchange : public GradientExchange {
 public:
  void Ready(size_t) override {}
  void Finish() override {}
};

// The result of a block of steps on one rank.
struct BlockResult {
  std::vector<double> step_ms;
  int64_t control_messages = 0;  // in all timed steps
  int64_t wrong = 0;             // elements; 0 if they were not checked
};

// Runs blocks of simulated training steps. Immutable: the ranks of a process may share it.
class StepLoop {
 public:
  struct Options {
    std::vector<ReadyGradient> pass;
    ComputeKind compute_kind = ComputeKind::kSpin;
    int warm_up = 8;  // steps that are not timed
    int steps = 10;   // timed steps
  };

  explicit StepLoop(Options options) : options_(std::move(options)) {}

  int steps() const { return options_.steps; }

  // Describes a further step, which runs after the timed steps and whose results are checked.
  struct Check {
    int rank = 0;
    int ranks = 1;
    Gradients::Expected expected = Gradients::Expected::kSum;
    WireFormat wire = WireFormat::kNone;
  };

  // Runs a block of steps. If `check` is nullptr, nothing is checked. `exchange` must exchange `gradients`.
  BlockResult Run(GradientExchange* exchange, Gradients* gradients, const Check* check) const;

 private:
  void RunStep(GradientExchange* exchange) const;

  const Options options_;
};

}  // namespace ronda::bench

#endif  // RONDA_BENCH_STEP_STEP_LOOP_H_
