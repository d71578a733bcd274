// SPDX-License-Identifier: Apache-2.0

#include "runtime/engine/handle.h"

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace ronda {
namespace {

std::shared_ptr<Handle> NewHandle(std::shared_ptr<ProgressEngine> progress = nullptr) {
  return std::make_shared<Handle>(CallbackThread::Create({}), std::move(progress), std::make_shared<std::string>("t"));
}

TEST(HandleTest, IsDoneOnceItIsComplete) {
  const auto handle = NewHandle();
  EXPECT_FALSE(handle->done());
  handle->Complete(absl::UnavailableError("rank 1 died"));
  EXPECT_TRUE(handle->done());
  EXPECT_EQ(handle->Wait(), absl::UnavailableError("rank 1 died"));
  EXPECT_EQ(handle->Wait(), absl::UnavailableError("rank 1 died")) << "as often as one likes";
}

// A thread that sees a handle as done must also see everything that the completing thread wrote before. Two threads
// sleep until the handle is done, and one thread polls.
TEST(HandleTest, ThreadThatSeesTheEndSeesTheResult) {
  constexpr int kRounds = 200;
  for (int round = 0; round < kRounds; ++round) {
    const auto handle = NewHandle();
    int64_t output = 0;  // the caller's buffer
    std::vector<std::thread> threads;
    for (int i = 0; i < 2; ++i) {
      threads.emplace_back([&] {
        EXPECT_TRUE(handle->Wait().ok());
        EXPECT_EQ(output, round);
        EXPECT_EQ(handle->result().number, round);
      });
    }
    threads.emplace_back([&] {
      while (!handle->done()) std::this_thread::yield();
      EXPECT_EQ(output, round);
      EXPECT_EQ(handle->result().number, round);
    });
    output = round;
    handle->Complete(OperationResult{.number = round});
    for (std::thread& thread : threads) thread.join();
  }
}

// The operation completes while a thread is about to sleep and another thread adds callbacks. The sleeping thread must
// wake, and each callback must run once.
TEST(HandleTest, CompletionMissesNoWaiterThatComesAtTheSameTime) {
  constexpr int kRounds = 300;
  const std::shared_ptr<CallbackThread> callbacks = CallbackThread::Create({});
  for (int round = 0; round < kRounds; ++round) {
    auto handle = std::make_shared<Handle>(callbacks, nullptr, std::make_shared<std::string>("t"));
    std::atomic<int> ready{0};
    std::atomic<int> calls{0};
    const auto meet = [&ready] {
      for (++ready; ready < 3;) std::this_thread::yield();
    };
    std::thread sleeper([&, handle] {
      meet();
      EXPECT_EQ(handle->Wait(), absl::UnavailableError("gone"));
    });
    std::thread leaves_callbacks([&, handle] {
      meet();
      for (int i = 0; i < 2; ++i) {
        const auto callback = [&](const absl::Status& status) { calls += status == absl::UnavailableError("gone"); };
        EXPECT_TRUE(handle->OnCompletion(callback).ok());
      }
    });
    meet();
    handle->Complete(absl::UnavailableError("gone"));
    handle.reset();
    sleeper.join();
    leaves_callbacks.join();
    while (!callbacks->idle()) std::this_thread::yield();
    ASSERT_EQ(calls, 2) << "round " << round;
  }
  callbacks->Stop();
}

// A fake of the engine's steps, in which a thread that drives the engine completes the handle.
class FakeEngine : public ProgressEngine::Steps {
 public:
  Progress Advance() override {
    if (handle == nullptr) return Progress::kNone;
    driven_by = std::this_thread::get_id();
    handle->Complete(absl::OkStatus());
    handle = nullptr;
    return Progress::kSome;
  }
  Progress OnSubmission(absl::Time) override { return Progress::kNone; }
  absl::Time NextDeadline() override { return absl::InfiniteFuture(); }
  void Wake() override {}
  bool StartPolling() override { return false; }
  bool KeepPolling() override { return false; }
  void StopPolling() override {}

  std::shared_ptr<Handle> handle;
  std::thread::id driven_by;
};

TEST(HandleTest, WaitingThreadCarriesTheOperationOut) {
  const auto progress = std::make_shared<ProgressEngine>(Clock::Real());
  FakeEngine engine;
  progress->Connect(&engine);
  const auto handle = engine.handle = NewHandle(progress);
  EXPECT_FALSE(handle->done());
  EXPECT_TRUE(handle->Wait().ok());
  EXPECT_EQ(engine.driven_by, std::this_thread::get_id());
  progress->Disconnect();
  EXPECT_TRUE(handle->Wait().ok()) << "a handle outlives the engine";
}

TEST(HandleDeathTest, ResultsOfWhatIsInFlightAreNotToBeAskedFor) {
  const auto handle = NewHandle();
  EXPECT_DEATH(handle->result(), "launched");
}

}  // namespace
}  // namespace ronda
