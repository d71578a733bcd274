// SPDX-License-Identifier: Apache-2.0

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "client/ronda.hpp"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/rank_bodies.h"

namespace ronda::testing {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

void ReduceToEveryRoot() {
  const int size = ronda::size();
  for (int root = 0; root < size; ++root) {
    std::vector<float> input(1000, static_cast<float>(ronda::rank() + 1));
    std::vector<float> output(1000, -1);
    ronda::reduce(ronda::tensor("r", input), output.data(), root, {Op::Sum});
    EXPECT_THAT(output, Each(ronda::rank() == root ? size * (size + 1) / 2 : -1));
    EXPECT_THAT(input, Each(ronda::rank() + 1)) << "the input is not written";
  }
  // On ranks other than the root, the output may be nullptr.
  std::vector<float> input(10, 2), output(10);
  ronda::reduce(ronda::tensor("mean", input), ronda::rank() == 0 ? output.data() : nullptr, 0);
  EXPECT_THAT(output, Each(ronda::rank() == 0 ? 2 : 0));
}

// Returns how many of `rows` rows rank `rank` of `size` ranks gets.
std::int64_t PartOf(std::int64_t rows, int rank, int size) { return rows / size + (rank < rows % size ? 1 : 0); }

void ReducescatterUnevenRows() {
  const int size = ronda::size(), rank = ronda::rank();
  for (const std::int64_t rows : {std::int64_t{0}, std::int64_t{1}, std::int64_t{2 * size + 1}}) {
    std::vector<std::int32_t> input(static_cast<std::size_t>(3 * rows));
    for (std::size_t i = 0; i < input.size(); ++i) input[i] = static_cast<std::int32_t>(i) + rank;
    auto handle = ronda::reducescatter_async<std::int32_t>(ronda::tensor("rs", input.data(), {rows, 3}), {Op::Sum});
    EXPECT_EQ(handle.rows(), PartOf(rows, rank, size));
    std::int64_t first = 0;
    for (int before = 0; before < rank; ++before) first += PartOf(rows, before, size);
    std::vector<std::int32_t> expected;
    for (std::int64_t i = 3 * first; i < 3 * (first + handle.rows()); ++i) {
      expected.push_back(static_cast<std::int32_t>(i) * size + size * (size - 1) / 2);
    }
    EXPECT_EQ(handle.result(), expected);
    EXPECT_TRUE(handle.rows_per_rank().empty());
  }
}

void BitwiseOperators() {
  const std::uint16_t bit = static_cast<std::uint16_t>(1u << ronda::rank());
  const std::uint16_t all = static_cast<std::uint16_t>((1u << ronda::size()) - 1);
  const auto reduce = [](Op op, std::uint16_t value) {
    ronda::allreduce(ronda::tensor("bits", &value), {op});
    return value;
  };
  EXPECT_EQ(reduce(Op::Bor, bit), all);
  EXPECT_EQ(reduce(Op::Bxor, bit), all);
  EXPECT_EQ(reduce(Op::Band, static_cast<std::uint16_t>(~bit)), static_cast<std::uint16_t>(~all));
  float value = 1;
  const Status status = ronda::try_allreduce(ronda::tensor("float", &value), {Op::Bor});
  EXPECT_EQ(status.code(), RONDA_ERROR_INVALID_ARGUMENT);
  EXPECT_THAT(status.message(), HasSubstr("'float'"));
}

// Adasum averages equal gradients, and adds orthogonal gradients.
void AdasumAveragesWhatAgreesAndAddsWhatDoesNot() {
  std::vector<float> equal(7, 3);
  ronda::allreduce(ronda::tensor("equal", equal), {Op::Adasum});
  for (float value : equal) EXPECT_NEAR(value, 3, 1e-5);
  std::vector<float> orthogonal(static_cast<std::size_t>(ronda::size()));
  orthogonal[static_cast<std::size_t>(ronda::rank())] = 2;
  ronda::allreduce(ronda::tensor("orthogonal", orthogonal), {Op::Adasum});
  for (float value : orthogonal) EXPECT_NEAR(value, 2, 1e-5);
}

// The values are multiples of 1/8 between 1/8 and 1. The format e4m3 represents these values exactly, and e5m2 nearly.
void EightBitWires() {
  for (const Compression compression : {Compression::fp8_e4m3, Compression::fp8_e5m2}) {
    std::vector<float> values(1000);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 8 + 1) / 8;
    ronda::allreduce(ronda::tensor("fp8", values), {Op::Average, compression});
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float expected = static_cast<float>(i % 8 + 1) / 8;
      EXPECT_NEAR(values[i], expected, expected / 4) << i;
    }
    const std::vector<float> all = ronda::allgather("bits", values.data(), {1000});
    for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], values[i % 1000]) << "rank " << i / 1000;
  }
}

void OverflowIsSeenByAllRanks() {
  ReduceOptions options;
  options.op = Op::Sum;
  options.compression = Compression::fp16;
  options.detect_overflow = true;
  std::vector<float> values(100, 1);
  Handle fine = ronda::allreduce_async(ronda::tensor("fine", values), options);
  std::vector<float> large(100, 1);
  if (ronda::rank() == 0) large[50] = 1e6f;
  Handle overflown = ronda::allreduce_async(ronda::tensor("large", large), options);
  EXPECT_FALSE(fine.found_inf());
  EXPECT_TRUE(overflown.found_inf());
  // In a reducescatter, each rank gets only its part of the result, but all ranks learn of an overflow in any part.
  std::vector<double> rows(static_cast<std::size_t>(ronda::size()), 1);
  if (ronda::rank() == 0) rows[0] = std::numeric_limits<double>::quiet_NaN();
  auto parts = ronda::reducescatter_async<double>(ronda::tensor("parts", rows), {Op::Sum, {}, 1, 1, false, true});
  EXPECT_TRUE(parts.found_inf());
}

// An 8-bit format loses values that are very small compared with the largest element of their block. Without error
// feedback, such a value never arrives.
void ErrorFeedbackDeliversWhatRoundingTookAway() {
  ReduceOptions options;
  options.compression = Compression::fp8_e4m3;
  options.error_feedback = true;
  double sum = 0;
  for (int step = 0; step < 200; ++step) {
    std::vector<float> values = {100, 0.01f};
    ronda::allreduce(ronda::tensor("feedback", values), options);
    sum += values[1];
  }
  EXPECT_NEAR(sum, 200 * 0.01, 0.5);
  EXPECT_GT(sum, 0);
}

void ReducesTheNewDtypes() {
  const auto check = [](auto zero, const char* name) {
    using T = decltype(zero);
    std::vector<T> values(33, static_cast<T>(ronda::rank() + 1));
    ronda::allreduce(ronda::tensor(name, values), {Op::Sum});
    EXPECT_THAT(values, Each(static_cast<T>(ronda::size() * (ronda::size() + 1) / 2))) << name;
  };
  check(std::uint16_t{}, "uint16");
  check(std::int16_t{}, "int16");
  check(std::uint32_t{}, "uint32");
  check(std::uint64_t{}, "uint64");
}

void ReducescatterIntoTheCallersMemory() {
  const int size = ronda::size(), rank = ronda::rank();
  std::vector<float> input(static_cast<std::size_t>(2 * size), 1), part(2, -1);
  const Tensor tensor = ronda::tensor("rs", input.data(), {size, 2});
  auto handle = ronda::reducescatter_async<float>(tensor, {Op::Sum}, {}, ronda::into(part));
  EXPECT_EQ(handle.data(), part.data());
  EXPECT_EQ(handle.rows(), 1);
  EXPECT_THAT(part, Each(size));
  part.assign(2, -1);
  const Status status =
      ronda::reducescatter_async<float>(tensor, {Op::Sum}, {}, ronda::into(part.data(), rank == 0 ? 1 : 2)).wait();
  EXPECT_EQ(status.code(), rank == 0 ? RONDA_ERROR_INVALID_ARGUMENT : RONDA_OK);
  EXPECT_THAT(part, Each(rank == 0 ? -1 : size));
}

}  // namespace

std::vector<RankBody> ReductionBodies() {
  return {{"ReduceToEveryRoot", ReduceToEveryRoot},
          {"ReducescatterUnevenRows", ReducescatterUnevenRows},
          {"ReducescatterIntoTheCallersMemory", ReducescatterIntoTheCallersMemory},
          {"BitwiseOperators", BitwiseOperators},
          {"AdasumAveragesWhatAgreesAndAddsWhatDoesNot", AdasumAveragesWhatAgreesAndAddsWhatDoesNot},
          {"EightBitWires", EightBitWires},
          {"OverflowIsSeenByAllRanks", OverflowIsSeenByAllRanks},
          {"ErrorFeedbackDeliversWhatRoundingTookAway", ErrorFeedbackDeliversWhatRoundingTookAway},
          {"ReducesTheNewDtypes", ReducesTheNewDtypes}};
}

std::vector<RankBody> AllRankBodies() {
  std::vector<RankBody> all = ReductionBodies();
  for (const auto& bodies : {ExchangeBodies(), CoordinationBodies(), OrderBodies()})
    all.insert(all.end(), bodies.begin(), bodies.end());
  return all;
}

}  // namespace ronda::testing
