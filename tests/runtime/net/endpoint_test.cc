// SPDX-License-Identifier: Apache-2.0

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/net/endpoint.h"

namespace ronda {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string Text(const absl::Status& status) { return std::string(status.message()); }

TEST(ResolveEndpointTest, LiteralAddresses) {
  const absl::StatusOr<Endpoint> ipv4 = ResolveEndpoint("127.0.0.1", 29500);
  ASSERT_TRUE(ipv4.ok()) << ipv4.status();
  EXPECT_EQ(NumericText(*ipv4), "127.0.0.1:29500");
  EXPECT_TRUE(ipv4->loopback);

  const absl::StatusOr<Endpoint> ipv6 = ResolveEndpoint("::1", 29500);
  ASSERT_TRUE(ipv6.ok()) << ipv6.status();
  EXPECT_EQ(NumericText(*ipv6), "[::1]:29500");
  EXPECT_EQ(ipv6->family, AddressFamily::kIPv6);
  EXPECT_TRUE(ipv6->loopback);

  const absl::StatusOr<Endpoint> remote = ResolveEndpoint("192.0.2.7", 1);
  ASSERT_TRUE(remote.ok()) << remote.status();
  EXPECT_FALSE(remote->loopback);
}

TEST(ResolveEndpointTest, NamesKeepTheirTextForMessages) {
  const absl::StatusOr<Endpoint> endpoint = ResolveEndpoint("localhost", 29500);
  ASSERT_TRUE(endpoint.ok()) << endpoint.status();
  EXPECT_EQ(ToString(*endpoint), "localhost:29500");
  EXPECT_TRUE(endpoint->loopback);
}

TEST(ResolveEndpointTest, ByAddressReturnsEachAddressAlone) {
  const Endpoint endpoint = {.host = "trainer",
                             .family = AddressFamily::kIPv6,
                             .address = "fd00::1",
                             .port = 29500,
                             .other_addresses = {"fd00::2", "fd00::3"}};
  std::vector<std::string> texts;
  for (const Endpoint& each : ByAddress(endpoint)) {
    EXPECT_THAT(each.other_addresses, IsEmpty());
    texts.push_back(NumericText(each));
  }
  EXPECT_THAT(texts, ElementsAre("[fd00::1]:29500", "[fd00::2]:29500", "[fd00::3]:29500"));
}

TEST(ResolveEndpointTest, OnlyAHostsOwnNameMovesFromLoopback) {
  for (const char* host : {"localhost", "127.0.0.1", "192.0.2.7"}) {
    const absl::StatusOr<Endpoint> endpoint = ResolveEndpoint(host, 29500);
    ASSERT_TRUE(endpoint.ok()) << endpoint.status();
    const absl::StatusOr<Endpoint> beyond = BeyondLoopback(*endpoint, {"no-such-interface"});
    ASSERT_TRUE(beyond.ok()) << beyond.status();
    EXPECT_EQ(beyond->address, endpoint->address);
  }
  const Endpoint own_name = {.host = "trainer", .address = "127.0.1.1", .port = 29500, .loopback = true};
  const absl::StatusOr<Endpoint> moved = BeyondLoopback(own_name, {"lo"});
  ASSERT_TRUE(moved.ok()) << moved.status();
  EXPECT_EQ(NumericText(*moved), "127.0.0.1:29500");
  EXPECT_EQ(ToString(*moved), "trainer:29500");
  EXPECT_EQ(BeyondLoopback(own_name, {"no-such-interface"}).status().code(), absl::StatusCode::kNotFound);
}

TEST(ResolveEndpointTest, UnknownHostIsNamed) {
  const absl::StatusOr<Endpoint> endpoint = ResolveEndpoint("no-such-host.invalid", 1);
  EXPECT_EQ(endpoint.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Text(endpoint.status()), HasSubstr("no-such-host.invalid"));
}

TEST(ResolveEndpointTest, AddressOfAllInterfacesIsRefused) {
  for (const char* host : {"0.0.0.0", "::", "0"}) {
    const absl::StatusOr<Endpoint> endpoint = ResolveEndpoint(host, 1);
    EXPECT_EQ(endpoint.status().code(), absl::StatusCode::kInvalidArgument) << host;
    EXPECT_THAT(Text(endpoint.status()), HasSubstr("all interfaces"));
  }
}

TEST(CheckSecretTest, OnlyLoopbackGoesWithoutSecret) {
  EXPECT_TRUE(CheckSecret({.host = "localhost", .loopback = true}, "").ok());
  EXPECT_TRUE(CheckSecret({.host = "192.0.2.7", .loopback = false}, "secret").ok());
  const absl::Status status = CheckSecret({.host = "192.0.2.7", .port = 5, .loopback = false}, "");
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Text(status), AllOf(HasSubstr("RONDA_JOB_SECRET"), HasSubstr("192.0.2.7:5")));
}

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Scope = InterfaceAddress::Scope;

constexpr AddressFamily kIPv4 = AddressFamily::kIPv4;
constexpr AddressFamily kIPv6 = AddressFamily::kIPv6;

const InterfaceAddress kLoopback4 = {"lo", kIPv4, "127.0.0.1", Scope::kHost};
const InterfaceAddress kLoopback6 = {"lo", kIPv6, "::1", Scope::kHost};
const InterfaceAddress kDocker = {"docker0", kIPv4, "172.17.0.1", Scope::kGlobal};
const InterfaceAddress kEth0 = {"eth0", kIPv4, "10.0.0.1", Scope::kGlobal};
const InterfaceAddress kEth0Six = {"eth0", kIPv6, "fd00::1", Scope::kGlobal};
const InterfaceAddress kEth0Link = {"eth0", kIPv6, "fe80::1", Scope::kLink};
const InterfaceAddress kIb0 = {"ib0", kIPv4, "192.168.1.1", Scope::kGlobal};

struct Case {
  const char* what;
  std::vector<InterfaceAddress> addresses;
  std::vector<std::string> names;
  std::string chosen;
};

TEST(NetworkInterfaceTest, ChoosesTheFirstThatLeadsElsewhereOrIsNamed) {
  const std::vector<Case> cases = {
      {"first that is not loopback", {kLoopback4, kEth0, kIb0}, {}, "10.0.0.1"},
      {"IPv4 before IPv6, of any interface", {kLoopback4, kEth0Six, kIb0}, {}, "192.168.1.1"},
      {"IPv6 if there is nothing else", {kLoopback4, kEth0Link, kEth0Six}, {}, "fd00::1"},
      {"bridges lead to nobody", {kDocker, kEth0}, {}, "10.0.0.1"},
      {"unless they are named", {kDocker, kEth0}, {"docker0"}, "172.17.0.1"},
      {"named", {kLoopback4, kEth0, kIb0}, {"ib0"}, "192.168.1.1"},
      {"first named that is there", {kLoopback4, kEth0, kIb0}, {"ib1", "ib0", "eth0"}, "192.168.1.1"},
      {"IPv4 of the named", {kEth0Six, kEth0}, {"eth0"}, "10.0.0.1"},
      {"IPv6 of the named", {kEth0Link, kEth0Six, kIb0}, {"eth0"}, "fd00::1"},
      {"loopback, if named", {kLoopback4, kEth0}, {"lo"}, "127.0.0.1"},
  };
  for (const Case& c : cases) {
    const absl::StatusOr<Endpoint> chosen = ChooseAddress(c.addresses, c.names);
    ASSERT_TRUE(chosen.ok()) << c.what << ": " << chosen.status();
    EXPECT_EQ(chosen->address, c.chosen) << c.what;
    EXPECT_EQ(chosen->port, 0);
  }
}

TEST(NetworkInterfaceTest, EndpointSaysFamilyAndReach) {
  EXPECT_EQ(ChooseAddress({kEth0Six}, {})->family, kIPv6);
  EXPECT_FALSE(ChooseAddress({kEth0Six}, {})->loopback);
  EXPECT_TRUE(ChooseAddress({kLoopback6}, {"lo"})->loopback);
}

TEST(NetworkInterfaceTest, ErrorsListWhatThereIs) {
  const absl::Status unknown = ChooseAddress({kLoopback4, kEth0}, {"ib0", "ib1"}).status();
  EXPECT_EQ(unknown.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(unknown.message()),
              AllOf(HasSubstr("RONDA_NETWORK_INTERFACE=\"ib0,ib1\""), HasSubstr("lo (127.0.0.1), eth0 (10.0.0.1)")));
  const absl::Status link_only = ChooseAddress({kEth0Link}, {"eth0"}).status();
  EXPECT_EQ(link_only.code(), absl::StatusCode::kNotFound);
  const absl::Status nowhere = ChooseAddress({kLoopback4, kDocker}, {}).status();
  EXPECT_THAT(std::string(nowhere.message()),
              AllOf(HasSubstr("leads to other hosts"), HasSubstr("docker0 (172.17.0.1)")));
  EXPECT_THAT(std::string(ChooseAddress({}, {}).status().message()), HasSubstr("has none"));
}

TEST(NetworkInterfaceTest, ThisHostHasLoopback) {
  const std::vector<InterfaceAddress> addresses = InterfaceAddresses();
  const absl::StatusOr<Endpoint> loopback = ChooseAddress(addresses, {"lo"});
  ASSERT_TRUE(loopback.ok()) << loopback.status();
  EXPECT_TRUE(loopback->loopback);
  EXPECT_EQ(loopback->address, "127.0.0.1");
}

}  // namespace

}  // namespace ronda
