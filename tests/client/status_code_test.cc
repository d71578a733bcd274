#include "client/c_api_support.h"

#include "gtest/gtest.h"

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
    EXPECT_EQ(ToRondaStatus(absl::StatusCode::kDataLoss, from), RONDA_ERROR_INTERNAL);
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

TEST(StatusCodeTest, StartupBlamesTheConfigurationForRanksThatDoNotFitTogether) {
  for (absl::StatusCode code :
       {absl::StatusCode::kInvalidArgument, absl::StatusCode::kFailedPrecondition, absl::StatusCode::kAlreadyExists,
        absl::StatusCode::kNotFound, absl::StatusCode::kPermissionDenied, absl::StatusCode::kUnauthenticated}) {
    EXPECT_EQ(ToRondaStatus(code, Answer::kStartup), RONDA_ERROR_INVALID_ARGUMENT);
  }
}

}  // namespace
}  // namespace ronda
