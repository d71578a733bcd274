// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_BENCH_STEP_IMPLEMENTATIONS_H_
#define RONDA_BENCH_STEP_IMPLEMENTATIONS_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/harness/job.h"
#include "bench/harness/model_shapes.h"
#include "bench/harness/peers.h"
#include "bench/step/step_loop.h"
#include "bench/step/step_options.h"

namespace ronda::bench {

// Objects that all implementations of a measurement share. They must outlive the implementations.
struct StepContext {
  const ModelShapes& model;
  const StepLoop& loop;
  Gradients& gradients;  // this rank's
  Rank& rank;
};

enum class Checking { kOff, kOn };

// An implementation of the steps to measure. The benchmark times all implementations in turn. Every rank must make the
// same calls. Thread-compatible.
class StepImplementation {
 public:
  virtual ~StepImplementation() = default;
  StepImplementation() = default;
  StepImplementation(const StepImplementation&) = delete;
  StepImplementation& operator=(const StepImplementation&) = delete;

  // Returns the name to show in tables, such as "ronda", "openmpi per tensor" or "compute only".
  virtual std::string name() const = 0;

  // Returns Ronda's setting, or nullptr for a peer.
  virtual const Setting* setting() const { return nullptr; }

  // Runs a block of steps on this rank; setup is not timed. Throws ronda::Error.
  virtual BlockResult RunBlock(Checking checking) = 0;
};

// Returns an implementation that computes but does not communicate.
std::unique_ptr<StepImplementation> ComputeOnly(const StepContext& context);

// Returns an implementation that joins a new Ronda job with `setting` for each block, so that no state of other
// settings affects the block.
std::unique_ptr<StepImplementation> RondaWith(const Setting& setting, const StepContext& context);

// Returns two implementations that use a peer: one loops over the tensors, the other uses one flat buffer. Errors: the
// peer's.
absl::StatusOr<std::vector<std::unique_ptr<StepImplementation>>> FormsOf(Peer* peer, const StepContext& context);

}  // namespace ronda::bench

#endif  // RONDA_BENCH_STEP_IMPLEMENTATIONS_H_
