// SPDX-License-Identifier: Apache-2.0

// Tests that running out of memory is reported, and leaves no operation half done. The file replaces the global
// operator new, so that a test can make allocations fail.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <limits>
#include <new>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/monitor/timeline/timeline.h"
#include "tests/runtime/engine/job.h"
#include "tests/testing/run_ranks.h"

namespace {

// How many more allocations of this thread succeed before all later ones fail. If negative, no allocation fails.
thread_local int countdown = -1;

// Allocations of at least `limit` bytes fail in threads whose variable `exempt` is false.
std::atomic<size_t> limit{std::numeric_limits<size_t>::max()};
thread_local bool exempt = false;

// The number of allocations that still succeed in such threads. The next allocation fails, and all later ones succeed
// again. If the number is negative, no allocation fails.
std::atomic<int> until_one_fails{-1};

bool Fails(size_t size) {
  if (countdown == 0) return true;
  if (countdown > 0) --countdown;
  if (!exempt && until_one_fails.load() >= 0 && until_one_fails.fetch_sub(1) == 0) return true;
  return !exempt && size >= limit.load(std::memory_order_relaxed);
}

void* Allocate(size_t size) { return Fails(size) ? nullptr : std::malloc(size == 0 ? 1 : size); }

void* AllocateOrThrow(size_t size) {
  if (void* memory = Allocate(size)) return memory;
  throw std::bad_alloc();
}

}  // namespace

void* operator new(size_t size) { return AllocateOrThrow(size); }
void* operator new[](size_t size) { return AllocateOrThrow(size); }
void* operator new(size_t size, const std::nothrow_t&) noexcept { return Allocate(size); }
void* operator new[](size_t size, const std::nothrow_t&) noexcept { return Allocate(size); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { std::free(memory); }

// Turns off leak checking, because an engine that has run out of memory does not free its state.
extern "C" __attribute__((visibility("default"))) int __lsan_is_turned_off() { return 1; }

namespace ronda {
namespace {

using ::ronda::testing::RunRuntimes;
using ::ronda::testing::Sum;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr size_t kLarge = size_t{1} << 20;

// Repeats `submit` until it succeeds. In the first call all allocations fail, in the second call all but the first, and
// so on. Returns how many calls failed.
template <typename Submit>
int FailEveryAllocationOf(const Submit& submit) {
  for (int allocation = 0;; ++allocation) {
    countdown = allocation;
    const absl::Status status = submit();
    countdown = -1;
    if (status.ok()) return allocation;
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  }
}

TEST(OutOfMemory, AtSubmitIsAnErrorAndNothingIsSubmitted) {
  RunRuntimes(2, [](Runtime& runtime) {
    const std::string name = "a name that is too long to be kept without an allocation";
    std::vector<float> data(3, 1.0f);
    std::shared_ptr<Handle> handle;
    const int failures = FailEveryAllocationOf([&] {
      Submission submission;
      try {
        submission = Sum(name, &data);
      } catch (const std::bad_alloc&) {
        return absl::ResourceExhaustedError("");  // the test's own allocation failed
      }
      auto submitted = runtime.Submit(std::move(submission));
      if (submitted.ok()) handle = *std::move(submitted);
      return submitted.status();
    });
    EXPECT_GT(failures, 2);
    EXPECT_TRUE(handle->Wait().ok());
    EXPECT_THAT(data, Each(2.0f)) << "carried out once";
  });
}

TEST(OutOfMemory, ATimelineIsNotBegunAndMayBeLater) {
  const TimelineWriter::Options options = {.path = ::testing::TempDir() + "a timeline in a file with a long name.json"};
  Timeline timeline;
  EXPECT_GT(FailEveryAllocationOf([&] { return timeline.Start(options); }), 2);
  EXPECT_TRUE(timeline.on());
  timeline.Stop();
}

TEST(OutOfMemory, GroupIsSubmittedWholeOrNotAtAll) {
  RunRuntimes(2, [](Runtime& runtime) {
    std::vector<std::vector<float>> data(3, std::vector<float>(3, 1.0f));
    std::vector<std::shared_ptr<Handle>> handles;
    FailEveryAllocationOf([&] {
      std::vector<Submission> group;
      const int failing = std::exchange(countdown, -1);
      for (size_t i = 0; i < data.size(); ++i) {
        group.push_back(Sum(absl::StrCat("a long name of a member of a group of tensors, number ", i), &data[i]));
        group.back().request.group = "g";
        group.back().request.group_size = 3;
      }
      countdown = failing;
      return runtime.SubmitAll(group, &handles);
    });
    for (const auto& handle : handles) EXPECT_TRUE(handle->Wait().ok());
    for (const auto& tensor : data) EXPECT_THAT(tensor, Each(2.0f));
  });
}

// Submits with enough memory, then waits without enough. The background thread or this thread carries out the
// operation, but neither can make a large allocation.
absl::Status CarryOut(Runtime& runtime, const Submission& submission) {
  const auto handle = runtime.Submit(submission);
  if (!handle.ok()) return handle.status();
  exempt = false;
  absl::Status status = (*handle)->Wait();
  exempt = true;
  return status;
}

// Runs `body` on two ranks whose runtimes cannot make large allocations for submitted tensors.
void RunWithoutLargeMemory(const std::function<void(Runtime&)>& body) {
  testing::RunRanks(2, [&](RankId rank, Transport transport) {
    exempt = true;
    const auto runtime = Runtime::Create({}, {.rank = rank, .size = 2}, std::move(transport));
    testing::Succeed(*runtime, testing::Barrier("all are here"));
    limit = kLarge;
    body(*runtime);
    EXPECT_EQ(runtime->Shutdown().code(), absl::StatusCode::kResourceExhausted);
  });
  limit = std::numeric_limits<size_t>::max();
}

TEST(OutOfMemory, ForAResultFailsTheJobAndSaysForWhat) {
  RunWithoutLargeMemory([](Runtime& runtime) {
    const std::vector<char> data(kLarge / 2 + 1);
    const absl::Status status = CarryOut(
        runtime, {.request = {.name = "x", .op = OpType::kAllgather, .dtype = DType::kInt8, .shape = {kLarge / 2 + 1}},
                  .input = data.data()});
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(status.message()), HasSubstr("no memory for the 1048578 bytes that allgather 'x' returns"));
  });
}

TEST(OutOfMemory, ForErrorFeedbackFailsTheJobAndSaysForWhat) {
  RunWithoutLargeMemory([](Runtime& runtime) {
    std::vector<float> data(kLarge / sizeof(float));
    Submission submission = Sum("x", &data);
    submission.request.wire = WireFormat::kBfloat16;
    submission.error_feedback = Submission::ErrorFeedback::kOn;
    const absl::Status status = CarryOut(runtime, submission);
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(status.message()), HasSubstr("bytes of error feedback of tensor 'x'"));
  });
}

TEST(OutOfMemory, WhileCarryingOutFailsTheJobInsteadOfTheProcess) {
  RunWithoutLargeMemory([](Runtime& runtime) {
    std::vector<float> data(3, 1.0f);
    const absl::Status status = CarryOut(runtime, Sum(std::string(2 * kLarge, 'x'), &data));
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(status.message()), HasSubstr("out of memory in the progress engine"));
  });
}

// In each job, one allocation of the progress engines fails after the ranks have begun to shut down.
TEST(OutOfMemory, AtTheShutdownEndsTheJobInsteadOfTheProcess) {
  int allocation = 0;
  do {
    SCOPED_TRACE(allocation);
    testing::RunRanks(2, [&](RankId rank, Transport transport) {
      exempt = true;
      const auto runtime = Runtime::Create({}, {.rank = rank, .size = 2}, std::move(transport));
      testing::Succeed(*runtime, testing::Barrier("all are here"));
      if (rank == 0) until_one_fails = allocation;
      const absl::Status ended = runtime->Shutdown();
      EXPECT_TRUE(ended.ok() || absl::IsResourceExhausted(ended)) << ended;
    });
    ++allocation;
  } while (until_one_fails < 0);
  until_one_fails = -1;
}

}  // namespace
}  // namespace ronda
