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

TEST(ErrorFeedback, IsForWhatTheWireRounds) {
  EXPECT_FALSE(IsLossy(WireFormat::kNone, DType::kFloat32));
  EXPECT_TRUE(IsLossy(WireFormat::kFloat16, DType::kFloat64));
  EXPECT_FALSE(IsLossy(WireFormat::kBfloat16, DType::kFloat16)) << "travels as it is";
  EXPECT_TRUE(IsLossy(WireFormat::kFp8E4M3, DType::kFloat16));
  EXPECT_FALSE(IsLossy(WireFormat::kFp8E5M2, DType::kInt32));
}

}  // namespace
}  // namespace ronda
