// SPDX-License-Identifier: Apache-2.0

// Tests lanes on a system that refuses to start a thread. The file replaces pthread_create(), so that a test can make a
// call fail.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <cerrno>
#include <string>

#include "tests/runtime/engine/device_job.h"
#include "tests/testing/fake_nccl/load_fake_nccl.h"

namespace {

thread_local int threads_made = 0;       // by this thread
thread_local int thread_that_fails = 0;  // as counted by threads_made; 0: none

}  // namespace

extern "C" __attribute__((visibility("default"))) int pthread_create(pthread_t* thread,
                                                                     const pthread_attr_t* attributes,
                                                                     void* (*body)(void*), void* argument) {
  static auto* const next = reinterpret_cast<decltype(&pthread_create)>(dlsym(RTLD_NEXT, "pthread_create"));
  return ++threads_made == thread_that_fails ? EAGAIN : next(thread, attributes, body, argument);
}

namespace ronda::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

absl::StatusOr<bool> Open(DeviceRank& rank) {
  return rank.runtime().OpenLane(kGlobalProcessSet, nullptr, WaitLimits());
}

// When this rank fails, the other rank has opened the lane, or is about to open it. If the job did not fail, the other
// rank's first call would wait for this rank until the deadline.
TEST(CallerLaneThreads, ARankWithoutAThreadForItsWatchFailsTheJob) {
  ::testing::internal::CaptureStderr();
  RunDeviceRanks({.size = 2, .expects_failure = true}, [](DeviceRank& rank) {
    threads_made = 0;
    ASSERT_EQ(Open(rank).status(), absl::OkStatus());
    const int threads_of_lane = threads_made;
    ASSERT_GT(threads_of_lane, 0);
    rank.runtime().lanes().Remove(kGlobalProcessSet)->Drain();
    if (rank.rank() == 0) return Open(rank).IgnoreError();
    threads_made = 0;
    thread_that_fails = threads_of_lane;  // the last: the watch's
    const absl::Status status = Open(rank).status();
    thread_that_fails = 0;
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("no thread to watch the device"));
  });
  EXPECT_EQ(LiveFakeNcclCommunicators(), 0);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), Not(HasSubstr("a peer has not come to it")))
      << "after the failure no rank waits for the other to end the lane";
}

}  // namespace
}  // namespace ronda::testing
