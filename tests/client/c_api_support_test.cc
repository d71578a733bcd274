// SPDX-License-Identifier: Apache-2.0

#include <memory>
#include <stdexcept>
#include <thread>

#include "client/c_api_support.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/collectives/self/self_communicator.h"

namespace ronda {
namespace {

TEST(StatusCodeTest, OkIsOkWhoeverSaysIt) {
  for (Answer from : {Answer::kStartup, Answer::kSubmission, Answer::kCompletion}) {
    EXPECT_EQ(ToRondaStatus(absl::StatusCode::kOk, from), RONDA_OK);
  }
}

TEST(StatusCodeTest, FailuresOfTheJobReadTheSameWhereverTheyAreMet) {
  for (Answer from : {Answer::kStartup, Answer::kSubmission, Answer::kCompletion}) {
    EXPECT_EQ(ToRondaStatus(absl::StatusCode::kUnavailable, from), RONDA_ERROR_PEER_FAILED);
    EXPECT_EQ(ToRondaStatus(absl::StatusCode::kAborted, from), RONDA_ERROR_PEER_FAILED);
    EXPECT_EQ(ToRondaStatus(absl::StatusCode::kDeadlineExceeded, from), RONDA_ERROR_DEADLINE);
    EXPECT_EQ(ToRondaStatus(absl::StatusCode::kResourceExhausted, from), RONDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(ToRondaStatus(absl::StatusCode::kInternal, from), RONDA_ERROR_INTERNAL);
  }
}

TEST(StatusCodeTest, ACodeThatNobodyUsesIsInternal) {
  for (Answer from : {Answer::kStartup, Answer::kSubmission, Answer::kCompletion}) {
    EXPECT_EQ(ToRondaStatus(absl::StatusCode::kUnimplemented, from), RONDA_ERROR_INTERNAL);
    EXPECT_EQ(ToRondaStatus(static_cast<absl::StatusCode>(99), from), RONDA_ERROR_INTERNAL);
  }
}

TEST(StatusCodeTest, SubmissionsTellBadArgumentsDuplicatesAndShutdownApart) {
  EXPECT_EQ(ToRondaStatus(absl::StatusCode::kInvalidArgument, Answer::kSubmission), RONDA_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(ToRondaStatus(absl::StatusCode::kAlreadyExists, Answer::kSubmission), RONDA_ERROR_DUPLICATE_NAME);
  EXPECT_EQ(ToRondaStatus(absl::StatusCode::kCancelled, Answer::kSubmission), RONDA_ERROR_NOT_INITIALIZED);
  EXPECT_EQ(ToRondaStatus(absl::StatusCode::kFailedPrecondition, Answer::kSubmission), RONDA_ERROR_INVALID_ARGUMENT);
}

TEST(StatusCodeTest, DisagreementOfRanksIsAMismatchAtCompletionOnly) {
  EXPECT_EQ(ToRondaStatus(absl::StatusCode::kFailedPrecondition, Answer::kCompletion), RONDA_ERROR_MISMATCH);
  EXPECT_NE(ToRondaStatus(absl::StatusCode::kFailedPrecondition, Answer::kStartup), RONDA_ERROR_MISMATCH);
}

// The failure of a job may have a code that means something else in an error of the submission itself.
TEST(StatusCodeTest, FailureOfTheJobHasOneCodeInSubmissionsAndOperations) {
  const auto start = []() -> absl::StatusOr<std::unique_ptr<Session>> {
    Transport transport = CreateSelfTransport("here");
    transport.control->Fail(absl::InvalidArgumentError("a damaged message"));
    return std::make_unique<Session>(Runtime::Create({}, {}, std::move(transport)), WaitLimits());
  };
  ASSERT_TRUE(globals().runtime.Start(start).ok());
  const auto submit = [] {
    return globals().runtime.Get()->SubmitNumbered({.request = {.name = "ronda/barrier", .op = OpType::kBarrier}});
  };
  // The rank accepts submissions until it notices the failure.
  if (const auto operation = submit(); operation.ok()) {
    EXPECT_EQ(Failure((*operation)->Wait(), Answer::kCompletion).code, RONDA_ERROR_INTERNAL);
  }
  const absl::Status refused = submit().status();
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  EXPECT_EQ(Failure(refused, Answer::kSubmission).code, RONDA_ERROR_INTERNAL);
  EXPECT_EQ(Failure(absl::InvalidArgumentError("a bad shape"), Answer::kSubmission).code, RONDA_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(globals().runtime.Stop().code, RONDA_ERROR_INTERNAL);
}

TEST(StatusCodeTest, StartupBlamesTheConfigurationForRanksThatDoNotFitTogether) {
  for (absl::StatusCode code :
       {absl::StatusCode::kInvalidArgument, absl::StatusCode::kFailedPrecondition, absl::StatusCode::kAlreadyExists,
        absl::StatusCode::kNotFound, absl::StatusCode::kPermissionDenied, absl::StatusCode::kUnauthenticated}) {
    EXPECT_EQ(ToRondaStatus(code, Answer::kStartup), RONDA_ERROR_INVALID_ARGUMENT);
  }
}

TEST(StatusCodeTest, AMemberWithoutAPlaceLearnsItAtTheStart) {
  EXPECT_EQ(ToRondaStatus(absl::StatusCode::kDataLoss, Answer::kStartup), RONDA_ERROR_MEMBERSHIP);
}

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

TEST(DefaultRuntimeTest, StoppedSessionRefusesSubmissions) {
  DefaultRuntime runtime;
  ASSERT_TRUE(runtime.Start(OneRank).ok());
  const std::shared_ptr<Session> held = runtime.Get();
  ASSERT_TRUE(runtime.Stop().ok());
  EXPECT_EQ(held->SubmitNumbered({.request = {.name = "ronda/barrier", .op = OpType::kBarrier}}).status().code(),
            absl::StatusCode::kCancelled);
}

}  // namespace

}  // namespace ronda
