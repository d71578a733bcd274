#include "runtime/launch/hosts.h"

#include <string>

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

TEST(HostsTest, UnknownFormsAreRefusedAndQuoted) {
  for (const char* text :
       {"", "localhost", "localhost:", ":2", "localhost:x", "localhost:0", "localhost:-1", "a:1:2"}) {
    const auto hosts = ParseHosts(text);
    EXPECT_EQ(hosts.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(hosts.status().message()),
                AllOf(HasSubstr("-H localhost:4"), HasSubstr("\"" + std::string(text) + "\"")));
  }
  EXPECT_THAT(std::string(ParseHosts("a:1,,b:1").status().message()), HasSubstr("\"\""));
}

TEST(HostsTest, NamesOfThisHostAreAccepted) {
  for (const char* name : {"localhost", "127.0.0.1", "node7", "node7.cluster"}) {
    EXPECT_TRUE(RequireThisHost({{name, 1}}, "node7.cluster").ok()) << name;
  }
}

TEST(HostsTest, OtherHostsAreNotSupported) {
  const absl::Status status = RequireThisHost({{"localhost", 1}, {"node8", 1}}, "node7.cluster");
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("node8"), HasSubstr("several hosts are not supported by this version")));
}

}  // namespace
}  // namespace ronda
