// The training of a simulated job: which operations a step has, what each rank contributes, and what must come out.
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

// One rank's part in an operation of a step, with its buffers. Stays where it is while the operation is under way.
class Part {
 public:
  // `salt` decides the values, the same on all ranks. REQUIRES: `op` is one of those that PlanStep uses.
  Part(std::string name, OpType op, DType dtype, int64_t rows, uint64_t salt, const Topology& topology);

  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;

  const Submission& submission() const { return submission_; }
  void SetLimits(const WaitLimits& limits) { submission_.request.limits = limits; }
  // So that it contradicts the other ranks'.
  void Contradict() { submission_.request.prescale = 0.5; }

  // Whether the values that the operation has left are right; a text that names the first that is not, or "".
  std::string Check(const OperationResult& result) const;

  // A number that stands for the right result, the same for any number of ranks.
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

// The operations of a step, by which a model's state goes from `step` to the next one. Most steps have the same ones.
std::vector<std::unique_ptr<Part>> PlanStep(uint64_t seed, int64_t step, const Topology& topology);

// The model's state after a step with these operations, from the one before.
uint64_t NextState(uint64_t state, const std::vector<std::unique_ptr<Part>>& parts);

}  // namespace ronda::simulation

#endif  // RONDA_TESTS_SIMULATION_TRAINING_H_
