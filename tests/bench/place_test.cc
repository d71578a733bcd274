#include "bench/place.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>

namespace ronda::bench {
namespace {

absl::StatusOr<std::optional<Place>> Find(const std::map<std::string, std::string>& variables, int parent = 77) {
  return FindPlace(
      [&](const char* name) -> std::optional<std::string> {
        const auto found = variables.find(name);
        if (found == variables.end()) return std::nullopt;
        return found->second;
      },
      parent);
}

TEST(FindPlaceTest, NoLauncherMeansNoPlace) { EXPECT_EQ(*Find({{"HOME", "/root"}}), std::nullopt); }

TEST(FindPlaceTest, RondarunNamesTheJob) {
  const auto place = Find({{"RONDA_RANK", "1"}, {"RONDA_SIZE", "4"}, {"RONDA_JOB_ID", "abc"}});
  ASSERT_TRUE(place.ok() && place->has_value());
  EXPECT_EQ((*place)->rank, 1);
  EXPECT_EQ((*place)->size, 4);
  EXPECT_EQ((*place)->job_id, "abc");
  EXPECT_EQ((*place)->launcher, Launcher::kRondarun);
}

TEST(FindPlaceTest, RanksOfAnMpiLauncherMeetUnderTheirParent) {
  const auto openmpi = Find({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}});
  ASSERT_TRUE(openmpi.ok() && openmpi->has_value());
  EXPECT_EQ((*openmpi)->job_id, "bench-77");
  EXPECT_EQ((*openmpi)->launcher, Launcher::kOpenMpi);
  const auto mpich = Find({{"PMI_RANK", "3"}, {"PMI_SIZE", "4"}});
  ASSERT_TRUE(mpich.ok() && mpich->has_value());
  EXPECT_EQ((*mpich)->rank, 3);
  EXPECT_EQ((*mpich)->launcher, Launcher::kMpich);
}

TEST(FindPlaceTest, RanksOnSeveralHostsOrWithABackendOfTheirOwnMeetAsInitDoes) {
  using Meeting = Place::Meeting;
  std::map<std::string, std::string> variables = {
      {"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
  EXPECT_EQ((**Find(variables)).meeting, Meeting::kInMemory);
  variables["RONDA_BACKEND"] = "shm";
  EXPECT_EQ((**Find(variables)).meeting, Meeting::kInMemory);
  variables["RONDA_BACKEND"] = "mpi";
  EXPECT_EQ((**Find(variables)).meeting, Meeting::kAsInitDoes);
  variables["RONDA_BACKEND"] = "tcp";
  EXPECT_EQ((**Find(variables)).meeting, Meeting::kAsInitDoes);
  variables.erase("RONDA_BACKEND");
  variables["OMPI_COMM_WORLD_LOCAL_SIZE"] = "1";
  EXPECT_EQ((**Find(variables)).meeting, Meeting::kAsInitDoes);
  EXPECT_EQ((**Find({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"MPI_LOCALNRANKS", "1"}})).meeting, Meeting::kAsInitDoes);
}

TEST(FindPlaceTest, NonsenseFromALauncherIsAnError) {
  EXPECT_EQ(Find({{"RONDA_RANK", "x"}, {"RONDA_SIZE", "4"}}).status().message(),
            "RONDA_RANK=\"x\" is no number from 0 up");
  EXPECT_EQ(Find({{"PMI_RANK", "0"}}).status().message(), "PMI_SIZE=\"\" is no number from 0 up");
  EXPECT_EQ(Find({{"RONDA_RANK", "4"}, {"RONDA_SIZE", "4"}}).status().message(), "RONDA_RANK=4, but RONDA_SIZE=4");
}

TEST(DescribeJobToRondaTest, LeavesThoseWhoMeetAsInitDoesToTheirLauncher) {
  unsetenv("RONDA_RANK");
  DescribeJobToRonda({.rank = 2, .size = 3, .job_id = "job", .meeting = Place::Meeting::kAsInitDoes}, "");
  EXPECT_EQ(ProcessVariables()("RONDA_RANK"), std::nullopt);
}

TEST(DescribeJobToRondaTest, SetsWhatRondarunWouldHave) {
  DescribeJobToRonda({.rank = 2, .size = 3, .job_id = "job"}, "-again");
  const ReadVariable variable = ProcessVariables();
  EXPECT_EQ(variable("RONDA_RANK"), "2");
  EXPECT_EQ(variable("RONDA_SIZE"), "3");
  EXPECT_EQ(variable("RONDA_JOB_ID"), "job-again");
  EXPECT_EQ(variable("RONDA_NO_SUCH_VARIABLE"), std::nullopt);
}

}  // namespace
}  // namespace ronda::bench
