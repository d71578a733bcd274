// SPDX-License-Identifier: Apache-2.0

// Tests the time limits of waits, and the events that the flight recorder keeps.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/logging.h"
#include "runtime/monitor/flight_recorder.h"
#include "tests/runtime/engine/job.h"
#include "tests/testing/run_ranks.h"

namespace ronda {
namespace {

using ::ronda::testing::CarryOut;
using ::ronda::testing::FakeClock;
using ::ronda::testing::Join;
using ::ronda::testing::RunRuntimes;
using ::ronda::testing::Succeed;
using ::ronda::testing::Sum;
using ::ronda::testing::WaitAndAdvance;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const Tunables kImpatient = {.stall_warning = absl::Milliseconds(100), .stall_deadline = absl::Milliseconds(100)};

TEST(Limits, OfACallHoldForItAlone) {
  RunRuntimes(2, [](Runtime& runtime) {
    std::vector<float> data(3, 1.0f);
    if (runtime.topology().rank == 0) {
      Submission hasty = Sum("hasty", &data);
      hasty.request.limits = WaitLimits{.warning = absl::Milliseconds(10), .deadline = absl::Milliseconds(50)};
      const absl::Status status = CarryOut(runtime, hasty);
      EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
      EXPECT_THAT(std::string(status.message()), HasSubstr("tensor 'hasty'"));
      EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1"));
    }
    Succeed(runtime, Sum("patient", &data));
    EXPECT_THAT(data, Each(2.0f));
  });
}

TEST(Limits, OfACallMayOutlastTheJobs) {
  FakeClock clock;
  RunRuntimes(2, {.tunables = kImpatient, .clock = &clock}, [&](Runtime& runtime) {
    std::vector<float> data(3, 1.0f);
    if (runtime.topology().rank == 0) {
      // Only rank 0 submits this tensor, so rank 0 waits until the job's deadline.
      const auto lonely = runtime.Submit(Sum("lonely", &data));
      EXPECT_EQ(WaitAndAdvance(**lonely, &clock).code(), absl::StatusCode::kDeadlineExceeded);
    }
    Submission patient = Sum("patient", &data);
    patient.request.limits = WaitLimits{.deadline = absl::InfiniteDuration()};
    Succeed(runtime, patient);
    EXPECT_THAT(data, Each(2.0f));
  });
}

TEST(Limits, JoinMayLastAsLongAsOthersAreActive) {
  FakeClock clock;
  RunRuntimes(2, {.tunables = kImpatient, .clock = &clock}, [&](Runtime& runtime) {
    for (int step = 0; step < 10 && runtime.topology().rank == 1; ++step) {
      std::vector<float> data(3, 1.0f);
      Submission submission = Sum("x", &data);
      // The operation may have to wait for rank 0 to join.
      submission.request.limits = WaitLimits{.deadline = absl::InfiniteDuration()};
      Succeed(runtime, submission);
      // Each advance is shorter than half of the deadline, because rank 0 may count two advances as one wait.
      clock.Advance(kImpatient.stall_deadline * 2 / 5);
    }
    EXPECT_NE(Succeed(runtime, Join()), nullptr);
  });
}

TEST(Limits, RankZeroThatNeverAnswersIsNamedWithWhatItDidLast) {
  std::vector<Transport> transports = testing::ConnectInProcess({.size = 2});
  transports[0].flights->Of(0).Record(FlightKind::kStarted, OpType::kBroadcast, "weights", 400);
  FakeClock clock;
  const auto runtime = Runtime::Create({.clock = &clock}, {.rank = 1, .size = 2}, std::move(transports[1]));
  std::vector<float> data(3, 1.0f);
  const auto handle = runtime->Submit(Sum("x", &data));
  ASSERT_TRUE(handle.ok());
  // Advances the clock several times, because the wait begins only when the background thread has taken the tensor.
  while (!(*handle)->done()) {
    clock.Advance(absl::Minutes(10));
    std::this_thread::yield();
  }
  EXPECT_EQ((*handle)->Wait().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string((*handle)->Wait().message()),
              HasSubstr("rank 0, which coordinates the job, has not answered"));
  EXPECT_THAT(std::string((*handle)->Wait().message()), HasSubstr("started broadcast 'weights' (400 bytes)"));
}

// While this object exists, redirects standard error, so that a test can read what is written.
class ErrorReader {
 public:
  ErrorReader() : original_(dup(STDERR_FILENO)) {
    int ends[2];
    RONDA_CHECK(pipe(ends) == 0 && dup2(ends[1], STDERR_FILENO) >= 0);
    close(ends[1]);
    read_end_ = ends[0];
  }
  ~ErrorReader() {
    dup2(original_, STDERR_FILENO);
    close(original_);
    close(read_end_);
  }

  // Blocks until `text` has been written, and returns everything written so far.
  std::string ReadUntil(const std::string& text) {
    std::string all;
    char buffer[4096];
    while (all.find(text) == std::string::npos) {
      const ssize_t count = read(read_end_, buffer, sizeof(buffer));
      RONDA_CHECK(count > 0);
      all.append(buffer, static_cast<size_t>(count));
    }
    return all;
  }

 private:
  const int original_;
  int read_end_;
};

TEST(Deadlock, IsSaidWhileTheRanksStillWait) {
  ErrorReader errors;
  RunRuntimes(2, [&](Runtime& runtime) {
    std::vector<float> first(3, 1.0f), second(3, 1.0f);
    const bool is_zero = runtime.topology().rank == 0;
    const auto waits =
        std::async(std::launch::async, [&] { Succeed(runtime, Sum(is_zero ? "a" : "b", is_zero ? &first : &second)); });
    if (is_zero) {
      const std::string text = errors.ReadUntil("deadlock of rank 0 ");
      EXPECT_THAT(text, HasSubstr("submitted by rank 0, not by rank 1"));
      Succeed(runtime, Sum("b", &second));
    } else {
      waits.wait();
      Succeed(runtime, Sum("a", &first));
    }
    waits.wait();
    EXPECT_THAT(first, Each(2.0f));
    EXPECT_THAT(second, Each(2.0f));
  });
}

std::vector<FlightKind> KindsOf(const FlightRecorder& recorder, const std::string& name) {
  std::vector<FlightKind> kinds;
  for (const FlightEvent& event : recorder.Events()) {
    if (event.name == name) kinds.push_back(event.kind);
  }
  return kinds;
}

// A communicator whose reductions return only when the test signals them.
class Dawdler : public Communicator {
 public:
  Dawdler(std::unique_ptr<Communicator> communicator, std::shared_future<void> go_on)
      : communicator_(std::move(communicator)), go_on_(std::move(go_on)) {}

  RankId rank() const override { return communicator_->rank(); }
  int size() const override { return communicator_->size(); }
  absl::Status Reduce(const ReduceCall& call) override {
    const absl::Status status = communicator_->Reduce(call);
    go_on_.wait();
    return status;
  }
  absl::Status Broadcast(const BroadcastCall& call) override { return communicator_->Broadcast(call); }
  absl::Status Allgather(const AllgatherCall& call) override { return communicator_->Allgather(call); }
  absl::Status Alltoall(const AlltoallCall& call) override { return communicator_->Alltoall(call); }
  absl::Status Barrier(const CallInfo& info) override { return communicator_->Barrier(info); }
  void Tune(const Tuning& tuning) override { communicator_->Tune(tuning); }

 private:
  const std::unique_ptr<Communicator> communicator_;
  const std::shared_future<void> go_on_;
};

// Waits until the background thread of the runtime has made a complete step after this call began.
void WaitForAnotherStep(Runtime& runtime, const FlightRecorder& flight) {
  for (const std::string name : {"probe/1", "probe/2"}) {
    const auto probe = runtime.Submit(testing::Barrier(name));
    ASSERT_TRUE(probe.ok()) << probe.status();
    while (KindsOf(flight, name).size() < 2 && !(*probe)->done()) std::this_thread::yield();
  }
}

TEST(Limits, OfACallDoNotCountTheTimeInACollectiveAgainstRankZero) {
  FakeClock clock;
  std::vector<Transport> transports = testing::ConnectInProcess({.size = 2});
  const std::shared_ptr<FlightBoard> flights = transports[0].flights;
  std::promise<void> go_on[2];
  for (const RankId rank : {0, 1}) {
    std::unique_ptr<Communicator>& communicator = transports[rank].communicator;
    communicator = std::make_unique<Dawdler>(std::move(communicator), go_on[rank].get_future().share());
  }
  testing::RunRanks(std::move(transports), [&](RankId rank, Transport transport) {
    const auto runtime = Runtime::Create({.clock = &clock}, {.rank = rank, .size = 2}, std::move(transport));
    std::vector<float> data(3, 1.0f);
    std::shared_ptr<Handle> hasty;
    if (rank == 1) {
      Submission submission = testing::Barrier("hasty");
      submission.request.limits = WaitLimits{.deadline = absl::Seconds(1)};
      hasty = *runtime->Submit(submission);
      while (KindsOf(flights->Of(1), "hasty").size() < 2) std::this_thread::yield();
    }
    const auto long_one = runtime->Submit(Sum("long", &data));
    if (rank == 1) {
      for (const RankId both : {0, 1}) {
        while (flights->Of(both).Last()->kind != FlightKind::kStarted) std::this_thread::yield();
      }
      clock.Advance(absl::Seconds(30));
      go_on[1].set_value();
      EXPECT_EQ((*long_one)->Wait(), absl::OkStatus());
      WaitForAnotherStep(*runtime, flights->Of(1));
      EXPECT_FALSE(hasty->done()) << hasty->Wait();
      go_on[0].set_value();
      EXPECT_EQ(hasty->Wait().code(), absl::StatusCode::kDeadlineExceeded);
      EXPECT_THAT(std::string(hasty->Wait().message()), HasSubstr("missing: rank 0"));
    }
    EXPECT_EQ((*long_one)->Wait(), absl::OkStatus());
    for (const std::string name : {"probe/1", "probe/2"}) {
      if (rank == 0) Succeed(*runtime, testing::Barrier(name));
    }
    EXPECT_EQ(runtime->Shutdown(), absl::OkStatus()) << "the job goes on";
  });
}

TEST(FlightRecorder, KeepsTheWayOfEachTensor) {
  std::vector<Transport> transports = testing::ConnectInProcess({.size = 2});
  const std::shared_ptr<FlightBoard> flights = transports[0].flights;
  testing::RunRanks(std::move(transports), [](RankId rank, Transport transport) {
    const auto runtime = Runtime::Create({}, {.rank = rank, .size = 2}, std::move(transport));
    std::vector<float> data(rank == 0 ? 3 : 4, 1.0f);
    EXPECT_FALSE(CarryOut(*runtime, Sum("mismatch", &data)).ok());
    data.resize(3);
    Succeed(*runtime, Sum("good", &data));
    Succeed(*runtime, Join());
    EXPECT_TRUE(runtime->Shutdown().ok());
  });
  for (RankId rank : {0, 1}) {
    EXPECT_THAT(KindsOf(flights->Of(rank), "good"),
                ElementsAre(FlightKind::kSubmitted, FlightKind::kReported, FlightKind::kAgreed, FlightKind::kStarted,
                            FlightKind::kFinished));
    EXPECT_THAT(KindsOf(flights->Of(rank), "mismatch"),
                ElementsAre(FlightKind::kSubmitted, FlightKind::kReported, FlightKind::kFailed));
    EXPECT_EQ(KindsOf(flights->Of(rank), "ronda/join").front(), FlightKind::kJoined);
  }
}

}  // namespace
}  // namespace ronda
