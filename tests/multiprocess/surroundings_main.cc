// SPDX-License-Identifier: Apache-2.0

// The main program of tests of the launcher in unusual environments. With arguments, it is a rank of a job:
//
//   launcher_surroundings_test rank                  prints the job's name and a sum, after 200 steps
//   launcher_surroundings_test checkpoints FOLDER    resumes, saves three checkpoints, resumes, and prints the results
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "client/ronda.hpp"
#include "client/ronda/training/checkpoint.hpp"
#include "gtest/gtest.h"

namespace {

constexpr int kSteps = 200;

void Sum() {
  std::cout << "the job is " << std::getenv("RONDA_JOB_ID") << std::endl;
  ronda::init();
  float sum = 0;
  for (int step = 0; step < kSteps; ++step) {
    sum = 1;
    ronda::allreduce(ronda::tensor("x", &sum), {ronda::Op::Sum});
  }
  ronda::shutdown();
  std::cout << "the sum is " << sum << std::endl;
}

class SavesCheckpoints {
 public:
  explicit SavesCheckpoints(std::string folder) : checkpoints_({std::move(folder), "checkpoint", 2}) {}

  void Run() {
    ronda::init();
    const std::int64_t newest = Resume();
    for (std::int64_t step = newest + 1; step <= newest + 3; ++step) Save(step);
    Resume();
    ronda::shutdown();
  }

 private:
  // The number of elements in the state. The state is so large that it does not fit into a file buffer and takes
  // several writes.
  static constexpr std::size_t kElements = 3000;

  // Resumes from the newest checkpoint, and returns its step. If that fails, tries once more.
  std::int64_t Resume() {
    std::vector<float> state(kElements, -1);
    const std::vector<ronda::Tensor> tensors = {ronda::tensor("state", state)};
    auto resumed = checkpoints_.try_resume(tensors);
    if (!resumed.ok()) {
      std::cout << "cannot resume: " << resumed.status().message() << std::endl;
      resumed = checkpoints_.try_resume(tensors);
    }
    const auto [step, extra, problems] = resumed.value();
    if (state != StateAfter(step) || extra != Extra(step)) std::cout << "WRONG BITS" << std::endl;
    for (const std::string& problem : problems) std::cout << "PROBLEM " << problem << std::endl;
    std::cout << "resumed " << step << std::endl;
    return step;
  }

  void Save(std::int64_t step) {
    std::vector<float> state = StateAfter(step);
    const ronda::Status status = checkpoints_.try_save(step, {ronda::tensor("state", state)}, Extra(step));
    if (status.ok()) std::cout << "saved " << step << std::endl;
    if (!status.ok()) std::cout << "cannot save " << step << ": " << status.message() << std::endl;
  }

  static std::vector<float> StateAfter(std::int64_t step) {
    std::vector<float> state(kElements, -1);
    for (std::size_t i = 0; i < kElements && step >= 0; ++i) state[i] = static_cast<float>(step) + 1 / (1.0f + i);
    return state;
  }
  static std::string Extra(std::int64_t step) { return step < 0 ? "" : "extra " + std::to_string(step); }

  ronda::training::Checkpoints checkpoints_;
};

}  // namespace

int main(int argc, char** argv) {
  const std::string program = argc > 1 ? argv[1] : "";
  if (program != "rank" && program != "checkpoints") {
    ::testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
  }
  try {
    program == "rank" ? Sum() : SavesCheckpoints(argv[2]).Run();
    if (!std::cout) throw std::runtime_error("cannot print");
    return 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << std::endl;
    return 1;
  }
}
