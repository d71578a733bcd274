// SPDX-License-Identifier: Apache-2.0

#include "runtime/engine/operations.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ronda {
namespace {

absl::StatusOr<ResultData> Zeros(absl::string_view, size_t bytes) { return ResultData(new std::byte[bytes]()); }

TEST(ErrorFeedback, ResidualsAreKeptByProcessSetAndName) {
  ErrorFeedback feedback(Zeros);
  float* const residual = *feedback.Residual({0, "x"}, 3);
  EXPECT_EQ(residual[0] + residual[1] + residual[2], 0.0f);
  residual[1] = 0.5f;
  EXPECT_EQ((*feedback.Residual({1, "x"}, 3))[1], 0.0f);
  EXPECT_EQ((*feedback.Residual({0, "y"}, 3))[1], 0.0f);
  EXPECT_EQ((*feedback.Residual({0, "x"}, 3))[1], 0.5f);
}

TEST(ErrorFeedback, ChangedCountAndRemovedSetBeginAnew) {
  ErrorFeedback feedback(Zeros);
  (*feedback.Residual({1, "x"}, 2))[0] = 0.5f;
  EXPECT_EQ((*feedback.Residual({1, "x"}, 3))[0], 0.0f);
  (*feedback.Residual({1, "x"}, 3))[0] = 0.5f;
  (*feedback.Residual({2, "x"}, 3))[0] = 0.25f;
  feedback.Drop(1);
  EXPECT_EQ((*feedback.Residual({1, "x"}, 3))[0], 0.0f);
  EXPECT_EQ((*feedback.Residual({2, "x"}, 3))[0], 0.25f);
}

}  // namespace
}  // namespace ronda
