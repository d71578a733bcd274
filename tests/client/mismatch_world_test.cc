// SPDX-License-Identifier: Apache-2.0

// Tests that every rank gets an error if the ranks disagree, and that the job continues.
#include <cstdint>
#include <string>
#include <vector>

#include "client/ronda.hpp"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/world_programs.h"
#include "tests/testing/process_world.h"

namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

// Expects the error of a job in which rank 1 contradicts all other ranks. The text names the tensor, rank 1, the first
// other rank that submitted, and the values of these two ranks.
void ExpectMismatch(const ronda::Status& status, const std::string& said_by_others, const std::string& said_by_1) {
  EXPECT_EQ(status.code(), RONDA_ERROR_MISMATCH) << status.message();
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("conv1/weight"), HasSubstr("rank 1"), AnyOf(HasSubstr("rank 0"), HasSubstr("rank 2")),
                    HasSubstr(said_by_others), HasSubstr(said_by_1)));
}

void ExpectTheNextCollectiveWorks() {
  float one = 1;
  ronda::allreduce(ronda::tensor("conv1/weight", &one), {ronda::Op::Sum});
  EXPECT_EQ(one, ronda::size());
}

void Shapes() {
  ronda::init();
  std::vector<float> values(6);
  const std::vector<std::int64_t> shape =
      ronda::rank() == 1 ? std::vector<std::int64_t>{3, 2} : std::vector<std::int64_t>{2, 3};
  ExpectMismatch(ronda::try_allreduce(ronda::tensor("conv1/weight", values.data(), shape)), "[2, 3]", "[3, 2]");
  ExpectTheNextCollectiveWorks();
  ronda::shutdown();
}

void Dtypes() {
  ronda::init();
  float single = 0;
  double twice = 0;
  const ronda::Tensor view =
      ronda::rank() == 1 ? ronda::tensor("conv1/weight", &twice) : ronda::tensor("conv1/weight", &single);
  ExpectMismatch(ronda::try_allreduce(view), "float32", "float64");
  ExpectTheNextCollectiveWorks();
  ronda::shutdown();
}

void ReduceOps() {
  ronda::init();
  float value = 0;
  ExpectMismatch(ronda::try_allreduce(ronda::tensor("conv1/weight", &value),
                                      {ronda::rank() == 1 ? ronda::Op::Max : ronda::Op::Min}),
                 "min", "max");
  ExpectTheNextCollectiveWorks();
  ronda::shutdown();
}

void Operations() {
  ronda::init();
  float value = 0;
  const ronda::Tensor view = ronda::tensor("conv1/weight", &value);
  ExpectMismatch(ronda::rank() == 1 ? ronda::try_broadcast(view, 0) : ronda::try_allreduce(view), "allreduce",
                 "broadcast");
  ExpectTheNextCollectiveWorks();
  ronda::shutdown();
}

void Roots() {
  ronda::init();
  float value = 0;
  ExpectMismatch(ronda::try_broadcast(ronda::tensor("conv1/weight", &value), ronda::rank() == 1 ? 1 : 0), "root 0",
                 "root 1");
  ExpectTheNextCollectiveWorks();
  ronda::shutdown();
}

void Compressions() {
  ronda::init();
  float value = 0;
  ExpectMismatch(
      ronda::try_allreduce(ronda::tensor("conv1/weight", &value),
                           {ronda::Op::Sum, ronda::rank() == 1 ? ronda::Compression::fp16 : ronda::Compression::bf16}),
      "bf16", "fp16");
  ExpectTheNextCollectiveWorks();
  ronda::shutdown();
}

void TrailingDimensions() {
  ronda::init();
  const std::vector<float> rows(6);
  const std::int64_t width = ronda::rank() == 1 ? 3 : 2;
  ExpectMismatch(ronda::try_allgather("conv1/weight", rows.data(), {1, width}).status(), "[1, 2]", "[1, 3]");
  ExpectTheNextCollectiveWorks();
  ronda::shutdown();
}

// The optimizer of a training loop. In one step of the loop, one rank's gradient has a different shape.
struct CountingOptimizer {
  void step() { ++steps; }
  int steps = 0;
};

void Gradients() {
  ronda::init();
  std::vector<float> good(4, 1), odd(ronda::rank() == 1 ? 5 : 4, 1);
  CountingOptimizer inner;
  {
    ronda::DistributedOptimizer optimizer(inner, {ronda::tensor("fc", good), ronda::tensor("conv1/weight", odd)});
    optimizer.gradient_ready("fc");
    optimizer.gradient_ready("conv1/weight");
    ExpectMismatch(optimizer.try_step(), "[4]", "[5]");
    EXPECT_EQ(inner.steps, 0);
  }
  odd.resize(4);
  ronda::DistributedOptimizer optimizer(inner, {ronda::tensor("fc", good), ronda::tensor("conv1/weight", odd)});
  optimizer.step();
  EXPECT_EQ(inner.steps, 1);
  ronda::shutdown();
}

void RootsOfAReduceAndAGather() {
  ronda::init();
  float value = 0, result = 0;
  ExpectMismatch(ronda::try_reduce(ronda::tensor("conv1/weight", &value), &result, ronda::rank() == 1 ? 1 : 0),
                 "root 0", "root 1");
  ExpectMismatch(ronda::try_gather("conv1/weight", &value, {1}, ronda::rank() == 1 ? 2 : 0).status(), "root 0",
                 "root 2");
  ExpectTheNextCollectiveWorks();
  ronda::shutdown();
}

void OverflowDetection() {
  ronda::init();
  float value = 0;
  ronda::ReduceOptions options;
  options.detect_overflow = ronda::rank() == 1;
  ExpectMismatch(ronda::try_allreduce(ronda::tensor("conv1/weight", &value), options), "overflow", "overflow");
  ExpectTheNextCollectiveWorks();
  ronda::shutdown();
}

void RowsOfAnAlltoall() {
  ronda::init();
  const std::vector<float> rows(static_cast<std::size_t>(6 * ronda::size()));
  const std::int64_t width = ronda::rank() == 1 ? 3 : 2;
  ExpectMismatch(ronda::try_alltoall("conv1/weight", rows.data(), {ronda::size(), width}).status(), ", 2]", ", 3]");
  ExpectTheNextCollectiveWorks();
  ronda::shutdown();
}

void DtypesOfASendAndItsReceive() {
  ronda::init();
  float sent = 0;
  double received = 0;
  if (ronda::rank() < 2) {
    const ronda::Status status = ronda::rank() == 0 ? ronda::try_send(ronda::tensor("", &sent), 1)
                                                    : ronda::try_recv(ronda::tensor("", &received), 0);
    EXPECT_EQ(status.code(), RONDA_ERROR_MISMATCH) << status.message();
    EXPECT_THAT(status.message(), AllOf(HasSubstr("rank 0"), HasSubstr("float32"), HasSubstr("float64")));
  }
  ExpectTheNextCollectiveWorks();
  ronda::shutdown();
}

void DuplicateName() {
  ronda::init();
  float first = 1, second = 1, go = 0;
  const ronda::Tensor again = ronda::tensor("twice", &second);
  if (ronda::rank() == 0) {
    // Rank 1 submits "twice" only after it has received "go", so rank 0's first submission is still in flight.
    ronda::Handle handle = ronda::allreduce_async(ronda::tensor("twice", &first), {ronda::Op::Sum});
    const ronda::Status status = ronda::try_allreduce(again);
    EXPECT_EQ(status.code(), RONDA_ERROR_DUPLICATE_NAME);
    EXPECT_THAT(status.message(), AllOf(HasSubstr("'twice'"), HasSubstr("in flight")));
    ronda::broadcast(ronda::tensor("go", &go), 0);
    handle.synchronize();
  } else {
    ronda::broadcast(ronda::tensor("go", &go), 0);
    ronda::allreduce(ronda::tensor("twice", &first), {ronda::Op::Sum});
  }
  EXPECT_EQ(first, ronda::size());
  EXPECT_EQ(second, 1);
  ronda::shutdown();
}

const std::vector<ronda::testing::RankProgram> kPrograms = {
    {"Shapes", Shapes},
    {"Dtypes", Dtypes},
    {"ReduceOps", ReduceOps},
    {"Operations", Operations},
    {"Roots", Roots},
    {"Compressions", Compressions},
    {"TrailingDimensions", TrailingDimensions},
    {"Gradients", Gradients},
    {"RootsOfAReduceAndAGather", RootsOfAReduceAndAGather},
    {"OverflowDetection", OverflowDetection},
    {"RowsOfAnAlltoall", RowsOfAnAlltoall},
    {"DtypesOfASendAndItsReceive", DtypesOfASendAndItsReceive},
    {"DuplicateName", DuplicateName},
};

class MismatchWorldTest : public ::testing::TestWithParam<std::string> {};

TEST_P(MismatchWorldTest, IsExplainedOnEveryRankAndTheJobGoesOn) {
  ronda::testing::ExpectRankProgramSucceeds(GetParam(), 3);
}

INSTANTIATE_TEST_SUITE_P(Programs, MismatchWorldTest, ::testing::ValuesIn([] {
                           std::vector<std::string> names;
                           for (const auto& program : kPrograms) names.push_back(program.name);
                           return names;
                         }()),
                         [](const auto& info) { return info.param; });

}  // namespace

namespace ronda::testing {

const std::vector<RankProgram>& MismatchPrograms() { return kPrograms; }

}  // namespace ronda::testing
