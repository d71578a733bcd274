#include "client/c_api_support.h"

#include <memory>
#include <stdexcept>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/collectives/self/self_communicator.h"

namespace ronda {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<std::unique_ptr<Session>> OneRank() {
  return std::make_unique<Session>(Runtime::Create({}, {}, CreateSelfTransport("here")), WaitLimits());
}

TEST(DefaultRuntimeTest, ThereIsNoneBeforeStartAndAfterStop) {
  DefaultRuntime runtime;
  EXPECT_EQ(runtime.Get(), nullptr);
  EXPECT_EQ(runtime.Stop().code, RONDA_ERROR_NOT_INITIALIZED);
  ASSERT_TRUE(runtime.Start(OneRank).ok());
  EXPECT_NE(runtime.Get(), nullptr);
  EXPECT_TRUE(runtime.Stop().ok());
  EXPECT_EQ(runtime.Get(), nullptr);
}

TEST(DefaultRuntimeTest, AFactoryThatFailsLeavesNone) {
  DefaultRuntime runtime;
  const Outcome outcome = runtime.Start([] { return absl::DeadlineExceededError("rank 1 did not come"); });
  EXPECT_EQ(outcome.code, RONDA_ERROR_DEADLINE);
  EXPECT_EQ(outcome.text, "rank 1 did not come");
  EXPECT_EQ(runtime.Get(), nullptr);
  EXPECT_TRUE(runtime.Start(OneRank).ok());
  EXPECT_TRUE(runtime.Stop().ok());
}

TEST(DefaultRuntimeTest, AFactoryThatThrowsLeavesNone) {
  DefaultRuntime runtime;
  const auto throws = []() -> absl::StatusOr<std::unique_ptr<Session>> { throw std::runtime_error("no threads"); };
  EXPECT_THROW(runtime.Start(throws), std::runtime_error);
  EXPECT_TRUE(runtime.Start(OneRank).ok());
  EXPECT_TRUE(runtime.Stop().ok());
}

TEST(DefaultRuntimeTest, WhileOneThreadStartsAnotherIsRefused) {
  DefaultRuntime runtime;
  Outcome second;
  ASSERT_TRUE(runtime
                  .Start([&] {
                    std::thread([&] { second = runtime.Start(OneRank); }).join();
                    EXPECT_EQ(runtime.Get(), nullptr);
                    EXPECT_EQ(runtime.Stop().code, RONDA_ERROR_NOT_INITIALIZED);
                    return OneRank();
                  })
                  .ok());
  EXPECT_EQ(second.code, RONDA_ERROR_ALREADY_INITIALIZED);
  EXPECT_THAT(second.text, HasSubstr("another thread is in ronda_init()"));
  EXPECT_TRUE(runtime.Stop().ok());
}

TEST(DefaultRuntimeTest, WhoStillHoldsAStoppedSessionCanSubmitNothing) {
  DefaultRuntime runtime;
  ASSERT_TRUE(runtime.Start(OneRank).ok());
  const std::shared_ptr<Session> held = runtime.Get();
  ASSERT_TRUE(runtime.Stop().ok());
  EXPECT_EQ(held->SubmitNumbered({.request = {.name = "ronda/barrier", .op = OpType::kBarrier}}).status().code(),
            absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace ronda
