#include "bench/peers/peer_library.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace ronda::bench {
namespace {

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

TEST(FindPeerFileTest, WhatIsNowhereHasNoPlace) { EXPECT_EQ(FindPeerFile("libabsent.so"), ""); }

TEST(PeerTest, APeerThatIsNotInstalledIsNamedWithItsPackages) {
  const PeerInfo absent = {
      .name = "absent", .title = "Absent MPI", .library = "libabsent.so", .packages = "libabsent-dev"};
  EXPECT_EQ(
      CheckInstalled(absent).message(),
      "--peer absent: Absent MPI cannot be used here (there is no libabsent.so, which make bench builds): install "
      "Debian's libabsent-dev");
  const absl::StatusOr<std::unique_ptr<Team>> alone = Team::Create({.rank = 0, .size = 1, .job_id = "peer-test"});
  ASSERT_TRUE(alone.ok());
  EXPECT_TRUE(absl::IsNotFound(Peer::Load(absent, alone->get()).status()));
}

}  // namespace
}  // namespace ronda::bench
