// SPDX-License-Identifier: Apache-2.0

#include "programs/options/hosts.h"

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ronda {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(HostsTest, ListIsReadInOrder) {
  const auto hosts = ParseHosts("beta:2,alpha:1");
  ASSERT_TRUE(hosts.ok()) << hosts.status();
  EXPECT_THAT(*hosts, ElementsAre(HostSlots{"beta", 2}, HostSlots{"alpha", 1}));
}

TEST(HostsTest, SlotsOfAHostNamedTwiceAddUp) {
  const auto hosts = ParseHosts("a:2,b:1,a:3");
  ASSERT_TRUE(hosts.ok()) << hosts.status();
  EXPECT_THAT(*hosts, ElementsAre(HostSlots{"a", 5}, HostSlots{"b", 1}));
}

TEST(HostsTest, AddressesOfBothKindsAreRead) {
  const auto hosts = ParseHosts("10.0.0.1:2,[fd00::1]:3,[fe80::1%eth0]:1,[alpha]:1");
  ASSERT_TRUE(hosts.ok()) << hosts.status();
  EXPECT_THAT(*hosts, ElementsAre(HostSlots{"10.0.0.1", 2}, HostSlots{"fd00::1", 3}, HostSlots{"fe80::1%eth0", 1},
                                  HostSlots{"alpha", 1}));
}

TEST(HostsTest, UnknownFormsAreRefusedAndQuoted) {
  for (const char* text :
       {"", "localhost", "localhost:", ":2", "localhost:x", "localhost:0", "localhost:-1", "a:1:2", "a:1025",
        "a:9999999999", "fd00::1:2", "[fd00::1]", "[]:2", "[a:2", "-oProxyCommand=x:2", "a b:2", "a;b:2", "a$b:2"}) {
    const auto hosts = ParseHosts(text);
    EXPECT_EQ(hosts.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(hosts.status().message()),
                AllOf(HasSubstr("-H localhost:4"), HasSubstr("\"" + std::string(text) + "\"")));
  }
  EXPECT_THAT(std::string(ParseHosts("a:1,,b:1").status().message()), HasSubstr("\"\""));
}

TEST(HostsTest, AHostFileNamesAHostALine) {
  const auto hosts =
      ParseHostFile("hosts.txt", "# the cluster\n\nbeta slots=2\r\n  alpha\tslots=1  # old\nbeta slots=3");
  ASSERT_TRUE(hosts.ok()) << hosts.status();
  EXPECT_THAT(*hosts, ElementsAre(HostSlots{"beta", 5}, HostSlots{"alpha", 1}));
}

TEST(HostsTest, AHostFileIsReadAsOpenMpiAndMpichReadIt) {
  const std::vector<std::pair<std::string, HostSlots>> lines = {{"localhost", {"localhost", 1}},
                                                                {"localhost\nlocalhost\n", {"localhost", 2}},
                                                                {"localhost:2", {"localhost", 2}},
                                                                {"alpha slots = 2", {"alpha", 2}},
                                                                {"alpha slots= 2", {"alpha", 2}},
                                                                {"alpha slots =2", {"alpha", 2}},
                                                                {"alpha slots=2 max_slots=4", {"alpha", 2}},
                                                                {"alpha max-slots=2 slots=2", {"alpha", 2}},
                                                                {"alpha:2 max_slots=2", {"alpha", 2}},
                                                                {"fd00::1 slots=2", {"fd00::1", 2}},
                                                                {"fd00::1", {"fd00::1", 1}},
                                                                {"[fd00::1]:2", {"fd00::1", 2}},
                                                                {"\xEF\xBB\xBF"
                                                                 "alpha slots=2\r\n",
                                                                 {"alpha", 2}}};
  for (const auto& [line, host] : lines) {
    const auto hosts = ParseHostFile("hosts.txt", line);
    ASSERT_TRUE(hosts.ok()) << hosts.status();
    EXPECT_THAT(*hosts, ElementsAre(host)) << line;
  }
}

TEST(HostsTest, AWrongLineOfAHostFileIsQuotedWithItsNumberAndTheWordThatIsNotRead) {
  const std::vector<std::pair<std::string, std::string>> lines = {
      {"beta 2", "\"2\" is not read"},
      {"beta slots=", "\"slots=\" is not read"},
      {"beta slots=0", "\"slots=0\" is not read"},
      {"beta slots=x", "\"slots=x\" is not read"},
      {"beta slots=1025", "\"slots=1025\" is not read"},
      {"beta slots=1 slots=2", "\"slots=2\" is not read"},
      {"beta:2 slots=2", "\"slots=2\" is not read"},
      {"beta slots=2 user=me", "\"user=me\" is not read"},
      {"beta:0", "\"beta:0\" is not read"},
      {"beta:x", "\"beta:x\" is not read"},
      {"^beta", "\"^beta\" is not read"},
      {"-x slots=1", "\"-x\" is not read"},
      {"= slots=1", "\"=slots=1\" is not read"},
      {"beta max_slots=4", "max_slots needs slots"},
      {"beta slots=4 max_slots=2", "max_slots is less than slots"}};
  for (const auto& [line, reason] : lines) {
    const auto hosts = ParseHostFile("hosts.txt", "alpha slots=1\n" + line + " # note\n");
    EXPECT_EQ(hosts.status().code(), absl::StatusCode::kInvalidArgument) << line;
    EXPECT_EQ(std::string(hosts.status().message()),
              "hosts.txt:2: " + reason +
                  "; a line takes HOST slots=N with 1 to 1024 slots, for example alpha slots=4; got \"" + line + "\"");
  }
  EXPECT_EQ(std::string(ParseHostFile("hosts.txt", absl::string_view("\xFF\xFE"
                                                                     "a\0",
                                                                     4))
                            .status()
                            .message()),
            "hosts.txt: is UTF-16; save it as UTF-8");
}

TEST(HostsTest, AHostFileWithoutAHostIsRefused) {
  for (const char* content : {"", "\n\n", "# alpha slots=1\n"}) {
    EXPECT_THAT(std::string(ParseHostFile("hosts.txt", content).status().message()), HasSubstr("hosts.txt: no host"));
  }
}

TEST(HostsTest, HostsAreFilledInOrder) {
  const std::vector<HostSlots> hosts = {{"a", 2}, {"b", 3}, {"c", 1}};
  EXPECT_THAT(FillHosts(hosts, 1), ElementsAre(1, 0, 0));
  EXPECT_THAT(FillHosts(hosts, 4), ElementsAre(2, 2, 0));
  EXPECT_THAT(FillHosts(hosts, 9), ElementsAre(2, 3, 1));
}

TEST(HostsTest, ThisHostIsKnownByAllItsNames) {
  const std::vector<std::string> own = {"node7.cluster", "10.0.0.7", "fd00::7"};
  for (const char* name : {"localhost", "127.0.0.1", "::1", "node7", "node7.cluster", "10.0.0.7", "fd00::7"}) {
    EXPECT_TRUE(IsThisHost(name, own)) << name;
  }
  for (const char* name : {"", "node8", "node7.other", "10.0.0.8"}) EXPECT_FALSE(IsThisHost(name, own)) << name;
}

TEST(ParseDiscoveredHostsTest, ReadsALineAHost) {
  const auto hosts = ParseDiscoveredHosts("alpha:2\n\n# spare ones\n  beta  # slow\n[fd00::1]:3\n10.0.0.1", 4);
  ASSERT_TRUE(hosts.ok()) << hosts.status();
  EXPECT_THAT(*hosts, ElementsAre(HostSlots{"alpha", 2}, HostSlots{"beta", 4}, HostSlots{"fd00::1", 3},
                                  HostSlots{"10.0.0.1", 4}));
}

TEST(ParseDiscoveredHostsTest, LeavesOutHostsWithoutSlots) {
  const auto hosts = ParseDiscoveredHosts("alpha:2\nbeta:0\n[fd00::1]:0", 0);
  ASSERT_TRUE(hosts.ok()) << hosts.status();
  EXPECT_THAT(*hosts, ElementsAre(HostSlots{"alpha", 2}));
}

TEST(ParseDiscoveredHostsTest, RefusesWhatIsNoList) {
  for (const char* text :
       {"", "# none\n", "alpha", "alpha:0", "alpha:x", "alpha:-1", "-oProxyCommand=x:2", "alpha:2\nalpha:1", "a b"}) {
    EXPECT_EQ(ParseDiscoveredHosts(text, 0).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
  EXPECT_THAT(ParseDiscoveredHosts("alpha", 0).status().message(), HasSubstr("--slots-per-host; got \"alpha\""));
  EXPECT_THAT(ParseDiscoveredHosts("alpha:2\nalpha:1", 0).status().message(), HasSubstr("alpha is there twice"));
}

}  // namespace
}  // namespace ronda
