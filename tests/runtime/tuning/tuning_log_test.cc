#include "runtime/tuning/tuning_log.h"

#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ronda {
namespace {

using ::testing::HasSubstr;

constexpr TunedSettings kSettings = {
    .fusion_threshold = 4096, .min_bucket_bytes = 1024, .chunk_bytes = 0, .cycle_time = absl::ZeroDuration()};

std::string Contents(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

TEST(TuningLogTest, ARowASampleAndTheChoiceLast) {
  const std::string path = ::testing::TempDir() + "/tuning.csv";
  auto log = TuningLog::Create(path);
  ASSERT_TRUE(log.ok()) << log.status();
  const Autotuner::Measurement measurement = {.point = {0},
                                              .sample = Sample({10, 20, 30, 40, 50}),
                                              .stage = Autotuner::Stage::kDuel,
                                              .decision = Autotuner::Decision::kReplaced};
  EXPECT_TRUE((*log)->AddSample(13, measurement, kSettings).ok());
  EXPECT_TRUE((*log)->AddChoice(26, kSettings).ok());
  EXPECT_EQ(Contents(path),
            "rounds,stage,fusion_threshold_bytes,min_bucket_bytes,chunk_bytes,cycle_time_us,"
            "lower_quartile_us,median_us,upper_quartile_us,decision\n"
            "13,duel,4096,1024,0,0,20.0,30.0,40.0,replaced\n"
            "26,choice,4096,1024,0,0,,,,chosen\n")
      << "and all of it is in the file while the log is still open";
}

TEST(TuningLogTest, AFileThatCannotBeMadeIsNamed) {
  const auto log = TuningLog::Create("/nonexistent/tuning.csv");
  ASSERT_FALSE(log.ok());
  EXPECT_THAT(std::string(log.status().message()), HasSubstr("cannot create /nonexistent/tuning.csv"));
}

TEST(TuningLogTest, AFullDiskIsNamedWithTheFile) {
  auto log = TuningLog::Create("/dev/full");
  ASSERT_FALSE(log.ok()) << "the header does not fit";
  EXPECT_THAT(std::string(log.status().message()), HasSubstr("autotuner's log /dev/full"));
}

}  // namespace
}  // namespace ronda
