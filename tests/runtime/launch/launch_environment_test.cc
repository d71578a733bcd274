#include "runtime/launch/launch_environment.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ronda {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(LaunchEnvironmentTest, NamesEndAtTheFirstEqualsSign) {
  EXPECT_EQ(NameOf("A=b=c"), "A");
  EXPECT_EQ(NameOf("A"), "A");
  EXPECT_TRUE(ContainsName({"X=1", "AB=2"}, "AB"));
  EXPECT_FALSE(ContainsName({"X=1", "AB=2"}, "A"));
}

TEST(LaunchEnvironmentTest, PlaceInAnotherJobIsNotInherited) {
  EXPECT_THAT(
      InheritedVariables(
          {"RONDA_RANK=3", "HOME=/root", "RONDA_JOB_SECRET=x", "RONDA_MASTER_ADDR=a", "RONDA_LOG_LEVEL=debug"}, {}),
      ElementsAre("HOME=/root", "RONDA_LOG_LEVEL=debug"));
}

TEST(LaunchEnvironmentTest, SettingsReplaceWhatIsInherited) {
  EXPECT_THAT(InheritedVariables({"A=1", "B=2"}, {{"A", "3"}, {"C", "4"}}), ElementsAre("B=2", "A=3", "C=4"));
}

TEST(LaunchEnvironmentTest, OtherHostsGetWhatTheyNeed) {
  EXPECT_THAT(VariablesForOtherHosts(
                  {"HOME=/root", "PATH=/bin", "LD_LIBRARY_PATH=/lib", "RONDA_LOG_LEVEL=info", "NCCL_DEBUG=WARN",
                   "OMP_NUM_THREADS=1", "CUDA_VISIBLE_DEVICES=0", "MY=1", "FOO=2", "PATHS=3"},
                  {{"MY", "1"}}, {"FOO", "UNSET"}),
              ElementsAre("PATH=/bin", "LD_LIBRARY_PATH=/lib", "RONDA_LOG_LEVEL=info", "NCCL_DEBUG=WARN",
                          "OMP_NUM_THREADS=1", "CUDA_VISIBLE_DEVICES=0", "MY=1", "FOO=2"));
  EXPECT_THAT(VariablesForOtherHosts({"HOME=/root"}, {}, {}), IsEmpty());
}

TEST(LaunchEnvironmentTest, StartTimeoutIsTheRanksOwn) {
  EXPECT_EQ(StartTimeoutOf({"A=1", "RONDA_START_TIMEOUT=1m30s"}), absl::Seconds(90));
  for (const char* other : {"A=1", "RONDA_START_TIMEOUT=", "RONDA_START_TIMEOUT=-1s", "RONDA_START_TIMEOUT=soon"}) {
    EXPECT_EQ(StartTimeoutOf({other}), absl::Seconds(30)) << other;
  }
}

}  // namespace
}  // namespace ronda
