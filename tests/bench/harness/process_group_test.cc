// SPDX-License-Identifier: Apache-2.0

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/harness/peers.h"
#include "bench/harness/process_group.h"

namespace ronda::bench {
namespace {

constexpr int kRanks = 3;

// Returns 0, or the number of the first check that fails on this rank.
int RunRank(int rank, const std::string& job_id) {
  const absl::StatusOr<std::unique_ptr<ProcessGroup>> created =
      ProcessGroup::Create({.rank = rank, .size = kRanks, .job_id = job_id});
  if (!created.ok()) return 1;
  ProcessGroup& group = **created;
  if (group.rank() != rank || group.size() != kRanks || group.is_first() != (rank == 0)) return 2;
  if (group.Max(rank == 1 ? 7.5 : -rank) != 7.5) return 3;
  if (group.Sum(rank + 1) != 6) return 4;
  if (group.FromFirst(rank == 0 ? "a text of rank 0" : "something else") != "a text of rank 0") return 5;
  if (!group.FromFirst("").empty()) return 6;
  group.Barrier();
  return 0;
}

TEST(ProcessGroupTest, RanksAgreeOnNumbersAndTexts) {
  const std::string job_id = absl::StrCat("group-test-", getpid());
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

TEST(ProcessGroupTest, ARankAloneIsAGroup) {
  const absl::StatusOr<std::unique_ptr<ProcessGroup>> alone =
      ProcessGroup::Create({.rank = 0, .size = 1, .job_id = "alone"});
  ASSERT_TRUE(alone.ok());
  (*alone)->Barrier();
  EXPECT_EQ((*alone)->Max(-2.5), -2.5);
  EXPECT_EQ((*alone)->FromFirst("text"), "text");
}

TEST(ExitIfErrorTest, AnErrorEndsTheProcessWithItsText) {
  ExitIfError(absl::OkStatus());
  EXPECT_EXIT(ExitIfError(absl::InternalError("out of luck")), testing::ExitedWithCode(1), "ronda-bench: out of luck");
}

TEST(KnownPeersTest, NamesAndLibrariesAreTheirOwn) {
  std::set<std::string> names, libraries;
  for (const PeerInfo& info : KnownPeers()) {
    EXPECT_TRUE(names.insert(info.name).second) << info.name;
    EXPECT_TRUE(libraries.insert(info.library).second) << info.library;
    EXPECT_EQ(FindPeer(info.name), &info);
  }
}

TEST(FindPeerTest, MpiIsOpenMpi) {
  EXPECT_EQ(FindPeer("mpi"), FindPeer("openmpi"));
  EXPECT_EQ(FindPeer("horovod"), nullptr);
}

TEST(PeerTest, APeerThatIsNotBuiltIsNamedWithTheWayToBuildIt) {
  const PeerInfo absent = {.name = "absent",
                           .title = "Absent MPI",
                           .library = "libabsent.so",
                           .packages = "libabsent1",
                           .build_package = "libabsent-dev"};
  const std::string message(CheckInstalled(absent).message());
  EXPECT_EQ(message.rfind("--peer absent: there is no libabsent.so in /", 0), 0U) << message;
  EXPECT_NE(message.find("make install and make deb build it from Ronda's sources where Debian's libabsent-dev is "
                         "installed"),
            std::string::npos)
      << message;
  const absl::StatusOr<std::unique_ptr<ProcessGroup>> alone =
      ProcessGroup::Create({.rank = 0, .size = 1, .job_id = "peer-test"});
  ASSERT_TRUE(alone.ok());
  EXPECT_TRUE(absl::IsNotFound(Peer::Load(absent, alone->get()).status()));
}

}  // namespace
}  // namespace ronda::bench
