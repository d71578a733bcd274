// SPDX-License-Identifier: Apache-2.0

#include "client/ronda/training/gradients.hpp"

#include <cstdint>
#include <limits>
#include <vector>

#include "client/ronda.hpp"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using namespace ronda::training;  // NOLINT(google-build-using-namespace)

TEST(GradientsTest, AreClippedToTheirGlobalNorm) {
  std::vector<float> a = {3, 0};
  std::vector<double> b = {4};
  const std::vector<ronda::Tensor> gradients = {ronda::tensor("a", a), ronda::tensor("b", b)};
  EXPECT_EQ(global_norm(gradients), 5);
  EXPECT_EQ(clip_by_global_norm(gradients, 10), 5);
  EXPECT_THAT(a, ElementsAre(3, 0));
  EXPECT_EQ(clip_by_global_norm(gradients, 2.5), 5);
  EXPECT_THAT(a, ElementsAre(1.5f, 0));
  EXPECT_THAT(b, ElementsAre(2));
}

TEST(GradientsTest, ANormThatIsNotFiniteLeavesThem) {
  std::vector<float> a = {std::numeric_limits<float>::infinity(), 1};
  EXPECT_EQ(clip_by_global_norm({ronda::tensor("a", a)}, 1), std::numeric_limits<double>::infinity());
  EXPECT_EQ(a[1], 1);
}

TEST(GradientsTest, TheNormOfShardsIsOverTheRanksOfTheirSet) {
  ronda::run_threads(3, [] {
    const ronda::ProcessSet set = ronda::add_process_set({0, 2});
    if (ronda::rank() == 1) return;
    std::vector<float> shard = {ronda::rank() == 0 ? 3.0f : 4.0f};
    EXPECT_EQ(clip_by_global_norm({ronda::tensor("shard", shard)}, 1, set), 5);
    EXPECT_FLOAT_EQ(shard[0], ronda::rank() == 0 ? 0.6f : 0.8f);
  });
}

TEST(GradientsTest, GradientWithoutElementsToReadIsNamed) {
  float value = 0;
  const ronda::Tensor null = ronda::tensor("null", static_cast<float*>(nullptr), {3});
  EXPECT_THAT(try_global_norm({null}).status().message(),
              HasSubstr("gradient 'null' has a null pointer, and elements"));
  EXPECT_THAT(try_scale_gradients({ronda::tensor("negative", &value, {-1})}, 2).message(),
              HasSubstr("gradient 'negative' has a shape with a negative dimension"));
  EXPECT_EQ(try_global_norm({ronda::tensor<float>("none", nullptr, {0})}).value(), 0);
}

TEST(GradientsTest, OtherDtypesAndMemoriesAreRefusedByName) {
  std::vector<std::int32_t> whole(3);
  ronda::Tensor wrong = ronda::tensor("whole", whole);
  EXPECT_THAT(try_global_norm({wrong}).status().message(), HasSubstr("gradient 'whole' is neither of float32"));
  wrong.memory = RONDA_MEMORY_CUDA;
  EXPECT_THAT(try_scale_gradients({wrong}, 2).message(), HasSubstr("gradient 'whole' is in a GPU's memory"));
  EXPECT_EQ(try_clip_by_global_norm({}, 0).status().code(), RONDA_ERROR_INVALID_ARGUMENT);
}

}  // namespace
