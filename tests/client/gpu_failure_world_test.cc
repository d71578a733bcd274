// SPDX-License-Identifier: Apache-2.0

// Tests a job in which a rank dies while another rank's stream waits for the reduced gradients. The optimizer's work
// has already been enqueued on the waiting stream.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "client/ronda.hpp"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/world_programs.h"
#include "tests/testing/fake_gpu/fake_gpu.h"
#include "tests/testing/process_world.h"

namespace {

using ronda::testing::FakeGpuArray;
using ronda::testing::FakeGpuStream;
using ronda::testing::JobResult;
using ronda::testing::RunRankProgram;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr int kRanks = 2;
constexpr std::size_t kCount = 1000;
constexpr float kMean = 1.5f;  // of the ranks' gradients, which are 1 and 2

// Counts the updates made by the device, and those with a wrong gradient.
struct Descent {
  void step() {
    stream.Enqueue([this] {
      const float* const begin = gradient.data();
      if (!std::all_of(begin, begin + kCount, [](float each) { return each == kMean; })) ++wrong;
      ++updates;
    });
  }
  void backward() const { gradient.Set(std::vector<float>(kCount, static_cast<float>(ronda::rank() + 1))); }

  const FakeGpuStream stream{ronda::rank()};
  const FakeGpuArray<float> gradient{stream, kCount};
  std::atomic<int> updates{0};
  std::atomic<int> wrong{0};
};

using Optimizer = ronda::DistributedOptimizer<Descent>;

// Trains up to a step whose reduction has begun on rank 0's device but not on rank 1's. Then rank 1 dies. Objects are
// leaked, because their destructors would wait for a stream.
Optimizer& TrainUntilRank1Dies() {
  ronda::init();
  auto& descent = *new Descent;
  auto& optimizer = *new Optimizer(
      descent, {ronda::cuda_tensor("g", descent.gradient.data(), {std::int64_t{kCount}}, descent.stream.handle())});
  descent.backward();
  optimizer.gradient_ready("g");
  optimizer.step();
  descent.stream.Synchronize();
  descent.backward();
  if (ronda::rank() == 1) {
    descent.stream.Enqueue([] {
      for (;;) pause();
    });
  }
  optimizer.gradient_ready("g");
  optimizer.step();
  // When this barrier completes on rank 1, both ranks have left step(). On rank 0 the barrier may fail, because rank 1
  // may already be dead.
  static_cast<void>(ronda::try_barrier());
  if (ronda::rank() == 1) raise(SIGKILL);
  return optimizer;
}

void WaitsForItsStream() {
  const Descent& descent = TrainUntilRank1Dies().optimizer();
  descent.stream.Synchronize();
  std::printf("went on: %d updates, %d of them wrong\n", descent.updates.load(), descent.wrong.load());
  EXPECT_EQ(ronda::try_barrier().code(), RONDA_ERROR_PEER_FAILED);
}

void GoesOnTraining() {
  Optimizer& optimizer = TrainUntilRank1Dies();
  EXPECT_EQ(optimizer.try_finish().code(), RONDA_ERROR_PEER_FAILED);
  static_cast<void>(optimizer.try_gradient_ready("g"));  // the queue may not have been closed yet
  const ronda::Status status = optimizer.try_step();
  EXPECT_EQ(status.code(), RONDA_ERROR_PEER_FAILED);
  EXPECT_THAT(status.message(), HasSubstr("rank 1"));
  EXPECT_EQ(ronda::try_shutdown().code(), RONDA_ERROR_PEER_FAILED);
  EXPECT_EQ(optimizer.optimizer().updates, 1);
  const ronda::Status again = ronda::try_init();
  EXPECT_EQ(again.code(), RONDA_ERROR_INTERNAL);
  EXPECT_THAT(again.message(), HasSubstr("a stream of the program waits for allreduce 'g'"));
}

// A test whose parameter is the value of RONDA_DEVICE_BACKEND.
class GpuFailures : public ::testing::TestWithParam<std::string> {
 protected:
  static JobResult RunWith(const std::string& program, const std::string& grace);
};

INSTANTIATE_TEST_SUITE_P(Backends, GpuFailures, ::testing::Values("nccl", "peer"),
                         [](const auto& backend) { return backend.param; });

JobResult GpuFailures::RunWith(const std::string& program, const std::string& grace) {
  return RunRankProgram(program, kRanks,
                        {.env = {{"RONDA_CUDA_PLUGIN", ronda::testing::kFakeCudaPath},
                                 {"RONDA_NCCL_LIBRARY", ronda::testing::kFakeNcclLibraryPath},
                                 {"RONDA_DEVICE_BACKEND", GetParam()},
                                 {"RONDA_FAILURE_GRACE", grace}}});
}

TEST_P(GpuFailures, AProcessThatWaitsForItsStreamEnds) {
  const JobResult job = RunWith("gpu_failure_waits", "100ms");
  EXPECT_EQ(job.ranks[0].exit_code, EXIT_FAILURE);
  EXPECT_THAT(job.ranks[0].output,
              AllOf(HasSubstr("this process ends 100ms after the failure of its job: rank 1 "),
                    HasSubstr("; a stream of the program waits for allreduce 'g', and must not go on"),
                    HasSubstr("RONDA_FAILURE_GRACE"), Not(HasSubstr("went on"))));
  EXPECT_EQ(job.ranks[1].signal, SIGKILL);
  EXPECT_THAT(job.left_in_shared_memory, IsEmpty());
}

TEST_P(GpuFailures, TheNextCallFailsAndTheUpdateIsNotMade) {
  const JobResult job = RunWith("gpu_failure_trains", "inf");
  EXPECT_EQ(job.ranks[0].exit_code, EXIT_SUCCESS) << job.ranks[0].output;
}

TEST_P(GpuFailures, AProgramCanLetItsStreamsGoOn) {
  const JobResult job = RunWith("gpu_failure_waits", "continue");
  EXPECT_EQ(job.ranks[0].exit_code, EXIT_SUCCESS) << job.ranks[0].output;
  EXPECT_THAT(job.ranks[0].output, HasSubstr("went on: 2 updates, 1 of them wrong"));
}

}  // namespace

const std::vector<ronda::testing::RankProgram>& ronda::testing::GpuFailurePrograms() {
  static const auto* const kPrograms =
      new std::vector<RankProgram>{{"gpu_failure_waits", WaitsForItsStream}, {"gpu_failure_trains", GoesOnTraining}};
  return *kPrograms;
}
