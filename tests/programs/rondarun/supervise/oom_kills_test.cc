// SPDX-License-Identifier: Apache-2.0

#include "programs/rondarun/supervise/oom_kills.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace ronda {
namespace {

// A host whose files the test writes.
class OomKillsTest : public ::testing::Test {
 protected:
  void Write(const std::string& path, const std::string& content) const {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << content;
  }
  ~OomKillsTest() override { std::filesystem::remove_all(root_); }

  const std::string root_ = absl::StrCat(::testing::TempDir(), "/oom_kills.", getpid());
};

TEST_F(OomKillsTest, CountsOfTheHostAndOfTheOwnGroup) {
  Write("/proc/vmstat", "oom_kill_something 9\noom_kill 7\nnr_free 1\n");
  Write("/proc/self/cgroup", "0::/job.slice/rondarun\n");
  Write("/sys/fs/cgroup/job.slice/rondarun/memory.events", "low 0\noom 4\noom_kill 3\noom_group_kill 2\n");
  Write("/sys/fs/cgroup/memory.events", "oom_kill 99\n");
  EXPECT_EQ(CountOomKills(root_), (OomKills{7, 3}));
}

TEST_F(OomKillsTest, GroupsOfTheFirstVersion) {
  Write("/proc/self/cgroup", "9:name=systemd:/\n4:cpu,memory:/box/1\n0::/\n");
  Write("/sys/fs/cgroup/memory/box/1/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n");
  EXPECT_EQ(CountOomKills(root_), (OomKills{0, 2}));
}

TEST_F(OomKillsTest, ContainerThatShowsItsOwnGroupAlone) {
  Write("/proc/self/cgroup", "0::/system.slice/docker-1234.scope\n");
  Write("/sys/fs/cgroup/memory.events", "oom_kill 1\n");
  EXPECT_EQ(CountOomKills(root_), (OomKills{0, 1}));
}

TEST_F(OomKillsTest, KernelThatSaysNothing) { EXPECT_EQ(CountOomKills(root_), OomKills()); }

TEST_F(OomKillsTest, DifferenceIsWhatHasHappenedSince) {
  EXPECT_EQ((OomKills{7, 3} - OomKills{5, 3}), (OomKills{2, 0}));
}

}  // namespace
}  // namespace ronda
