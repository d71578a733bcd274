// SPDX-License-Identifier: Apache-2.0

// Tests aborts on a stuck device, and aborts without free memory. The file replaces the global operator new, so that a
// test can make an allocation fail.
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <new>
#include <optional>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "runtime/collectives/nccl/nccl_communicator.h"
#include "tests/runtime/collectives/nccl/nccl_job.h"
#include "tests/testing/fake_nccl/load_fake_nccl.h"

namespace {

// How many more allocations of this thread succeed before one fails. If negative, all allocations succeed.
thread_local int countdown = -1;

void* AllocateOrThrow(size_t size) {
  if (countdown-- == 0) throw std::bad_alloc();
  if (countdown < -1) countdown = -1;
  void* const memory = std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(size_t size) { return AllocateOrThrow(size); }
void* operator new[](size_t size) { return AllocateOrThrow(size); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }

namespace ronda {
namespace {

using ::ronda::testing::FakeCuda;
using ::ronda::testing::LiveFakeNcclCommunicators;
using ::ronda::testing::NcclJob;
using ::ronda::testing::NcclRank;
using ::ronda::testing::StreamHold;

CallInfo Info(const char* label) {
  CallInfo info;
  info.label = label;
  return info;
}

void Meet(NcclJob& job) {
  job.OnEveryRank([](RankId, NcclRank& self) {
    ASSERT_EQ(self.communicator().Barrier(Info("meeting")), absl::OkStatus());
    self.Finish();
  });
}

TEST(NcclAbort, IsMadeAgainWhereMemoryHasRunOut) {
  int failures = 0;
  bool has_failed = true;  // an allocation of the last attempt
  for (int allocation = 0; has_failed; ++allocation) {
    NcclJob job(2);
    Meet(job);
    countdown = allocation;
    try {
      job.rank(0).communicator().Abort();
      has_failed = countdown < 0;
    } catch (const std::bad_alloc&) {
      ++failures;
      job.rank(0).communicator().Abort();
    }
    countdown = -1;
    EXPECT_EQ(LiveFakeNcclCommunicators(), 2) << "after allocation " << allocation << " has failed";
    job.rank(1).communicator().Abort();
    job.End();
  }
  EXPECT_GT(failures, 2);
}

// An abort does not end the trainer's own work on the device.
TEST(NcclAbort, OfAStuckDeviceReturnsAndAbandonsIt) {
  NcclJob job(2, {.frees = FakeCuda::Frees::kWaitForTheDevice});
  Meet(job);
  std::optional<StreamHold> trainers_kernel(job.rank(0).stream());
  job.rank(0).communicator().Abort();
  EXPECT_TRUE(job.rank(0).device().is_abandoned());
  EXPECT_EQ(job.cuda().waiting_frees(), 1);
  job.rank(1).communicator().Abort();
  EXPECT_FALSE(job.rank(1).device().is_abandoned());
  job.rank(0).communicator().Abort();  // nothing is left to abort
  trainers_kernel.reset();
  while (LiveFakeNcclCommunicators() > 0) absl::SleepFor(absl::Milliseconds(1));
  job.End();
}

}  // namespace
}  // namespace ronda
