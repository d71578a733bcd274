// SPDX-License-Identifier: Apache-2.0

// A trainer for elastic jobs that counts how many steps have used each sample.
//
//   rondarun -np 4 --min-np 2 counting_trainer FILE
//
// Trains until FILE exists at the end of a pass over the data. After each pass, every rank checks that its state has
// counted every sample once per pass. If a count is wrong, the rank prints WRONG and exits with code 3.
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "client/ronda.hpp"
#include "client/ronda/elastic.hpp"
#include "tests/testing/counting_model.h"

namespace {

constexpr std::int64_t kSamples = 1003;
constexpr std::int64_t kGlobalBatch = 16;  // neither divides the number of samples, nor is divisible by three

using Model = ronda::testing::CountingModel;

class Sgd {
 public:
  explicit Sgd(Model& model) : model_(model) {}

  std::vector<ronda::Tensor> state() { return {ronda::tensor("velocity", velocity_)}; }

  void step() {
    for (std::size_t i = 0; i < model_.counts.size(); ++i) model_.counts[i] += model_.counted[i];
    for (std::size_t i = 0; i < velocity_.size(); ++i) {
      velocity_[i] = 0.9f * velocity_[i] + model_.gradient[i];
      model_.weights[i] -= 0.05f * velocity_[i];
    }
  }

 private:
  Model& model_;
  std::vector<float> velocity_ = std::vector<float>(Model::kWeights);
};

void Say(const std::string& line) { std::cout << line + "\n" << std::flush; }

class CountingTrainer {
 public:
  explicit CountingTrainer(std::string file) : file_(std::move(file)) {}

  int Train() {
    const auto end = ronda::elastic::run(state_, [this](const ronda::elastic::Membership& now) { TrainInEpoch(now); });
    if (end == ronda::elastic::End::left) return Say("left after step " + std::to_string(state_.step())), 0;
    if (is_wrong_) return 3;
    Say("finished: weights " + std::to_string(model_.Hash()) + " after " + std::to_string(sampler_.epoch()) +
        " passes, every sample once");
    ronda::shutdown();
    return 0;
  }

 private:
  void TrainInEpoch(const ronda::elastic::Membership& now) {
    if (now.rank == 0) Say(std::to_string(now.size) + " ranks go on after step " + std::to_string(now.step));
    ronda::DistributedOptimizerOptions sum;
    sum.op = ronda::Op::Sum;
    ronda::DistributedOptimizer optimizer(
        sgd_, {ronda::tensor("counted", model_.counted), ronda::tensor("gradient", model_.gradient)}, sum);
    while (!IsFinished()) {
      model_.Backward(sampler_.next());
      optimizer.gradient_ready("counted");
      optimizer.gradient_ready("gradient");
      optimizer.step();
      state_.step_done();
    }
  }

  // Returns whether to stop before the next step. All ranks get the same result.
  bool IsFinished() {
    if (sampler_.cursor().taken != 0) return false;
    CheckCounts();
    std::int64_t is_finished = is_wrong_ || access(file_.c_str(), F_OK) == 0 ? 1 : 0;
    ronda::broadcast(ronda::tensor("is finished", &is_finished), 0);
    return is_finished != 0;
  }

  void CheckCounts() {
    const std::int64_t passes = sampler_.epoch();
    for (std::size_t i = 0; i < model_.counts.size(); ++i) {
      if (model_.counts[i] == passes) continue;
      is_wrong_ = true;
      Say("WRONG: sample " + std::to_string(i) + " was counted " + std::to_string(model_.counts[i]) + " times in " +
          std::to_string(passes) + " passes");
      return;
    }
    if (ronda::rank() == 0 && passes > said_) Say("epoch " + std::to_string(passes) + " is done");
    said_ = passes;
  }

  const std::string file_;
  Model model_{kSamples, static_cast<float>(getpid())};
  Sgd sgd_{model_};
  ronda::elastic::Sampler sampler_{kSamples, kGlobalBatch, {true, 5}};
  ronda::elastic::State state_{
      {ronda::tensor("counts", model_.counts), ronda::tensor("weights", model_.weights)}, sgd_, sampler_};
  std::int64_t said_ = 0;  // the last pass that it has reported
  bool is_wrong_ = false;
};

}  // namespace

int main(int argc, char** argv) { return argc == 2 ? CountingTrainer(argv[1]).Train() : 2; }
