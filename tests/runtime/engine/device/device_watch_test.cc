// SPDX-License-Identifier: Apache-2.0

#include "runtime/engine/device/device_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <utility>

#include "runtime/base/clock.h"
#include "runtime/base/mutex.h"
#include "tests/testing/fake_cuda/fake_cuda.h"

namespace ronda {
namespace {

using ::ronda::testing::FakeCuda;
using ::ronda::testing::StreamHold;
using ::testing::AllOf;
using ::testing::HasSubstr;

// A job of one rank that fails when its watch reports a failure.
class DeviceWatchTest : public ::testing::Test {
 protected:
  DeviceWatchTest() { StartWatch(absl::ZeroDuration()); }
  ~DeviceWatchTest() override { callbacks_->Stop(); }

  void StartWatch(absl::Duration setup_deadline) {
    auto watch = DeviceWatch::Start({.rank = 0,
                                     .flights = flights_,
                                     .job_failure =
                                         [this] {
                                           if (exhausted_.exchange(false)) throw std::bad_alloc();
                                           return failure();
                                         },
                                     .fail_job = [this](const absl::Status& status) { SetFailure(status); },
                                     .transport_failure = [this] { return is_broken_ ? broken_ : absl::OkStatus(); },
                                     .abort = [this] { ++aborts_; },
                                     .stream_is_held = stream_is_held_,
                                     .setup_deadline = setup_deadline,
                                     .idle = [this] { ++idles_; }});
    EXPECT_TRUE(watch.ok()) << watch.status();
    watch_ = *std::move(watch);
  }

  absl::Status failure() {
    MutexLock lock(&mu_);
    return failure_;
  }
  void SetFailure(const absl::Status& status) {
    MutexLock lock(&mu_);
    if (failure_.ok()) failure_ = status;
  }

  // Announces a bucket that is about to be enqueued on the stream.
  std::shared_ptr<DeviceCompletion> Announce(WaitLimits limits = {}) {
    auto completion = std::make_shared<DeviceCompletion>(
        DeviceCompletion::Options{.label = "x", .limits = limits, .device = device_, .callbacks = callbacks_});
    watch_->Watch(completion);
    return completion;
  }

  // Launches a bucket that is complete when the stream has done all the work that it has now.
  void Launch(DeviceCompletion& completion) {
    auto event = *device_->NewEvent();
    EXPECT_EQ(event->Record(stream_->handle()), absl::OkStatus());
    completion.Launch(std::move(event));
    watch_->RecordLaunch();
  }
  std::shared_ptr<DeviceCompletion> Launch(WaitLimits limits = {}) {
    auto completion = Announce(limits);
    Launch(*completion);
    return completion;
  }

  FakeCuda cuda_{{.devices = 1}};
  const std::shared_ptr<Device> device_ = *Device::Open(cuda_.table(), 0);
  const std::unique_ptr<DeviceStream> stream_ = *DeviceStream::Create(device_.get());
  const std::shared_ptr<CallbackThread> callbacks_ = CallbackThread::Create({});
  const absl::Status broken_ = absl::UnavailableError("link down");
  std::atomic<bool> is_broken_{false};
  std::atomic<bool> exhausted_{false};  // the next call finds no memory
  std::atomic<int> aborts_{0};
  std::atomic<int> idles_{0};
  Mutex mu_;
  absl::Status failure_ ABSL_GUARDED_BY(mu_);
  std::function<void(const std::string& why)> stream_is_held_ = nullptr;  // for the next StartWatch
  const std::shared_ptr<FlightBoard> flights_ = std::make_shared<FlightBoard>(2);
  std::unique_ptr<DeviceWatch> watch_;
};

TEST_F(DeviceWatchTest, SettlesWhatTheDeviceIsDoneWithAndSaysSo) {
  StreamHold hold(stream_->handle());
  const auto first = Launch();
  const auto second = Launch();
  EXPECT_FALSE(first->done());
  EXPECT_FALSE(watch_->idle());
  hold.Release();
  EXPECT_EQ(first->Wait(), absl::OkStatus());
  EXPECT_EQ(second->Wait(), absl::OkStatus());
  while (idles_ == 0) std::this_thread::yield();
  EXPECT_TRUE(watch_->idle());
  EXPECT_EQ(aborts_, 0);
}

TEST_F(DeviceWatchTest, AsksTheDeviceOnceAMillisecondIfNoThreadWaits) {
  StreamHold hold(stream_->handle());
  const auto completion = Launch();
  const size_t before = cuda_.queried_events();
  const absl::Duration begin = MonotonicTime();
  while (cuda_.queried_events() < before + 20) std::this_thread::yield();
  EXPECT_GE(MonotonicTime() - begin, absl::Milliseconds(15));
  hold.Release();
  EXPECT_EQ(completion->Wait(), absl::OkStatus());
}

TEST_F(DeviceWatchTest, DeadlineFailsTheJobAndEndsWhatIsUnderWay) {
  StreamHold hold(stream_->handle());
  const auto late = Launch({.warning = absl::Milliseconds(5), .deadline = absl::Milliseconds(20)});
  const auto behind = Launch();
  const absl::Status status = late->Wait();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("waited 20ms for"), HasSubstr("cuda:0 of rank 0 to carry out allreduce 'x'"),
                    HasSubstr("; rank 1 ")));
  EXPECT_EQ(behind->Wait(), status);
  EXPECT_EQ(failure(), status);
  while (aborts_ == 0) std::this_thread::yield();  // until the work under way has been ended
}

TEST_F(DeviceWatchTest, BucketThatDoesNotReachTheStreamIsReportedToo) {
  const auto stuck = Announce({.warning = absl::Milliseconds(5), .deadline = absl::Milliseconds(20)});
  const absl::Status status = stuck->Wait();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  // Another call may block the bucket until that call's own deadline. So the watch waits a second longer than the
  // bucket's deadline of 20 ms.
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("waited 1.02s for"), HasSubstr("cuda:0 of rank 0 to be given allreduce 'x'")));
  EXPECT_EQ(failure(), status);
  while (aborts_ == 0) std::this_thread::yield();
  Launch(*stuck);  // the thread that was held up goes on
  EXPECT_EQ(stuck->status(), status);
}

// The watch applies the longer of two deadlines: the bucket's, and the one for connecting ranks.
TEST_F(DeviceWatchTest, DeadlineOfConnectingRanksComesFirst) {
  StartWatch(absl::Milliseconds(300));
  const auto stuck = Announce({.warning = absl::Milliseconds(5), .deadline = absl::Milliseconds(20)});
  const absl::Status status = stuck->Wait();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), HasSubstr("waited 1.3s for"));
}

TEST_F(DeviceWatchTest, SlowLaunchIsNoError) {
  const auto slow = Announce({.warning = absl::Milliseconds(1), .deadline = absl::Milliseconds(100)});
  while (flights_->Of(0).Events().empty()) std::this_thread::yield();
  EXPECT_EQ(flights_->Of(0).Last()->kind, FlightKind::kWaiting);
  EXPECT_FALSE(slow->done());
  Launch(*slow);
  EXPECT_EQ(slow->Wait(), absl::OkStatus());
}

TEST_F(DeviceWatchTest, ErrorOfTheTransportIsKnownBeforeTheLaunchEnds) {
  const auto half = Announce();
  is_broken_ = true;
  EXPECT_EQ(half->Wait(), broken_);
  EXPECT_EQ(failure(), broken_);
}

TEST_F(DeviceWatchTest, NoThreadIsToldOfWithdrawnBuckets) {
  StreamHold hold(stream_->handle());
  const auto before = Launch();
  const auto withdrawn = Announce();
  withdrawn->Withdraw();
  watch_->RecordLaunch();
  const auto after = Launch();
  EXPECT_TRUE(withdrawn->done());
  hold.Release();
  EXPECT_EQ(after->Wait(), absl::OkStatus());
  const auto last = Announce();
  last->Withdraw();
  watch_->RecordLaunch();
  while (!watch_->idle()) std::this_thread::yield();
  EXPECT_EQ(flights_->Of(0).Events().size(), 2u);
}

TEST_F(DeviceWatchTest, ErrorOfTheTransportFailsTheJob) {
  StreamHold hold(stream_->handle());
  const auto completion = Launch();
  is_broken_ = true;
  EXPECT_EQ(completion->Wait(), broken_);
  EXPECT_EQ(failure(), broken_);
}

TEST_F(DeviceWatchTest, FailureOfTheJobSettlesEverything) {
  StreamHold hold(stream_->handle());
  const auto completion = Launch();
  SetFailure(absl::AbortedError("rank 1 is gone"));
  EXPECT_EQ(completion->Wait(), absl::AbortedError("rank 1 is gone"));
  while (aborts_ == 0) std::this_thread::yield();  // until the work under way has been ended
}

TEST_F(DeviceWatchTest, BucketThatComesAfterTheFailureFailsAtOnce) {
  StreamHold hold(stream_->handle());
  const auto completion = Launch();
  SetFailure(absl::AbortedError("rank 1 is gone"));
  while (aborts_ == 0) std::this_thread::yield();
  const auto late = Announce();
  EXPECT_TRUE(late->is_settled());
  EXPECT_EQ(late->Wait(), absl::AbortedError("rank 1 is gone"));
}

TEST_F(DeviceWatchTest, DeviceIsHeldIfAStreamWaitsWhenTheJobFails) {
  std::promise<std::string> held;
  stream_is_held_ = [&](const std::string& why) { held.set_value(why); };
  StartWatch(absl::ZeroDuration());
  const auto trainers = *DeviceStream::Create(device_.get());
  StreamHold hold(stream_->handle());
  const auto first = Launch();
  const auto second = Launch();
  WaitingStream waiting(trainers->handle());
  ASSERT_EQ(second->OrderBefore(waiting), absl::OkStatus());
  SetFailure(absl::AbortedError("rank 1 is gone"));
  EXPECT_EQ(held.get_future().get(),
            "rank 1 is gone; a stream of the program waits for allreduce 'x', and must not go on with a wrong result");
  EXPECT_FALSE(first->HoldsAStream());
  EXPECT_TRUE(second->HoldsAStream());
  EXPECT_TRUE(device_->is_held());
  EXPECT_THAT(std::string(device_->CheckUsable().message()),
              HasSubstr("(the job has failed, and a stream of the program waits for allreduce 'x')"));
  watch_->Stop(failure());  // does not hold it again
}

TEST_F(DeviceWatchTest, DeviceIsNotHeldWithoutAReason) {
  stream_is_held_ = [](const std::string& why) { ADD_FAILURE() << why; };
  for (const bool fails : {false, true}) {
    StartWatch(absl::ZeroDuration());
    const auto trainers = *DeviceStream::Create(device_.get());
    StreamHold hold(stream_->handle());
    const auto completion = Launch();
    WaitingStream waiting(trainers->handle());
    if (fails) {
      SetFailure(absl::AbortedError("rank 1 is gone"));
    } else {
      ASSERT_EQ(completion->OrderBefore(waiting), absl::OkStatus());
    }
    watch_->Stop(fails ? failure() : absl::CancelledError("over"));
    EXPECT_FALSE(completion->status().ok());
    EXPECT_FALSE(device_->is_held());
  }
}

TEST_F(DeviceWatchTest, ErrorOfTheDeviceIsTheJobs) {
  StreamHold hold(stream_->handle());
  const auto completion = Launch();
  cuda_.FailDevice(0, testing::kCudaIllegalAddress);
  EXPECT_EQ(completion->Wait().code(), absl::StatusCode::kInternal);
  while (failure().ok()) std::this_thread::yield();
  EXPECT_THAT(std::string(failure().message()), HasSubstr("cuda:0"));
}

TEST_F(DeviceWatchTest, WithoutMemoryTheJobFailsAndSaysSo) {
  StreamHold hold(stream_->handle());
  const auto completion = Launch();
  exhausted_ = true;
  EXPECT_EQ(completion->Wait().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(failure().message()), HasSubstr("out of memory in the thread that watches the device"));
  while (!watch_->idle()) std::this_thread::yield();
}

TEST_F(DeviceWatchTest, StoppingIsNoFailureAndEndsNoWork) {
  for (const bool has_seen_it : {true, false}) {
    StartWatch(absl::ZeroDuration());
    StreamHold hold(stream_->handle());
    const size_t before = cuda_.queried_events();
    const auto completion = Launch();
    while (has_seen_it && cuda_.queried_events() == before) std::this_thread::yield();
    watch_->Stop(absl::CancelledError("over"));
    EXPECT_EQ(completion->Wait(), absl::CancelledError("over"));
    EXPECT_EQ(aborts_, 0);
    EXPECT_EQ(failure(), absl::OkStatus());
  }
}

TEST_F(DeviceWatchTest, StopSettlesEarlierAndLaterBuckets) {
  StreamHold hold(stream_->handle());
  const auto before = Launch();
  watch_->Stop(absl::CancelledError("over"));
  const auto after = Launch();
  EXPECT_EQ(before->Wait(), absl::CancelledError("over"));
  EXPECT_EQ(after->Wait(), absl::CancelledError("over"));
}

}  // namespace
}  // namespace ronda
