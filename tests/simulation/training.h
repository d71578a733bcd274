// SPDX-License-Identifier: Apache-2.0

// Training in a simulated job: the operations of a step, each rank's contributions, and the expected results.
#ifndef RONDA_TESTS_SIMULATION_TRAINING_H_
#define RONDA_TESTS_SIMULATION_TRAINING_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/peer.h"
#include "runtime/base/types.h"
#include "runtime/engine/handle.h"
#include "runtime/engine/submission.h"

namespace ronda::simulation {

// One rank's submission and buffers for an operation of a step. The object must not move while the operation is in
// flight.
class Part {
 public:
  // `salt` determines the values, and must be the same on all ranks. REQUIRES: PlanStep uses operations of type `op`.
  Part(std::string name, OpType op, DType dtype, int64_t rows, uint64_t salt, const Topology& topology);

  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;

  const Submission& submission() const { return submission_; }
  void SetLimits(const WaitLimits& limits) { submission_.request.limits = limits; }
  // Makes this rank's submission contradict those of the other ranks.
  void Contradict() { submission_.request.prescale = 0.5; }

  // Returns "" if the operation's results are right, and otherwise a text that names the first wrong value.
  std::string Check(const OperationResult& result) const;

  // Returns a number that identifies the right result, independent of the number of ranks. Returns 0 for operations
  // whose result depends on this number (allgather, reducescatter), and for a barrier.
  uint64_t Digest() const { return digest_; }

 private:
  template <typename T>
  void Fill();
  template <typename T>
  std::string CheckValues(const OperationResult& result) const;
  int64_t Value(int64_t index) const;
  int64_t Contribution(RankId rank, int64_t index) const;
  int64_t RowsOf(RankId rank) const;

  const RankId rank_;
  const int size_;
  const uint64_t salt_;
  const int64_t rows_;
  uint64_t digest_ = 0;
  std::vector<std::byte> input_;
  std::vector<std::byte> output_;
  Submission submission_;
};

// Returns the operations of step number `step`, counted from 0. They are the same in most steps.
std::vector<std::unique_ptr<Part>> PlanStep(uint64_t seed, int64_t step, const Topology& topology);

// Returns the model's state after a step with these operations, if `state` is the state before the step.
uint64_t NextState(uint64_t state, const std::vector<std::unique_ptr<Part>>& parts);

}  // namespace ronda::simulation

#endif  // RONDA_TESTS_SIMULATION_TRAINING_H_
