#include "bench/step/gradients.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <vector>

namespace ronda::bench {
namespace {

ModelShapes TwoTensors() { return {.parameters = {{.name = "a", .shape = {40}}, {.name = "b", .shape = {3, 5}}}}; }

// What an exact allreduce over `ranks` makes of FillForCheck(), times `factor`.
Gradients Reduced(int ranks, float factor) {
  Gradients sum(TwoTensors());
  std::vector<Gradients> all;
  for (int rank = 0; rank < ranks; ++rank) all.emplace_back(TwoTensors()).FillForCheck(rank);
  for (size_t i = 0; i < sum.size(); ++i) {
    for (int64_t place = 0; place < sum.count(i); ++place) {
      sum.data(i)[place] = 0;
      for (Gradients& one : all) sum.data(i)[place] += one.data(i)[place] * factor;
    }
  }
  return sum;
}

TEST(Gradients, BeginAtCacheLines) {
  Gradients gradients(TwoTensors());
  for (size_t i = 0; i < gradients.size(); ++i) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(gradients.data(i)) % 64, 0u);
  }
}

TEST(Gradients, SumsAndAveragesAreRecognised) {
  for (int ranks : {1, 2, 3, 5}) {
    EXPECT_EQ(Reduced(ranks, 1).CountWrong(ranks, Gradients::Expected::kSum, WireFormat::kNone), 0);
    EXPECT_EQ(Reduced(ranks, 1.0f / static_cast<float>(ranks))
                  .CountWrong(ranks, Gradients::Expected::kAverage, WireFormat::kNone),
              0);
  }
}

TEST(Gradients, WhatIsNotTheSumIsCounted) {
  Gradients untouched(TwoTensors());
  untouched.FillForCheck(0);
  // The places where the pattern is zero are right by accident: every 13th.
  EXPECT_EQ(untouched.CountWrong(2, Gradients::Expected::kSum, WireFormat::kNone), 40 - 4 + 15 - 2);
  Gradients reduced = Reduced(2, 1);
  reduced.data(1)[14] += 1;
  EXPECT_EQ(reduced.CountWrong(2, Gradients::Expected::kSum, WireFormat::kNone), 1);
  reduced.data(0)[0] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(reduced.CountWrong(2, Gradients::Expected::kSum, WireFormat::kNone), 2);
}

TEST(Gradients, RoundingOfTheWireIsNoError) {
  Gradients reduced = Reduced(2, 1);
  reduced.data(0)[12] *= 1.05f;
  EXPECT_EQ(reduced.CountWrong(2, Gradients::Expected::kSum, WireFormat::kFp8E4M3), 0);
  EXPECT_EQ(reduced.CountWrong(2, Gradients::Expected::kSum, WireFormat::kFloat16), 1);
}

}  // namespace
}  // namespace ronda::bench
