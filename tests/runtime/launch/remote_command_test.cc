#include "runtime/launch/remote_command.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ronda {
namespace {

using ::testing::ElementsAre;

TEST(RemoteCommandTest, SshAsksForNoPassword) {
  EXPECT_THAT(RemoteCommand({}, "h2", {"/opt/my ronda/rondarun", "--probe"}),
              ElementsAre("ssh", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=30", "-o", "ServerAliveInterval=10",
                          "h2", "exec '/opt/my ronda/rondarun' --probe"));
}

TEST(RemoteCommandTest, SshGetsItsPortAndKey) {
  RemoteOptions remote;
  remote.ssh_port = 2222;
  remote.ssh_identity_file = "/my key";
  EXPECT_THAT(RemoteCommand(remote, "h2", {"true"}),
              ElementsAre("ssh", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=30", "-o", "ServerAliveInterval=10",
                          "-p", "2222", "-i", "/my key", "h2", "exec true"));
}

TEST(RemoteCommandTest, AnAgentGetsTheHostAndTheCommandLine) {
  RemoteOptions remote;
  remote.agent = "/bin/agent";
  remote.ssh_port = 2222;
  EXPECT_THAT(RemoteCommand(remote, "h2", {"echo", "it's"}), ElementsAre("/bin/agent", "h2", "exec echo 'it'\\''s'"));
}

}  // namespace
}  // namespace ronda
