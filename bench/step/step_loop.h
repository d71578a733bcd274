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

// A gradient, and the time at which it is complete.
struct ReadyGradient {
  size_t parameter = 0;  // its index in ModelShapes::parameters
  absl::Duration after;  // since the backward pass began
};

// Returns the backward pass of `model`, which takes `compute`. The last parameter comes first. Each parameter takes
// a part of `compute` that is proportional to its work. If no parameter has work, all get the same time.
std::vector<ReadyGradient> BackwardPass(const ModelShapes& model, absl::Duration compute);

// The work of the calling thread during the time of a backward pass.
enum class ComputeKind {
  kSpin,   // the thread keeps its core busy until the time has passed, like a trainer that drives an accelerator
  kSleep,  // the thread sleeps
  kBurn,   // the thread uses this much CPU time, like a trainer that computes on the CPU, where other threads delay it
};

constexpr const char* Name(ComputeKind kind) {
  constexpr const char* kNames[] = {"spin", "sleep", "burn"};
  return kNames[static_cast<int>(kind)];
}

// Spends the time of one backward pass, in the thread that constructs it. Thread-compatible.
class Computation {
 public:
  // Begins the backward pass.
  explicit Computation(ComputeKind kind);

  // Returns when `duration` of the backward pass has passed.
  void Until(absl::Duration duration) const;

 private:
  const ComputeKind kind_;
  const absl::Duration start_;  // on the clock that belongs to the kind
};

// One rank's gradients, fp32. Each gradient has its own memory, which begins at a cache line, as in frameworks.
// Thread-compatible.
class Gradients {
 public:
  explicit Gradients(const ModelShapes& model);

  size_t size() const { return counts_.size(); }
  float* data(size_t parameter) const { return static_cast<float*>(buffers_[parameter].data()); }
  int64_t count(size_t parameter) const { return counts_[parameter]; }

  // Fills the gradients with values that stay the same in averages, and stay finite in many sums.
  void FillForTiming();

  // Fills the gradients with small integers that depend on the rank and the index.
  void FillForCheck(int rank);

  enum class Expected { kSum, kAverage };
  // Returns the number of elements that differ from the result of `ranks` ranks with FillForCheck() by more than the
  // precision of `wire`.
  int64_t CountWrong(int ranks, Expected expected, WireFormat wire) const;

 private:
  std::vector<int64_t> counts_;
  std::vector<AlignedBytes> buffers_;
};

// Combines one rank's gradients with the other ranks' gradients.
class GradientExchange {
 public:
  virtual ~GradientExchange() = default;

  // Receives a gradient that is complete on this rank.
  virtual void Ready(size_t parameter) = 0;

  // The step calls this when all gradients are complete. Returns when this rank has all results.
  virtual void Finish() = 0;

  // Returns the number of control messages that this rank has sent or received so far.
  virtual int64_t control_messages() { return 0; }
};

// Exchanges nothing, to measure the time of a step that only computes.
class NoExchange : public GradientExchange {
 public:
  void Ready(size_t) override {}
  void Finish() override {}
};

// The result of one rank's block of steps.
struct BlockResult {
  std::vector<double> step_ms;
  int64_t control_messages = 0;  // in all timed steps
  int64_t wrong = 0;             // elements; 0 if they were not checked
};

// Runs blocks of training steps without the training. Immutable: the ranks of one process may share it.
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

  // The ranks and the expected results of a further step, which runs after the timed steps and is checked.
  struct Check {
    int rank = 0;
    int ranks = 1;
    Gradients::Expected expected = Gradients::Expected::kSum;
    WireFormat wire = WireFormat::kNone;
  };

  // Runs a block of steps. If `check` is nullptr, nothing is checked. `exchange` must be an exchange of `gradients`.
  BlockResult Run(GradientExchange* exchange, Gradients* gradients, const Check* check) const;

 private:
  void RunStep(GradientExchange* exchange) const;

  const Options options_;
};

}  // namespace ronda::bench

#endif  // RONDA_BENCH_STEP_STEP_LOOP_H_
