#include "bench/cuda/thread_times.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "absl/time/clock.h"

namespace ronda::bench {
namespace {

using ::testing::Contains;

// A thread that computes, or sleeps, until it goes.
class OtherThread {
 public:
  explicit OtherThread(absl::Duration nap) {
    thread_ = std::thread([this, nap] {
      id_ = gettid();
      while (!over_) {
        if (nap > absl::ZeroDuration()) absl::SleepFor(nap);
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
  // The kernel may take its time to forget it.
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
