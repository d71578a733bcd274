// SPDX-License-Identifier: Apache-2.0

// Tests programs that run well with a locked schedule, and programs that do not: programs that submit tensors one after
// another, programs with threads at different paces, and programs with operations that the rest of the job must not
// delay.
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <cstring>
#include <limits>
#include <memory>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "tests/runtime/engine/job.h"

#ifdef __x86_64__
#include <xmmintrin.h>
#endif

namespace ronda {
namespace {

using ::ronda::testing::Backend;
using ::ronda::testing::Barrier;
using ::ronda::testing::RunRuntimesOn;
using ::ronda::testing::Succeed;
using ::ronda::testing::Sum;

constexpr Backend kBackend = Backend::kShmSeparately;

uint64_t BucketsOf(const Runtime& runtime) {
  const Statistics statistics = runtime.statistics();
  return statistics.buckets_agreed + statistics.buckets_scheduled;
}

// Waits until another bucket has been carried out or a schedule has begun. Only reads counters, so the engine does not
// notice that the program waits.
void AwaitBucketUnnoticed(const Runtime& runtime, uint64_t before) {
  while (BucketsOf(runtime) == before && runtime.statistics().schedules_begun == 0) std::this_thread::yield();
}

TEST(SchedulePace, TensorsThatComeOneAfterTheOtherWithoutAWaitShareABucket) {
  constexpr int kTensors = 4;
  constexpr int kRounds = 20;
  std::barrier<> meeting(2);
  RunRuntimesOn(kBackend, 2, {}, [&](Runtime& runtime) {
    std::vector<std::vector<float>> data(kTensors, std::vector<float>(3, 1.0f));
    const auto step = [&] {
      std::vector<std::shared_ptr<Handle>> handles;
      for (int i = 0; i < kTensors; ++i) {
        const uint64_t before = BucketsOf(runtime);
        auto handle = runtime.Submit(Sum(absl::StrCat("gradient", i), &data[i]));
        ASSERT_TRUE(handle.ok()) << handle.status();
        handles.push_back(*std::move(handle));
        if (i + 1 < kTensors) AwaitBucketUnnoticed(runtime, before);
      }
      for (const auto& handle : handles) ASSERT_TRUE(handle->Wait().ok());
    };
    for (int i = 0; i < 10; ++i) step();
    meeting.arrive_and_wait();
    ASSERT_EQ(runtime.statistics().schedules_begun, 1u);
    const uint64_t before = BucketsOf(runtime);
    for (int i = 0; i < kRounds; ++i) step();
    // The counter may not yet include the last bucket.
    EXPECT_LE(BucketsOf(runtime) - before, static_cast<uint64_t>(kRounds));
    EXPECT_EQ(runtime.statistics().schedules_left, 0u);
    meeting.arrive_and_wait();
  });
}

TEST(SchedulePace, TensorIsNotHeldUpByOneThatComesMuchLater) {
  std::atomic<uint64_t> left{0};
  RunRuntimesOn(kBackend, 2, {}, [&](Runtime& runtime) {
    std::vector<float> fast(4), slow(4);
    for (int i = 0; i < 10; ++i) {
      Succeed(runtime, Sum("fast", &fast));
      Succeed(runtime, Sum("slow", &slow));
    }
    for (int i = 0; i < 30; ++i) Succeed(runtime, Sum("fast", &fast));
    left += runtime.statistics().schedules_left;
    for (int i = 0; i < 30; ++i) Succeed(runtime, Sum("slow", &slow));
  });
  EXPECT_GT(left, 0u);
}

TEST(SchedulePace, OperationsWithLimitsOfTheirOwnAreNegotiated) {
  RunRuntimesOn(kBackend, 2, {}, [](Runtime& runtime) {
    Submission barrier = Barrier("timed");
    barrier.request.limits = WaitLimits{.warning = absl::Minutes(1), .deadline = absl::Minutes(1)};
    for (int i = 0; i < 20; ++i) Succeed(runtime, barrier);
    EXPECT_EQ(runtime.statistics().schedules_begun, 0u);
  });
}

#ifdef __x86_64__

constexpr unsigned kFlushToZero = 0x8040;  // FTZ and DAZ, as trainers set them

TEST(FloatEnvironment, ThreadsOfTheTrainerLeaveTheSameBitsAsAllOthers) {
  constexpr float kDenormal = std::numeric_limits<float>::denorm_min() * 1000;
  constexpr float kTwice = std::numeric_limits<float>::denorm_min() * 2000;
  RunRuntimesOn(kBackend, 2, {}, [&](Runtime& runtime) {
    const unsigned before = _mm_getcsr();
    if (runtime.topology().rank == 1) _mm_setcsr(before | kFlushToZero);
    const unsigned own = _mm_getcsr();
    for (int i = 0; i < 50; ++i) {
      std::vector<float> data(16, kDenormal);
      auto handle = runtime.Run(Sum("x", &data));
      ASSERT_TRUE(handle.ok() && (*handle)->Wait().ok());
      ASSERT_EQ(std::memcmp(&data[0], &kTwice, sizeof(float)), 0) << "step " << i;
      ASSERT_EQ(_mm_getcsr() & kFlushToZero, own & kFlushToZero) << "the trainer's own environment";
    }
    _mm_setcsr(before);
  });
}

#endif

}  // namespace
}  // namespace ronda
