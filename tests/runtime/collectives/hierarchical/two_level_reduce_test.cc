// SPDX-License-Identifier: Apache-2.0

#include "runtime/collectives/hierarchical/two_level_reduce.h"

#include <gtest/gtest.h>

#include <new>
#include <stdexcept>
#include <vector>

namespace ronda {
namespace {

kernels::Scale OnHost(const ReduceCall& call) { return ScalesOfLevels(call).on_host; }

TEST(ScalesOfLevelsTest, HostOfAFloat16SumAppliesThePowerOfTwo) {
  const kernels::Scale third = {.multiplier = -0.5, .divisor = 3};  // -1/6, between 1/8 and 1/4
  for (const ReduceCall& call :
       {ReduceCall{.dtype = DType::kFloat16, .postscale = third},
        ReduceCall{.dtype = DType::kFloat64, .wire = WireFormat::kFloat16, .postscale = third},
        ReduceCall{.dtype = DType::kFloat16, .wire = WireFormat::kFp8E4M3, .postscale = third}}) {
    const LevelScales scales = ScalesOfLevels(call);
    EXPECT_EQ(scales.on_host.Factor(), 0.125);
    EXPECT_EQ(scales.across.multiplier, -4);
    EXPECT_EQ(scales.across.divisor, 3);
  }
}

TEST(ScalesOfLevelsTest, HostOfOtherReductionsAppliesNoFactor) {
  const kernels::Scale half = {.multiplier = 0.5};
  EXPECT_TRUE(OnHost({.dtype = DType::kFloat32, .postscale = half}).IsIdentity());
  EXPECT_TRUE(OnHost({.dtype = DType::kBfloat16, .postscale = half}).IsIdentity());
  EXPECT_TRUE(OnHost({.dtype = DType::kFloat32, .wire = WireFormat::kFp8E4M3, .postscale = half}).IsIdentity());
  EXPECT_TRUE(OnHost({.dtype = DType::kFloat16, .op = ReduceOp::kProduct, .postscale = half}).IsIdentity());
  EXPECT_TRUE(OnHost({.dtype = DType::kInt16, .postscale = half}).IsIdentity());
}

// A factor of at least 1 could make the sum of one host overflow although the result fits.
TEST(ScalesOfLevelsTest, HostAppliesNoFactorOfAtLeastOneAndNoZero) {
  for (double factor : {0.0, 1.0, 3.0, -8.0}) {
    const ReduceCall call = {.dtype = DType::kFloat16, .postscale = {.multiplier = factor}};
    EXPECT_TRUE(OnHost(call).IsIdentity()) << factor;
    EXPECT_EQ(ScalesOfLevels(call).across.multiplier, factor);
  }
}

TEST(AcrossWorkerTest, SlotsAreCarriedOutInTheirOrder) {
  std::vector<size_t> carried;
  AcrossWorker worker([&](size_t slot) {
    carried.push_back(slot);
    return slot == 1 ? absl::UnavailableError("link down") : absl::OkStatus();
  });
  worker.Submit(0);
  worker.Submit(1);
  EXPECT_EQ(worker.Await(), absl::OkStatus());
  EXPECT_EQ(worker.Await(), absl::UnavailableError("link down"));
  worker.Submit(0);
  EXPECT_EQ(worker.Await(), absl::OkStatus());
  EXPECT_EQ(carried, (std::vector<size_t>{0, 1, 0}));
}

TEST(AcrossWorkerTest, AnExceptionIsTheResultOfItsSlot) {
  AcrossWorker worker([](size_t slot) -> absl::Status {
    if (slot == 0) throw std::bad_alloc();
    throw std::length_error("too long");
  });
  worker.Submit(0);
  worker.Submit(1);
  EXPECT_EQ(worker.Await().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(worker.Await().code(), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace ronda
