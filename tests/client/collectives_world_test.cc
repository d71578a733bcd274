// SPDX-License-Identifier: Apache-2.0

// Tests every operation of the C++ API on every dtype, in jobs whose ranks are processes.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "client/ronda.hpp"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/world_programs.h"
#include "tests/testing/process_world.h"

namespace {

using ronda::Op;
using ::testing::ElementsAre;

// Converts a small integer, which every dtype represents exactly, to the type T.
template <class T>
T from_int(int value) {
  return static_cast<T>(value);
}
template <>
ronda::bfloat16 from_int(int value) {
  const float wide = static_cast<float>(value);
  std::uint32_t bits;
  std::memcpy(&bits, &wide, sizeof(bits));
  return {static_cast<std::uint16_t>(bits >> 16)};
}
template <>
ronda::float16 from_int(int value) {
  if (value == 0) return {0};
  const int exponent = std::ilogb(value);
  const int mantissa = (std::abs(value) << (10 - exponent)) & 0x3ff;
  return {static_cast<std::uint16_t>((value < 0 ? 0x8000 : 0) | ((exponent + 15) << 10) | mantissa)};
}

template <class T>
bool same(T a, T b) {
  return a == b;
}
bool same(ronda::float16 a, ronda::float16 b) { return a.bits == b.bits; }
bool same(ronda::bfloat16 a, ronda::bfloat16 b) { return a.bits == b.bits; }

// Returns element i of rank `rank`'s input. Each element is between 0 and 3, so sums and products over a few ranks stay
// small.
int input_of(int rank, int i) { return (rank + i) % 4; }

int expected(Op op, int i, int ranks) {
  int sum = 0, product = 1, min = 3, max = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const int value = input_of(rank, i);
    sum += value;
    product *= value;
    min = std::min(min, value);
    max = std::max(max, value);
  }
  switch (op) {
    case Op::Sum:
      return sum;
    case Op::Min:
      return min;
    case Op::Max:
      return max;
    case Op::Product:
      return product;
    case Op::Average:
      return sum / ranks;
    default:
      return -1;
  }
}

// Checks allreduces in place and out of place. Bools and averages have separate tests.
template <class T>
void CheckAllreduce(Op op, const std::string& dtype) {
  constexpr int kCount = 1003;
  std::vector<T> input(kCount), output(kCount);
  for (int i = 0; i < kCount; ++i) input[i] = from_int<T>(input_of(ronda::rank(), i));
  const std::string name = dtype + "/" + std::to_string(static_cast<int>(op));
  ronda::allreduce(ronda::tensor(name, input), output.data(), {op});
  ronda::allreduce(ronda::tensor(name, input), {op});
  int wrong = 0;
  for (int i = 0; i < kCount; ++i) {
    const T value = from_int<T>(expected(op, i, ronda::size()));
    if (!same(input[i], value) || !same(output[i], value)) ++wrong;
  }
  EXPECT_EQ(wrong, 0) << name << " on rank " << ronda::rank();
}

template <class T>
void CheckAllOps(const std::string& dtype) {
  for (Op op : {Op::Sum, Op::Min, Op::Max, Op::Product}) CheckAllreduce<T>(op, dtype);
}

void AllreduceEveryDtypeAndOp() {
  ronda::init();
  CheckAllOps<std::uint8_t>("uint8");
  CheckAllOps<std::int8_t>("int8");
  CheckAllOps<std::int32_t>("int32");
  CheckAllOps<std::int64_t>("int64");
  CheckAllOps<ronda::float16>("float16");
  CheckAllOps<ronda::bfloat16>("bfloat16");
  CheckAllOps<float>("float32");
  CheckAllOps<double>("float64");
  ronda::shutdown();
}

void AllreduceBools() {
  ronda::init();
  const int rank = ronda::rank();
  // The first flag is false on all ranks, the second is true only on rank 0, and the third is true on all ranks.
  const bool input[3] = {false, rank == 0, true};
  bool flags[3];
  const auto reduce = [&](Op op) {
    std::copy(input, input + 3, flags);
    ronda::allreduce(ronda::tensor("flags", flags, {3}), {op});
    return std::vector<bool>(flags, flags + 3);
  };
  EXPECT_THAT(reduce(Op::Sum), ElementsAre(false, true, true));
  EXPECT_THAT(reduce(Op::Max), ElementsAre(false, true, true));
  EXPECT_THAT(reduce(Op::Min), ElementsAre(false, false, true));
  EXPECT_THAT(reduce(Op::Product), ElementsAre(false, false, true));
  ronda::shutdown();
}

void AverageAndScale() {
  ronda::init();
  const int rank = ronda::rank();
  const int size = ronda::size();
  std::vector<float> values = {static_cast<float>(rank), 10};
  ronda::allreduce(ronda::tensor("float", values));  // the default is the average
  EXPECT_FLOAT_EQ(values[0], (size - 1) / 2.0f);
  EXPECT_FLOAT_EQ(values[1], 10);
  std::vector<std::int32_t> whole = {rank, -rank};
  ronda::allreduce(ronda::tensor("int", whole));
  EXPECT_THAT(whole, ElementsAre((size - 1) / 2, -((size - 1) / 2))) << "integers round towards zero";
  double scaled = rank + 1;
  ronda::AllreduceOptions options{Op::Sum};
  options.prescale = 0.5;
  options.postscale = 4;
  ronda::allreduce(ronda::tensor("scaled", &scaled), options);
  EXPECT_DOUBLE_EQ(scaled, 2.0 * size * (size + 1) / 2);
  ronda::shutdown();
}

void Compress() {
  ronda::init();
  for (auto [compression, relative] :
       {std::pair(ronda::Compression::fp16, 1.0f / 1024), std::pair(ronda::Compression::bf16, 1.0f / 128)}) {
    std::vector<float> values(5000);
    for (int i = 0; i < 5000; ++i) values[i] = std::sin(0.1f * i + ronda::rank());
    std::vector<double> sums(5000);
    for (int i = 0; i < 5000; ++i) {
      for (int rank = 0; rank < ronda::size(); ++rank) sums[i] += std::sin(0.1f * i + rank);
    }
    ronda::allreduce(ronda::tensor("wave", values), {Op::Sum, compression});
    double worst = 0;
    for (int i = 0; i < 5000; ++i) worst = std::max(worst, std::abs(values[i] - sums[i]));
    // The inputs are at most 1. The limit allows a rounding error of half a unit in the last place for each input and
    // for the sum.
    EXPECT_LE(worst, ronda::size() * relative) << "compression " << static_cast<int>(compression);
    EXPECT_GT(worst, 0) << "nothing was compressed";
    // All ranks must have the same bits.
    const std::vector<float> all = ronda::allgather("bits", values.data(), {5000});
    for (int rank = 0; rank < ronda::size(); ++rank) {
      EXPECT_TRUE(std::equal(values.begin(), values.end(), all.begin() + 5000 * rank)) << "rank " << rank;
    }
  }
  ronda::shutdown();
}

void BroadcastFromEveryRoot() {
  ronda::init();
  for (int root = 0; root < ronda::size(); ++root) {
    std::vector<double> values(100, ronda::rank() + 0.5);
    ronda::broadcast(ronda::tensor("d", values), root);
    EXPECT_THAT(values, ::testing::Each(root + 0.5));
    std::int8_t small = static_cast<std::int8_t>(ronda::rank());
    ronda::broadcast(ronda::tensor("b", &small), root);
    EXPECT_EQ(small, root);
  }
  ronda::shutdown();
}

void AllgatherWithDifferingFirstDimensions() {
  ronda::init();
  // Rank r contributes r rows of 2 elements, so rank 0 contributes none.
  const int rank = ronda::rank();
  const std::vector<std::int32_t> rows(2 * rank, rank);
  auto handle = ronda::allgather_async("rows", rows.data(), {rank, 2});
  std::vector<std::int32_t> expected_rows;
  std::vector<std::int64_t> expected_dims;
  for (int r = 0; r < ronda::size(); ++r) {
    expected_rows.insert(expected_rows.end(), 2 * r, r);
    expected_dims.push_back(r);
  }
  EXPECT_EQ(handle.result(), expected_rows);
  EXPECT_EQ(handle.rows_per_rank(), expected_dims);
  ronda::shutdown();
}

void ZeroElements() {
  ronda::init();
  std::vector<float> empty;
  float one = 1;
  ronda::Handle reduced = ronda::allreduce_async(ronda::tensor("empty", empty));
  ronda::Handle beside = ronda::allreduce_async(ronda::tensor("one", &one), {Op::Sum});
  reduced.synchronize();
  beside.synchronize();
  EXPECT_EQ(one, ronda::size());
  ronda::broadcast(ronda::tensor("empty", empty), 0);
  EXPECT_TRUE(ronda::allgather<float>("empty", nullptr, {0}).empty());
  ronda::shutdown();
}

void SubmitInDifferentOrders() {
  ronda::init();
  constexpr int kTensors = 50;
  for (int step = 0; step < 5; ++step) {
    std::vector<std::vector<float>> tensors(kTensors, std::vector<float>(100, 1));
    std::vector<ronda::Handle> handles;
    for (int i = 0; i < kTensors; ++i) {
      const int t = (i * 7 + ronda::rank() * 13 + step) % kTensors;
      handles.push_back(ronda::allreduce_async(ronda::tensor("t" + std::to_string(t), tensors[t]), {Op::Sum}));
    }
    for (ronda::Handle& handle : handles) handle.synchronize();
    for (const auto& tensor : tensors) EXPECT_THAT(tensor, ::testing::Each(ronda::size()));
  }
  ronda::shutdown();
}

// Runs the first step of a large model. The control messages of the ranks for this step are larger than the control
// rings, and arrive while the ranks are busy.
void SubmitMoreThanAControlRingHolds() {
  ronda::init();
  constexpr int kTensors = 2000;
  std::vector<float> large(4 << 20, 1), small(kTensors, 1);
  std::vector<ronda::Handle> handles;
  handles.push_back(ronda::allreduce_async(ronda::tensor("large", large), {Op::Sum}));
  for (int i = 0; i < kTensors; ++i) {
    const std::string name = std::string(100, 'x') + std::to_string(i);
    handles.push_back(ronda::allreduce_async(ronda::tensor(name, &small[i]), {Op::Sum}));
  }
  for (ronda::Handle& handle : handles) handle.synchronize();
  EXPECT_THAT(small, ::testing::Each(ronda::size()));
  ronda::shutdown();
}

void JoinTwice() {
  for (int round = 0; round < 2; ++round) {
    ronda::init();
    std::int64_t ranks = 1;
    ronda::allreduce(ronda::tensor("ranks", &ranks), {Op::Sum});
    EXPECT_EQ(ranks, ronda::size());
    ronda::barrier();
    ronda::shutdown();
  }
}

const std::vector<ronda::testing::RankProgram> kPrograms = {
    {"AllreduceEveryDtypeAndOp", AllreduceEveryDtypeAndOp},
    {"AllreduceBools", AllreduceBools},
    {"AverageAndScale", AverageAndScale},
    {"Compress", Compress},
    {"BroadcastFromEveryRoot", BroadcastFromEveryRoot},
    {"AllgatherWithDifferingFirstDimensions", AllgatherWithDifferingFirstDimensions},
    {"ZeroElements", ZeroElements},
    {"SubmitInDifferentOrders", SubmitInDifferentOrders},
    {"SubmitMoreThanAControlRingHolds", SubmitMoreThanAControlRingHolds},
    {"JoinTwice", JoinTwice},
};

class CollectivesWorldTest : public ::testing::TestWithParam<std::string> {};

TEST_P(CollectivesWorldTest, GivesTheRightResultsOnTwoAndThreeRanks) {
  ronda::testing::ExpectRankProgramSucceeds(GetParam(), 2);
  ronda::testing::ExpectRankProgramSucceeds(GetParam(), 3);
}

INSTANTIATE_TEST_SUITE_P(Programs, CollectivesWorldTest, ::testing::ValuesIn([] {
                           std::vector<std::string> names;
                           for (const auto& program : kPrograms) names.push_back(program.name);
                           return names;
                         }()),
                         [](const auto& info) { return info.param; });

TEST(ManyRanksTest, EightRanksOnFewCoresAgree) {
  ronda::testing::ExpectRankProgramSucceeds("SubmitInDifferentOrders", 8);
}

}  // namespace

namespace ronda::testing {

const std::vector<RankProgram>& CollectivesPrograms() { return kPrograms; }

}  // namespace ronda::testing
