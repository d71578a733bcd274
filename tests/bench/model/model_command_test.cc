// SPDX-License-Identifier: Apache-2.0

#include <string>
#include <vector>

#include "bench/harness/command.h"
#include "gtest/gtest.h"
#include "runtime/base/files.h"

namespace ronda::bench {
namespace {

struct Outcome {
  int exit_code = 0;
  std::string out;
  std::string err;
};

Outcome RunModel(const std::vector<std::string>& words) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  Outcome outcome;
  outcome.exit_code = ModelCommand().run(words);
  outcome.out = testing::internal::GetCapturedStdout();
  outcome.err = testing::internal::GetCapturedStderr();
  return outcome;
}

bool Contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(ModelCommandTest, PrintsWhatWasPublishedAndWhatIsPredicted) {
  const Outcome outcome = RunModel({"--models", "resnet50", "--gbit", "25", "--ranks", "8,512"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_TRUE(Contains(outcome.out, "vgg16        512      C 68")) << outcome.out;
  EXPECT_TRUE(Contains(outcome.out, "# resnet50, 25 Gbit/s a host")) << outcome.out;
  EXPECT_TRUE(Contains(outcome.out, "negotiated")) << outcome.out;
  EXPECT_TRUE(Contains(outcome.out, "\n    512 ")) << outcome.out;
}

TEST(ModelCommandTest, WritesRowsForOtherTools) {
  const std::string path = testing::TempDir() + "model.json";
  const Outcome outcome = RunModel({"--models", "lenet", "--gbit", "25", "--ranks", "8", "--json", path});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const std::string json = ReadFile(path).value_or("");
  EXPECT_TRUE(Contains(json, "\"command\":\"model\"")) << json;
  EXPECT_TRUE(Contains(json, "\"published_efficiency\":0.68")) << json;
  EXPECT_TRUE(Contains(json, "\"model\":\"lenet\"")) << json;
  EXPECT_TRUE(Contains(json, "\"coordination\":\"cached\"")) << json;
}

TEST(ModelCommandTest, MeasuredLinkReplacesTheList) {
  const Outcome outcome = RunModel(
      {"--models", "lenet", "--link-gbit", "0.61", "--link-latency", "90us", "--ranks", "2", "--local-size", "1"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_TRUE(Contains(outcome.out, "# lenet, 0.61 Gbit/s a host")) << outcome.out;
  EXPECT_FALSE(Contains(outcome.out, "# lenet, 25 Gbit/s a host")) << outcome.out;
}

TEST(ModelCommandTest, RefusesWhatItDoesNotKnow) {
  const Outcome outcome = RunModel({"--models", "alexnet"});
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_TRUE(Contains(outcome.err, "alexnet")) << outcome.err;
}

}  // namespace
}  // namespace ronda::bench
