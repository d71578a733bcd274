#ifndef RONDA_BENCH_STEP_BACKWARD_H_
#define RONDA_BENCH_STEP_BACKWARD_H_

#include <cstddef>
#include <vector>

#include "absl/time/time.h"
#include "bench/shapes/shapes.h"

namespace ronda::bench {

// A gradient, and when it is complete.
struct ReadyGradient {
  size_t parameter = 0;  // its place in ModelShapes::parameters
  absl::Duration after;  // since the backward pass began
};

// The backward pass of `model`, which takes `compute`: last parameter first, the time spread over the parameters in
// proportion to their work (evenly if none has any).
std::vector<ReadyGradient> BackwardPass(const ModelShapes& model, absl::Duration compute);

// How the time of a backward pass is spent.
enum class ComputeKind {
  kSpin,   // the thread keeps its core busy until the time has passed: as a trainer that drives an accelerator
  kSleep,  // the thread sleeps
  kBurn,   // the thread uses so much CPU time: as a trainer that computes on the CPU, which whatever else runs there
           // delays
};

// Spends the time of one backward pass, in the thread that makes it. Thread-compatible.
class Computation {
 public:
  // The backward pass begins.
  explicit Computation(ComputeKind kind);

  // Returns when `duration` of it has passed.
  void Until(absl::Duration duration) const;

 private:
  const ComputeKind kind_;
  const absl::Duration start_;  // on the clock of the kind
};

}  // namespace ronda::bench

#endif  // RONDA_BENCH_STEP_BACKWARD_H_
