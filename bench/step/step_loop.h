#ifndef RONDA_BENCH_STEP_STEP_LOOP_H_
#define RONDA_BENCH_STEP_STEP_LOOP_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "bench/step/backward.h"
#include "bench/step/gradients.h"
#include "runtime/base/types.h"

namespace ronda::bench {

// How one rank's gradients meet those of the others.
class GradientExchange {
 public:
  virtual ~GradientExchange() = default;

  // This gradient is complete on this rank.
  virtual void Ready(size_t parameter) = 0;

  // All of them are: returns when this rank has the result of every one.
  virtual void Finish() = 0;

  // Control messages that this rank has sent or received so far.
  virtual int64_t control_messages() { return 0; }
};

// Nothing is exchanged: what a step takes that only computes.
class NoExchange : public GradientExchange {
 public:
  void Ready(size_t) override {}
  void Finish() override {}
};

// What one rank's block of steps came to.
struct BlockResult {
  std::vector<double> step_ms;
  int64_t control_messages = 0;  // in all timed steps
  int64_t wrong = 0;             // elements; 0 if they were not looked at
};

// Runs blocks of training steps without the training. Immutable: the ranks of one process may share it.
class StepLoop {
 public:
  struct Options {
    std::vector<ReadyGradient> pass;
    ComputeKind compute_kind = ComputeKind::kSpin;
    int warm_up = 8;  // steps that are not timed
    int steps = 10;   // that are
  };

  explicit StepLoop(Options options) : options_(std::move(options)) {}

  int steps() const { return options_.steps; }

  // A further step, after the timed ones, whose results are looked at.
  struct Check {
    int rank = 0;
    int ranks = 1;
    Gradients::Expected expected = Gradients::Expected::kSum;
    WireFormat wire = WireFormat::kNone;
  };

  // `check`: null to do without. The exchange must be of `gradients`.
  BlockResult Run(GradientExchange* exchange, Gradients* gradients, const Check* check) const;

 private:
  void RunStep(GradientExchange* exchange) const;

  const Options options_;
};

}  // namespace ronda::bench

#endif  // RONDA_BENCH_STEP_STEP_LOOP_H_
