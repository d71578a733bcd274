#include "bench/shapes/presets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace ronda::bench {
namespace {

using ::testing::HasSubstr;

ModelShapes Preset(const std::string& name) {
  const absl::StatusOr<ModelShapes> model = PresetShapes(name);
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? *model : ModelShapes{};
}

double WorkOf(const ModelShapes& model) {
  double work = 0;
  for (const Parameter& parameter : model.parameters) work += parameter.work;
  return work;
}

struct Published {
  const char* name;
  size_t tensors;
  int64_t elements;
};

class PublishedSizes : public ::testing::TestWithParam<Published> {};

TEST_P(PublishedSizes, TensorsAndElementsAreThoseOfTheModel) {
  const ModelShapes model = Preset(GetParam().name);
  EXPECT_EQ(model.parameters.size(), GetParam().tensors);
  EXPECT_EQ(model.count(), GetParam().elements);
}

INSTANTIATE_TEST_SUITE_P(All, PublishedSizes,
                         ::testing::Values(Published{"lenet", 10, 61706}, Published{"resnet50", 161, 25557032},
                                           Published{"resnet101", 314, 44549160}, Published{"vgg16", 32, 138357544},
                                           Published{"bert-large", 398, 336226108}, Published{"gpt2", 148, 124439808},
                                           Published{"many-small", 1000, 256000}),
                         [](const auto& info) {
                           std::string name = info.param.name;
                           name.erase(std::remove(name.begin(), name.end(), '-'), name.end());
                           return name;
                         });

// Multiply-adds of one forward pass as they are usually published: 4.1, 7.8 and 15.5 G.
TEST(Presets, WorkIsThatOfTheConvolutionsAndLayers) {
  EXPECT_NEAR(WorkOf(Preset("resnet50")) * 1e-9, 4.1, 0.1);
  EXPECT_NEAR(WorkOf(Preset("resnet101")) * 1e-9, 7.8, 0.1);
  EXPECT_NEAR(WorkOf(Preset("vgg16")) * 1e-9, 15.5, 0.1);
}

TEST(Presets, WorkOfTheTiedHeadComesBeforeTheFirstGradientAndThatOfTheTableNever) {
  for (const char* name : {"gpt2", "bert-large"}) {
    const ModelShapes model = Preset(name);
    EXPECT_EQ(model.parameters.front().work, 0) << name;
    EXPECT_GT(model.parameters.back().work, WorkOf(model) / 20) << name;
  }
}

TEST(Presets, ForwardOrderEndsWithTheClassifier) {
  EXPECT_EQ(Preset("resnet50").parameters.front().name, "stem.weight");
  EXPECT_EQ(Preset("resnet50").parameters.back().name, "classifier.bias");
  EXPECT_EQ(Preset("lenet").parameters.back().shape, (std::vector<int64_t>{10}));
}

TEST(Presets, NamesAreUnique) {
  for (const std::string& name : PresetNames()) {
    const ModelShapes model = Preset(name);
    std::set<std::string> names;
    for (const Parameter& parameter : model.parameters) names.insert(parameter.name);
    EXPECT_EQ(names.size(), model.parameters.size()) << name;
    EXPECT_FALSE(model.description.empty()) << name;
  }
}

TEST(Presets, UnknownNameIsAnsweredWithThoseThereAre) {
  const absl::Status status = PresetShapes("resnet5").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("there is no preset \"resnet5\"; there are lenet, resnet50"));
}

}  // namespace
}  // namespace ronda::bench
