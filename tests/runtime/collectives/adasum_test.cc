// SPDX-License-Identifier: Apache-2.0

#include "runtime/collectives/adasum.h"

#include <gtest/gtest.h>

#include <vector>

#include "absl/strings/str_cat.h"

namespace ronda {
namespace {

struct Case {
  int members;
  DType wire;
};

class AdasumLayoutTest : public ::testing::TestWithParam<Case> {
 protected:
  static std::vector<Segment> Segments() {
    std::vector<Segment> segments;
    for (size_t count : {0, 1, 7, 8, 1000, 1023, 3}) segments.push_back({.count = count});
    return segments;
  }
};

INSTANTIATE_TEST_SUITE_P(Cases, AdasumLayoutTest,
                         ::testing::Values(Case{1, DType::kFloat32}, Case{2, DType::kFloat16}, Case{3, DType::kFloat64},
                                           Case{8, DType::kBfloat16}),
                         [](const auto& info) { return absl::StrCat(Name(info.param.wire), info.param.members); });

TEST_P(AdasumLayoutTest, ShardsMakeUpTheTensors) {
  const std::vector<Segment> segments = Segments();
  const AdasumLayout layout(absl::MakeConstSpan(segments), GetParam().members, GetParam().wire);
  std::vector<size_t> covered(segments.size(), 0);
  for (int member = 0; member < GetParam().members; ++member) {
    layout.ForEach(member, [&](const Segment& segment, const AdasumLayout::Shard& shard) {
      size_t& end = covered[static_cast<size_t>(&segment - segments.data())];
      EXPECT_EQ(shard.begin, end);
      end += shard.count;
    });
  }
  for (size_t i = 0; i < segments.size(); ++i) EXPECT_EQ(covered[i], segments[i].count);
}

TEST_P(AdasumLayoutTest, ShardsDoNotOverlapAndBeginWhereKernelsLikeIt) {
  const std::vector<Segment> segments = Segments();
  const AdasumLayout layout(absl::MakeConstSpan(segments), GetParam().members, GetParam().wire);
  for (int member = 0; member < GetParam().members; ++member) {
    size_t end = 0;
    layout.ForEach(member, [&](const Segment&, const AdasumLayout::Shard& shard) {
      EXPECT_GE(shard.offset, end);
      EXPECT_EQ(shard.offset * SizeOf(GetParam().wire) % 16, 0u);
      end = shard.offset + shard.count;
    });
    EXPECT_GE(layout.Elements(member), end);
    EXPECT_EQ(layout.Elements(member) * SizeOf(GetParam().wire) % 16, 0u);
    EXPECT_LT(layout.Elements(member), end + 16) << "no room is wasted";
  }
}

}  // namespace
}  // namespace ronda
