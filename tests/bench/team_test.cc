#include "bench/team.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace ronda::bench {
namespace {

constexpr int kRanks = 3;

// 0 if everything is as it should be on this rank.
int RunRank(int rank, const std::string& job_id) {
  const absl::StatusOr<std::unique_ptr<Team>> created = Team::Create({.rank = rank, .size = kRanks, .job_id = job_id});
  if (!created.ok()) return 1;
  Team& team = **created;
  if (team.rank() != rank || team.size() != kRanks || team.is_first() != (rank == 0)) return 2;
  if (team.Max(rank == 1 ? 7.5 : -rank) != 7.5) return 3;
  if (team.Sum(rank + 1) != 6) return 4;
  if (team.FromFirst(rank == 0 ? "a text of rank 0" : "something else") != "a text of rank 0") return 5;
  if (!team.FromFirst("").empty()) return 6;
  team.Barrier();
  return 0;
}

TEST(TeamTest, RanksAgreeOnNumbersAndTexts) {
  const std::string job_id = absl::StrCat("team-test-", getpid());
  std::vector<pid_t> children;
  for (int rank = 0; rank < kRanks; ++rank) {
    children.push_back(fork());
    if (children.back() == 0) _exit(RunRank(rank, job_id));
  }
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
}

TEST(TeamTest, ARankAloneIsATeam) {
  const absl::StatusOr<std::unique_ptr<Team>> alone = Team::Create({.rank = 0, .size = 1, .job_id = "alone"});
  ASSERT_TRUE(alone.ok());
  (*alone)->Barrier();
  EXPECT_EQ((*alone)->Max(-2.5), -2.5);
  EXPECT_EQ((*alone)->FromFirst("text"), "text");
}

TEST(ExitIfErrorTest, AnErrorEndsTheProcessWithItsText) {
  ExitIfError(absl::OkStatus());
  EXPECT_EXIT(ExitIfError(absl::InternalError("out of luck")), testing::ExitedWithCode(1), "ronda-bench: out of luck");
}

}  // namespace
}  // namespace ronda::bench
