// SPDX-License-Identifier: Apache-2.0

#include <gmock/gmock.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <thread>

#include "absl/time/clock.h"
#include "bench/cuda/gpu.h"
#include "tests/testing/fake_gpu/fake_gpu.h"

namespace ronda::bench {
namespace {

using ::testing::HasSubstr;

class GpuTest : public ::testing::Test {
 protected:
  void SetUp() override { setenv("RONDA_CUDA_PLUGIN", ronda::testing::kFakeCudaPath, 1); }

  static std::unique_ptr<Gpu> OpenedFor(int rank) {
    absl::StatusOr<std::unique_ptr<Gpu>> gpu = Gpu::Open(rank);
    EXPECT_TRUE(gpu.ok()) << gpu.status();
    return gpu.ok() ? *std::move(gpu) : nullptr;
  }
};

TEST_F(GpuTest, RanksShareGpusInTurn) {
  const int devices = OpenedFor(0)->devices();
  EXPECT_THAT(OpenedFor(1)->name(), HasSubstr("cuda:1"));
  EXPECT_EQ(OpenedFor(devices + 1)->name(), OpenedFor(1)->name());
}

TEST_F(GpuTest, WithoutAPluginTheReasonIsThatOfTheLoader) {
  setenv("RONDA_CUDA_PLUGIN", "/nowhere/libronda_cuda.so", 1);
  EXPECT_THAT(std::string(Gpu::Open(0).status().message()), HasSubstr("/nowhere/libronda_cuda.so"));
}

TEST_F(GpuTest, GradientsLieApartAndAreZero) {
  const auto gpu = OpenedFor(0);
  const ModelShapes model = {.name = "two", .parameters = {{.name = "a", .shape = {3, 5}}, {.name = "b", .shape = {}}}};
  const auto gradients = GpuGradients::Create(model, gpu.get());
  ASSERT_TRUE(gradients.ok()) << gradients.status();
  ASSERT_TRUE(gpu->Finish().ok());
  EXPECT_EQ(gradients->bytes(), 16 * sizeof(float));
  ASSERT_EQ(gradients->tensors().size(), 2U);
  const auto& [a, b] = std::tie(gradients->tensors()[0], gradients->tensors()[1]);
  EXPECT_EQ(a.count, 15U);
  EXPECT_EQ(b.count, 1U);
  EXPECT_GE(b.data, a.data + a.count);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(b.data) % 256, reinterpret_cast<uintptr_t>(a.data) % 256);
  for (size_t i = 0; i < a.count; ++i) EXPECT_EQ(a.data[i], 0) << i;
}

TEST_F(GpuTest, AdjacentGradientsHaveNoGaps) {
  const auto gpu = OpenedFor(0);
  const ModelShapes model = {.name = "two", .parameters = {{.name = "a", .shape = {3, 5}}, {.name = "b", .shape = {}}}};
  const auto gradients = GpuGradients::Create(model, gpu.get(), GpuGradients::Places::kAdjacent);
  ASSERT_TRUE(gradients.ok()) << gradients.status();
  EXPECT_EQ(gradients->tensors()[1].data, gradients->tensors()[0].data + 15);
}

TEST_F(GpuTest, FinishWaitsForTheStream) {
  const auto gpu = OpenedFor(0);
  std::atomic<bool> is_done{false};
  ronda::testing::EnqueueOnFakeGpu(gpu->stream(), [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    is_done = true;
  });
  EXPECT_TRUE(gpu->Finish().ok());
  EXPECT_TRUE(is_done);
}

TEST_F(GpuTest, TimeIsWhatTheStreamTakesAndErrorsAreNamed) {
  const auto gpu = OpenedFor(0);
  const auto time = gpu->Time("a sleep", [](const ronda_cuda_plugin&, StreamHandle stream) {
    ronda::testing::EnqueueOnFakeGpu(stream, [] { std::this_thread::sleep_for(std::chrono::milliseconds(5)); });
    return 0;
  });
  ASSERT_TRUE(time.ok()) << time.status();
  EXPECT_GE(*time, absl::Milliseconds(5));
  const auto failed = gpu->Time(
      "nonsense", [](const ronda_cuda_plugin& cuda, StreamHandle) { return cuda.record_event(nullptr, nullptr); });
  EXPECT_THAT(std::string(failed.status().message()), HasSubstr("nonsense"));
}

using ::testing::Contains;

// A thread that computes, or sleeps, until the object is destroyed.
class OtherThread {
 public:
  explicit OtherThread(absl::Duration interval) {
    thread_ = std::thread([this, interval] {
      id_ = gettid();
      while (!over_) {
        if (interval > absl::ZeroDuration()) absl::SleepFor(interval);
      }
    });
    while (id_ == 0) std::this_thread::yield();
  }
  ~OtherThread() {
    over_ = true;
    thread_.join();
  }

  pid_t id() const { return id_; }

 private:
  std::atomic<pid_t> id_{0};
  std::atomic<bool> over_{false};
  std::thread thread_;
};

TEST(ThreadTimesTest, ThreadsComeAndGo) {
  EXPECT_THAT(Threads(), Contains(gettid()));
  pid_t id = 0;
  {
    const OtherThread other(absl::Milliseconds(1));
    id = other.id();
    EXPECT_THAT(Threads(), Contains(id));
  }
  // The kernel may still list a thread for a moment after it has been joined.
  while (::testing::Matches(Contains(id))(Threads())) std::this_thread::yield();
  EXPECT_EQ(CpuTimeOf(id), absl::ZeroDuration());
}

TEST(ThreadTimesTest, TimeIsThatOfTheThreadThatComputes) {
  const OtherThread other(absl::ZeroDuration());
  const absl::Duration own_before = CpuTimeOfThisThread();
  const absl::Duration other_before = CpuTimeOf(other.id());
  const absl::Duration all_before = CpuTimeOfProcess();
  while (CpuTimeOf(other.id()) - other_before < absl::Milliseconds(20)) absl::SleepFor(absl::Milliseconds(1));
  const absl::Duration own = CpuTimeOfThisThread() - own_before;
  EXPECT_LT(own, absl::Milliseconds(20));
  EXPECT_GE(CpuTimeOfProcess() - all_before, absl::Milliseconds(20));
}

TEST(ThreadTimesTest, OneOwnTimeIsTheSameEitherWay) {
  const absl::Duration first = CpuTimeOfThisThread();
  const absl::Duration by_number = CpuTimeOf(gettid());
  const absl::Duration last = CpuTimeOfThisThread();
  EXPECT_LE(first, by_number);
  EXPECT_LE(by_number, last);
}

}  // namespace
}  // namespace ronda::bench
