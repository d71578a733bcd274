// SPDX-License-Identifier: Apache-2.0

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "bench/harness/model_shapes.h"

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

// The figures usually published for one forward pass are 4.1, 7.8 and 15.5 billion multiply-adds.
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

std::string ErrorOf(const std::string& text) {
  const absl::Status status = ParseShapes(text, "model.txt").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST(ShapeFile, ALineIsATensor) {
  const absl::StatusOr<ModelShapes> model =
      ParseShapes("# forward order\nconv.weight 64 3\t7 7\r\n\n  scale   # a scalar\nfc.bias 10", "model.txt");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->name, "model.txt");
  ASSERT_EQ(model->parameters.size(), 3u);
  EXPECT_EQ(model->parameters[0].name, "conv.weight");
  EXPECT_EQ(model->parameters[0].shape, (std::vector<int64_t>{64, 3, 7, 7}));
  EXPECT_EQ(model->parameters[0].work, 64 * 3 * 7 * 7);
  EXPECT_EQ(model->parameters[1].count(), 1);
  EXPECT_EQ(model->count(), 64 * 3 * 7 * 7 + 1 + 10);
}

TEST(ShapeFile, ErrorsNameFileAndLine) {
  EXPECT_EQ(ErrorOf("a 1\nb 2 x\n"), "model.txt:2: a dimension is a number of 1 or more, not \"x\"");
  EXPECT_EQ(ErrorOf("a 0\n"), "model.txt:1: a dimension is a number of 1 or more, not \"0\"");
  EXPECT_EQ(ErrorOf("a -3\n"), "model.txt:1: a dimension is a number of 1 or more, not \"-3\"");
  EXPECT_EQ(ErrorOf("a 99999999999999999999\n"),
            "model.txt:1: a dimension is a number of 1 or more, not \"99999999999999999999\"");
  EXPECT_EQ(ErrorOf("a 1\n\na 2\n"), "model.txt:3: tensor 'a' is there already");
  EXPECT_EQ(ErrorOf("a 1048576 1048577\n"), "model.txt:1: tensor 'a' has more than 1099511627776 elements");
  EXPECT_EQ(ErrorOf("# nothing\n"), "model.txt:2: there is no tensor in this file");
}

TEST(ShapeFile, IsReadFromDisk) {
  const std::string path = std::string(std::getenv("TEST_TMPDIR")) + "/shapes.txt";
  std::ofstream(path) << "w 2 3\n";
  const absl::StatusOr<ModelShapes> model = ReadShapes(path);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->count(), 6);
  EXPECT_EQ(ReadShapes(path + ".absent").status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace ronda::bench
