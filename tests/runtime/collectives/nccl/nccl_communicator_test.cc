// SPDX-License-Identifier: Apache-2.0

// Tests the failures of the NCCL communicator, and that its calls do not block the host. tests/conformance checks its
// results.
#include "runtime/collectives/nccl/nccl_communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "runtime/base/clock.h"
#include "tests/runtime/collectives/nccl/nccl_job.h"
#include "tests/testing/fake_nccl/load_fake_nccl.h"

namespace ronda::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr absl::Duration kLong = absl::Seconds(30);

CallInfo Info(absl::string_view label, absl::Duration deadline = kLong) {
  return {.label = label, .limits = {.deadline = deadline}};
}

std::string Text(const absl::Status& status) { return std::string(status.message()); }

class NcclCommunicatorTest : public ::testing::Test {
 protected:
  void TearDown() override {
    job_.reset();
    SetFakeNcclFaults(kNoFaults);
    EXPECT_EQ(LiveFakeNcclCommunicators(), 0);
    EXPECT_EQ(PopFakeNcclReport(), "");
  }

  NcclJob& Start(int size, const fake_nccl_faults& faults = kNoFaults, absl::Duration init_deadline = kLong) {
    SetFakeNcclFaults(faults);
    return job_.emplace(size, NcclJobOptions{.init_deadline = init_deadline});
  }

  std::optional<NcclJob> job_;
};

fake_nccl_faults FaultsOfRank(int rank) {
  fake_nccl_faults faults = kNoFaults;
  faults.rank = rank;
  return faults;
}

TEST_F(NcclCommunicatorTest, CallsReturnBeforeTheDeviceGetsThere) {
  NcclJob& job = Start(2);
  job.OnEveryRank([](RankId rank, NcclRank& self) {
    const DeviceMemory tensor = self.Floats({1.0f, static_cast<float>(rank)});
    {
      StreamHold hold(self.stream());
      // Makes three calls, each of which uses a different algorithm.
      ASSERT_EQ(self.Allreduce(tensor, Info("first")), absl::OkStatus());
      ASSERT_EQ(self.Allreduce(tensor, Info("second"), WireFormat::kFloat16), absl::OkStatus());
      ASSERT_EQ(self.communicator().Barrier(Info("third")), absl::OkStatus());
      EXPECT_EQ(self.Read(tensor), (std::vector<float>{1.0f, static_cast<float>(rank)}));
    }
    self.Finish();
    EXPECT_EQ(self.Read(tensor), (std::vector<float>{4.0f, 2.0f}));
  });
  job.End();
}

// The sum of these numbers is too large for float16, but their average is not.
TEST_F(NcclCommunicatorTest, AveragesOf16BitNumbersThatAreLargeDoNotOverflow) {
  NcclJob& job = Start(4);
  job.OnEveryRank([](RankId, NcclRank& self) {
    const DeviceMemory tensor = self.Floats(std::vector<float>(1000, 61440.0f));
    const Segment segment = {.input = tensor.data(), .output = tensor.data(), .count = 1000};
    ASSERT_EQ(self.communicator().Reduce({.info = Info("average"),
                                          .segments = {&segment, 1},
                                          .wire = WireFormat::kFloat16,
                                          .postscale = {.divisor = 4}}),
              absl::OkStatus());
    self.Finish();
    EXPECT_EQ(self.Read(tensor), std::vector<float>(1000, 61440.0f));
  });
  job.End();
}

// 1 + 2^-12 is 1 in float16. The difference 2^-12 is added to the residual.
TEST_F(NcclCommunicatorTest, RoundingErrorsStayWithTheResiduals) {
  NcclJob& job = Start(2);
  job.OnEveryRank([](RankId, NcclRank& self) {
    const float rest = 1.0f / 4096;
    const DeviceMemory tensor = self.Floats(std::vector<float>(100, 1.0f + rest));
    const DeviceMemory result = self.Floats(std::vector<float>(100, 0.0f));
    const DeviceMemory residual = self.Floats(std::vector<float>(100, 0.0f));
    const Segment segment = {.input = tensor.data(),
                             .output = result.data(),
                             .count = 100,
                             .residual = reinterpret_cast<float*>(residual.data())};
    ASSERT_EQ(
        self.communicator().Reduce({.info = Info("rounded"), .segments = {&segment, 1}, .wire = WireFormat::kFloat16}),
        absl::OkStatus());
    self.Finish();
    EXPECT_EQ(self.Read(result), std::vector<float>(100, 2.0f));
    EXPECT_EQ(self.Read(residual), std::vector<float>(100, rest));
  });
  job.End();
}

// (2^25 + 1) - 2^25 is 0 in float32. A ring starts each part of the tensor at a different rank. So the order of
// additions differs between parts, and some sums are 1.
TEST_F(NcclCommunicatorTest, SumsAreThoseInTheOrderOfTheRanksWhereThatIsAskedFor) {
  SetFakeNcclFaults(kNoFaults);
  for (const WireFormat wire : {WireFormat::kNone, WireFormat::kBfloat16}) {
    for (const SumOrder order : {SumOrder::kOfNccl, SumOrder::kOfRanks}) {
      NcclJob job(3, {.init_deadline = kLong, .order = order});
      job.OnEveryRank([&](RankId rank, NcclRank& self) {
        constexpr float kLarge = 1 << 25;
        const float own[] = {kLarge, 1.0f, -kLarge};
        const DeviceMemory tensor = self.Floats(std::vector<float>(999, own[rank]));
        ASSERT_EQ(self.Allreduce(tensor, Info("sum"), wire), absl::OkStatus());
        self.Finish();
        const std::vector<float> in_order(999, 0.0f);
        EXPECT_EQ(self.Read(tensor) == in_order, order == SumOrder::kOfRanks);
      });
      job.End();
    }
  }
}

TEST_F(NcclCommunicatorTest, SteadyStateAllocatesNoMemory) {
  NcclJob& job = Start(2);
  const auto steps = [&](int count) {
    job.OnEveryRank([count](RankId, NcclRank& self) {
      const DeviceMemory tensor = self.Floats(std::vector<float>(1000, 1.0f));
      const DeviceMemory large = self.Floats(std::vector<float>(1'000'000, 1.0f));
      for (int i = 0; i < count; ++i) {
        for (WireFormat wire : {WireFormat::kNone, WireFormat::kBfloat16}) {
          ASSERT_EQ(self.Allreduce(i % 2 == 0 ? tensor : large, Info("step"), wire), absl::OkStatus());
        }
        self.Finish();
      }
    });
  };
  steps(4);
  const size_t allocations = job.cuda().allocations();
  const size_t events = job.cuda().created_events();
  steps(6);
  EXPECT_EQ(job.cuda().allocations(), allocations + 4) << "more than the test's tensors";
  EXPECT_EQ(job.cuda().created_events(), events);
  job.End();
}

// The fake NCCL stops the test if ncclMemFree gets memory that is still registered.
TEST_F(NcclCommunicatorTest, BuffersAreNcclsAndRegisteredOnceWithEveryCommunicator) {
  const int allocations = FakeNcclAllocations();
  const int registrations = FakeNcclRegistrations();
  NcclJob& job = Start(3);
  const Group pair({0, 1});
  job.OnEveryRank([&pair](RankId, NcclRank& self) {
    const DeviceMemory tensor = self.Floats(std::vector<float>(1000, 1.0f));
    CallInfo of_two = Info("of two");
    of_two.group = &pair;
    for (int i = 0; i < 3; ++i) {
      ASSERT_EQ(self.Allreduce(tensor, Info("of three"), WireFormat::kFp8E4M3), absl::OkStatus());
      ASSERT_EQ(self.Allreduce(tensor, of_two, WireFormat::kFp8E4M3), absl::OkStatus());
    }
    self.Finish();
  });
  EXPECT_EQ(FakeNcclAllocations(), allocations + 3 * 2) << "two buffers a rank";
  EXPECT_EQ(FakeNcclRegistrations(), registrations + 2 * (3 + 2)) << "two buffers a rank and group";
  job.End();
  EXPECT_EQ(job.cuda().Leaks(), "");
}

// NCCL must get registered memory either on all ranks or on none. Otherwise the fake NCCL reports an error and hangs.
// The memory must stay registered even after a larger bucket of two ranks, which gives only these two ranks a new
// buffer.
TEST_F(NcclCommunicatorTest, GroupsThatGrowABufferKeepItRegisteredForAll) {
  NcclJob& job = Start(3);
  const Group pair({0, 1});
  job.OnEveryRank([&pair](RankId rank, NcclRank& self) {
    const DeviceMemory small = self.Floats(std::vector<float>(100, 1.0f));
    const DeviceMemory large = self.Floats(std::vector<float>(1'000'000, 1.0f));
    const DeviceMemory part = self.Floats({0.0f});
    ASSERT_EQ(self.Allreduce(small, Info("of three"), WireFormat::kFloat16), absl::OkStatus());
    CallInfo of_two = Info("of two");
    of_two.group = &pair;
    const Segment in_pair = {.input = large.data(), .output = large.data(), .count = 1'000'000};
    ASSERT_EQ(self.communicator().Reduce({.info = of_two, .segments = {&in_pair, 1}, .prescale = {.multiplier = 2}}),
              absl::OkStatus());
    ASSERT_EQ(self.communicator().Barrier(Info("all meet")), absl::OkStatus());
    const Segment to_root = {.input = small.data(),
                             .output = part.data(),
                             .count = 100,
                             .part_count = static_cast<size_t>(rank == 0 ? 1 : 0)};
    ASSERT_EQ(self.communicator().Reduce(
                  {.info = Info("to one"), .segments = {&to_root, 1}, .delivery = ReduceCall::Delivery::kParts}),
              absl::OkStatus());
    self.Finish();
    EXPECT_EQ(self.Read(part), std::vector<float>(1, rank == 0 ? 9.0f : 0.0f));
    EXPECT_EQ(self.Read(large), std::vector<float>(1'000'000, rank < 2 ? 4.0f : 1.0f));
  });
  job.End();
}

TEST_F(NcclCommunicatorTest, MemoryThatCannotBeRegisteredEndsTheJob) {
  fake_nccl_faults faults = FaultsOfRank(1);
  faults.fail_register = 1;
  NcclJob& job = Start(2, faults);
  job.OnEveryRank([&job](RankId rank, NcclRank& self) {
    const absl::Status status = self.communicator().Barrier(Info("first"));
    if (rank == 1) {
      EXPECT_THAT(Text(status), AllOf(HasSubstr("registering memory"), HasSubstr("NCCL_LOCAL_REGISTER=0"),
                                      HasSubstr("ranks 0 and 1"), HasSubstr("on rank 1")));
      EXPECT_EQ(self.communicator().failure(), status);
      job.rank(0).communicator().Abort();  // NCCL waits for this rank; its watch aborts when the job has failed
    }
    self.communicator().Abort();
    self.Finish();
  });
  job.End();
}

TEST_F(NcclCommunicatorTest, BuffersGrowWhileTheDeviceStillUsesTheOldOnes) {
  NcclJob& job = Start(2);
  job.OnEveryRank([](RankId, NcclRank& self) {
    const DeviceMemory small = self.Floats(std::vector<float>(100, 1.0f));
    const DeviceMemory large = self.Floats(std::vector<float>(1'200'000, 1.0f));
    {
      StreamHold hold(self.stream());
      ASSERT_EQ(self.Allreduce(small, Info("small"), WireFormat::kFloat16), absl::OkStatus());
      ASSERT_EQ(self.Allreduce(large, Info("large"), WireFormat::kFloat16), absl::OkStatus());
      ASSERT_EQ(self.Allreduce(small, Info("small again"), WireFormat::kFloat16), absl::OkStatus());
    }
    self.Finish();
    EXPECT_EQ(self.Read(small), std::vector<float>(100, 4.0f));
    EXPECT_EQ(self.Read(large), std::vector<float>(1'200'000, 2.0f));
  });
  job.End();
  EXPECT_EQ(job.cuda().Leaks(), "");
}

TEST_F(NcclCommunicatorTest, AsynchronousErrorIsFoundWithNcclsWords) {
  fake_nccl_faults faults = FaultsOfRank(1);
  faults.error_at = 1;
  NcclJob& job = Start(2, faults);
  job.OnEveryRank([](RankId rank, NcclRank& self) {
    const DeviceMemory tensor = self.Floats({1.0f});
    ASSERT_EQ(self.Allreduce(tensor, Info("fine")), absl::OkStatus());
    self.Finish();
    EXPECT_EQ(self.communicator().failure(), absl::OkStatus());
    {
      StreamHold hold(self.stream());
      ASSERT_EQ(self.Allreduce(tensor, Info("broken")), absl::OkStatus());
    }
    if (rank == 1) {
      while (self.communicator().failure().ok()) std::this_thread::yield();
      const absl::Status failure = self.communicator().failure();
      EXPECT_EQ(failure.code(), absl::StatusCode::kUnavailable);
      EXPECT_THAT(Text(failure), AllOf(HasSubstr("ranks 0 and 1"), HasSubstr("on rank 1"),
                                       HasSubstr("remote process exited"), HasSubstr("lost the connection")));
      EXPECT_EQ(self.Allreduce(tensor, Info("after")), failure) << "the first failure stays";
    }
    self.communicator().Abort();
    self.Finish();
  });
  job.End();
}

TEST_F(NcclCommunicatorTest, AbortEndsHungWorkOnTheDeviceAndAllLaterCalls) {
  fake_nccl_faults faults = FaultsOfRank(0);
  faults.hang_at = 0;
  NcclJob& job = Start(3, faults);
  job.OnEveryRank([](RankId, NcclRank& self) {
    const DeviceMemory tensor = self.Floats({1.0f});
    ASSERT_EQ(self.Allreduce(tensor, Info("hangs")), absl::OkStatus());
    ASSERT_EQ(self.Allreduce(tensor, Info("behind")), absl::OkStatus());
    EXPECT_EQ(self.communicator().failure(), absl::OkStatus()) << "NCCL does not notice";
    std::thread watch([&self] { self.communicator().Abort(); });
    self.Finish();
    watch.join();
    self.communicator().Abort();
    EXPECT_EQ(self.communicator().failure().code(), absl::StatusCode::kCancelled);
    EXPECT_EQ(self.Allreduce(tensor, Info("after")).code(), absl::StatusCode::kCancelled);
    EXPECT_EQ(self.communicator().Barrier(Info("after")).code(), absl::StatusCode::kCancelled);
  });
  EXPECT_EQ(LiveFakeNcclCommunicators(), 0);
  job.End();
}

TEST_F(NcclCommunicatorTest, AbortEndsTheCommunicatorsOfAllGroups) {
  fake_nccl_faults faults = kNoFaults;
  faults.hang_at = 0;
  NcclJob& job = Start(3, faults);
  const Group pair({0, 1});
  job.OnEveryRank([&pair](RankId rank, NcclRank& self) {
    const DeviceMemory tensor = self.Floats({1.0f});
    CallInfo info = Info("of two");
    info.group = &pair;
    const DeviceMemory none;
    ASSERT_EQ(self.communicator().Broadcast(
                  {.info = info, .data = rank < 2 ? tensor.data() : nullptr, .bytes = sizeof(float)}),
              absl::OkStatus());
    ASSERT_EQ(self.Allreduce(tensor, Info("of three")), absl::OkStatus());
    self.communicator().Abort();
    self.Finish();
  });
  EXPECT_EQ(LiveFakeNcclCommunicators(), 0);
  job.End();
}

TEST_F(NcclCommunicatorTest, FailureToBeginNamesTheRanksAndNcclsError) {
  fake_nccl_faults faults = FaultsOfRank(1);
  faults.fail_init = 1;
  NcclJob& job = Start(2, faults, absl::Milliseconds(200));
  job.OnEveryRank([](RankId rank, NcclRank& self) {
    const DeviceMemory tensor = self.Floats({1.0f});
    const absl::Status status = self.Allreduce(tensor, Info("first", absl::Milliseconds(500)));
    EXPECT_EQ(self.communicator().failure(), status);
    EXPECT_THAT(Text(status), HasSubstr("ranks 0 and 1"));
    if (rank == 1) {
      EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
      EXPECT_THAT(Text(status), AllOf(HasSubstr("unhandled system error"), HasSubstr("no network device is usable")));
    } else {
      EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
    }
  });
  job.End();
}

TEST_F(NcclCommunicatorTest, RankThatNeverBeginsIsGivenUpAtTheDeadline) {
  fake_nccl_faults faults = FaultsOfRank(2);
  faults.hang_init = 1;
  NcclJob& job = Start(3, faults, absl::Milliseconds(600));
  job.OnEveryRank([](RankId, NcclRank& self) {
    const absl::Status status = self.communicator().Barrier(Info("first", absl::Milliseconds(500)));
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_THAT(Text(status), AllOf(HasSubstr("ranks 0, 1 and 2"), HasSubstr("600ms"), HasSubstr("'first'")));
  });
  job.End();
}

TEST_F(NcclCommunicatorTest, LongWaitIsReportedOnce) {
  fake_nccl_faults faults = FaultsOfRank(1);
  faults.hang_init = 1;
  NcclJob& job = Start(2, faults, absl::Milliseconds(600));
  ::testing::internal::CaptureStderr();
  job.OnEveryRank([](RankId, NcclRank& self) {
    CallInfo info = Info("w", absl::Milliseconds(500));
    info.limits.warning = absl::Milliseconds(20);
    EXPECT_EQ(self.communicator().Barrier(info).code(), absl::StatusCode::kDeadlineExceeded);
  });
  const std::string warnings = ::testing::internal::GetCapturedStderr();
  const std::string warning =
      "W NCCL communicator of ranks 0 and 1: making the communicator for allreduce 'w' has taken longer than 20ms: ";
  for (const char* rank : {"ronda[0] ", "ronda[1] "}) {
    const std::string line = rank + warning;
    EXPECT_THAT(warnings, HasSubstr(line));
    EXPECT_EQ(warnings.find(line), warnings.rfind(line));
  }
  job.End();
}

// NCCL's deadline does not include the time that a rank computes longer than the others.
TEST_F(NcclCommunicatorTest, RankThatComesLateToTheFirstCallIsWaitedForAsLongAsTheCallSays) {
  NcclJob& job = Start(2, kNoFaults, absl::Milliseconds(50));
  job.OnEveryRank([](RankId rank, NcclRank& self) {
    if (rank == 1) absl::SleepFor(absl::Milliseconds(100));
    EXPECT_EQ(self.communicator().Barrier(Info("first")), absl::OkStatus());
  });
  job.End();
}

TEST_F(NcclCommunicatorTest, FailureOfTheJobEndsTheWaitForPeersThatAreGone) {
  fake_nccl_faults faults = kNoFaults;
  faults.hang_init = 1;
  NcclJob& job = Start(2, faults);
  const absl::Time begin = SteadyNow();
  std::thread killer([&job] { job.Fail(absl::UnavailableError("rank 1 was killed")); });
  job.OnEveryRank([](RankId, NcclRank& self) {
    EXPECT_THAT(Text(self.communicator().Barrier(Info("first"))), HasSubstr("rank 1 was killed"));
  });
  killer.join();
  EXPECT_LT(SteadyNow() - begin, kLong);
  job.End();
}

TEST_F(NcclCommunicatorTest, LargeGroupsAreCountedAndNotListed) {
  fake_nccl_faults faults = kNoFaults;
  faults.hang_init = 1;
  NcclJob& job = Start(9, faults, absl::Milliseconds(50));
  job.OnEveryRank([](RankId, NcclRank& self) {
    EXPECT_THAT(Text(self.communicator().Barrier(Info("first", absl::Milliseconds(500)))),
                HasSubstr("9 ranks from rank 0 on"));
  });
  job.End();
}

TEST_F(NcclCommunicatorTest, OrderlyEndLeavesNothingBehind) {
  NcclJob& job = Start(2);
  job.OnEveryRank([](RankId, NcclRank& self) {
    const DeviceMemory tensor = self.Floats({1.0f});
    ASSERT_EQ(self.Allreduce(tensor, Info("only"), WireFormat::kFloat16), absl::OkStatus());
    self.Finish();
  });
  job.End();
  EXPECT_EQ(LiveFakeNcclCommunicators(), 0);
  EXPECT_EQ(job.cuda().Leaks(), "");
}

}  // namespace
}  // namespace ronda::testing
