// SPDX-License-Identifier: Apache-2.0

#include "runtime/backends/device_backends.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ronda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

DeviceFacts Facts(const std::string& host, const std::string& pci_bus, const std::string& nccl = "2.28.9") {
  return {.host = host, .pci_bus = pci_bus, .nccl = nccl, .why_no_nccl = nccl.empty() ? "no libnccl.so.2" : ""};
}

// Rates the device backends for ranks whose host communicator has one level.
std::string Rate(const std::vector<DeviceFacts>& facts) { return ToString(RateDeviceBackends({.facts = facts})); }

std::string NameOf(const absl::StatusOr<absl::string_view>& backend) {
  return std::string(backend.ok() ? *backend : backend.status().message());
}
std::string Choose(const std::vector<DeviceFacts>& facts, const std::string& wanted = "") {
  return NameOf(ChooseDeviceBackend(RateDeviceBackends({.facts = facts}), wanted));
}
std::string ChooseOn(const HostMap& hosts, const std::vector<DeviceFacts>& facts, const std::string& wanted = "") {
  return NameOf(ChooseDeviceBackend(RateDeviceBackends({.facts = facts, .hosts = &hosts}), wanted));
}

TEST(DeviceBackendsTest, NcclIsBestWhereEachRankHasAGpu) {
  EXPECT_EQ(Choose({Facts("a", "1b"), Facts("a", "1c"), Facts("b", "1b")}), "nccl");
  EXPECT_EQ(ChooseOn({.hosts = {{0, 1}, {2}}}, {Facts("a", "1b"), Facts("a", "1c"), Facts("b", "1b")}), "nccl");
}

TEST(DeviceBackendsTest, RanksThatShareAGpuAreStaged) {
  const std::vector<DeviceFacts> facts = {Facts("a", "1b"), Facts("b", "1b"), Facts("b", "1b")};
  EXPECT_EQ(Choose(facts), "staged");
  EXPECT_EQ(ChooseOn({.hosts = {{0}, {1, 2}}}, facts), "staged");
  EXPECT_THAT(Rate(facts), AllOf(HasSubstr("staged (score 100: "), HasSubstr("nccl (no: ranks 1 and 2 share a GPU")));
}

TEST(DeviceBackendsTest, DevicesWithOneUuidAreOneWhateverTheirHostsAreCalled) {
  std::vector<DeviceFacts> facts = {Facts("container1", "1b"), Facts("container2", "1b")};
  EXPECT_EQ(Choose(facts), "nccl");
  facts[0].uuid = "5c8a9b6e";
  facts[1].uuid = "0d1f7a33";
  EXPECT_EQ(Choose(facts), "nccl");
  facts[1].uuid = facts[0].uuid;
  EXPECT_EQ(Choose(facts), "staged");
  EXPECT_THAT(Rate(facts), HasSubstr("nccl (no: ranks 0 and 1 share a GPU"));
}

// The parts of a GPU (MIG) share the GPU's PCI bus, and each part has its own UUID.
TEST(DeviceBackendsTest, PartsOfOneGpuUseTheFirstNcclThatTellsThemApart) {
  for (const auto& [version, backend] : {std::pair("2.28.9", "staged"), std::pair("2.30.4", "staged"),
                                         std::pair("2.30.7", "nccl"), std::pair("2.100.0", "nccl")}) {
    std::vector<DeviceFacts> facts = {Facts("a", "1b", version), Facts("a", "1b", version)};
    EXPECT_EQ(Choose(facts), "staged") << "nothing tells them apart";
    facts[0].uuid = "part1";
    facts[1].uuid = "part2";
    EXPECT_EQ(Choose(facts), backend) << version;
    facts[1].uuid = "part1";
    EXPECT_EQ(Choose(facts), "staged") << "one part";
  }
}

TEST(DeviceBackendsTest, ObjectionToPartsNamesTheVersionThatAcceptsThem) {
  std::vector<DeviceFacts> facts = {Facts("a", "1b"), Facts("a", "1c"), Facts("a", "1b")};
  facts[0].uuid = "part1";
  facts[2].uuid = "part2";
  EXPECT_THAT(Rate(facts),
              HasSubstr("nccl (no: ranks 0 and 2 have parts of one GPU (MIG), which NCCL lets them from 2.30.7 on)"));
}

// The driver could not describe the devices, so nothing shows that two ranks share one.
TEST(DeviceBackendsTest, RanksWithDevicesOfUnknownPlaceShareNone) {
  EXPECT_EQ(Choose({Facts("a", ""), Facts("a", "")}), "nccl");
  EXPECT_EQ(Choose({Facts("a", ""), Facts("a", "1b"), Facts("a", "1b")}), "staged");
}

TEST(DeviceBackendsTest, NcclHasToBeThereOnAllRanksInOneVersion) {
  EXPECT_EQ(Choose({Facts("a", "1b"), Facts("a", "1c", "")}), "staged");
  EXPECT_THAT(Rate({Facts("a", "1b"), Facts("a", "1c", "")}), HasSubstr("nccl (no: rank 1: no libnccl.so.2)"));
  EXPECT_THAT(Rate({Facts("a", "1b"), Facts("a", "1c", "2.18.3")}),
              HasSubstr("rank 0 has NCCL 2.28.9, rank 1 has 2.18.3"));
}

// Tests hosts with different versions of NCCL, and simulated hosts whose ranks share the GPUs of one machine.
TEST(DeviceBackendsTest, NcclOnEachHostIsEnoughForTwoLevels) {
  const HostMap hosts = {.hosts = {{0, 2}, {1, 3}}};
  EXPECT_EQ(
      ChooseOn(hosts, {Facts("a", "1b"), Facts("b", "1b", "2.18.3"), Facts("a", "1c"), Facts("b", "1c", "2.18.3")}),
      "hierarchical-staged");
  EXPECT_EQ(ChooseOn(hosts, {Facts("a", "1b"), Facts("a", "1b"), Facts("a", "1c"), Facts("a", "1c")}),
            "hierarchical-staged");
}

TEST(DeviceBackendsTest, ObjectionOfOneHostIsOneToTwoLevels) {
  const HostMap hosts = {.hosts = {{0, 1}, {2, 3}}};
  const std::vector<DeviceFacts> differ = {Facts("a", "1b"), Facts("a", "1c"), Facts("b", "1b"),
                                           Facts("b", "1c", "2.18.3")};
  EXPECT_EQ(ChooseOn(hosts, differ), "staged");
  EXPECT_THAT(ChooseOn(hosts, differ, "hierarchical-staged"), HasSubstr("rank 2 has NCCL 2.28.9, rank 3 has 2.18.3"));
  const std::vector<DeviceFacts> lacks = {Facts("a", "1b"), Facts("a", "1c"), Facts("b", "1b"), Facts("b", "1c", "")};
  EXPECT_THAT(ChooseOn(hosts, lacks, "hierarchical-staged"), HasSubstr("rank 3: no libnccl.so.2"));
}

TEST(DeviceBackendsTest, NcclOnBothLevelsIsForWhoWantsItAndNeedsNcclBetweenAll) {
  const HostMap hosts = {.hosts = {{0, 1}, {2, 3}}};
  const std::vector<DeviceFacts> good = {Facts("a", "1b"), Facts("a", "1c"), Facts("b", "1b"), Facts("b", "1c")};
  EXPECT_EQ(ChooseOn(hosts, good, "hierarchical-nccl"), "hierarchical-nccl");
  EXPECT_EQ(ChooseOn(hosts, good, "hierarchical-staged"), "hierarchical-staged");
  const std::vector<DeviceFacts> shared = {Facts("a", "1b"), Facts("a", "1c"), Facts("a", "1b"), Facts("a", "1c")};
  EXPECT_THAT(ChooseOn(hosts, shared, "hierarchical-nccl"), HasSubstr("ranks 0 and 2 share a GPU"));
}

TEST(DeviceBackendsTest, TwoLevelsHaveToBeThere) {
  const std::vector<DeviceFacts> facts = {Facts("a", "1b"), Facts("b", "1b")};
  for (const char* wanted : {"hierarchical-staged", "hierarchical-nccl"}) {
    EXPECT_THAT(Choose(facts, wanted), HasSubstr("the ranks are on one host, or RONDA_BACKEND is not hierarchical"));
    EXPECT_THAT(ChooseOn({.hosts = {{0}, {1}}}, facts, wanted), HasSubstr("no host has more than one rank"));
  }
}

TEST(DeviceBackendsTest, RequestedBackendIsTakenOrRefused) {
  EXPECT_EQ(Choose({Facts("a", "1b"), Facts("a", "1c")}, "staged"), "staged");
  EXPECT_THAT(Choose({Facts("a", "1b"), Facts("a", "1b")}, "nccl"),
              AllOf(HasSubstr("RONDA_DEVICE_BACKEND=\"nccl\" cannot"), HasSubstr("share a GPU")));
}

TEST(DeviceBackendsTest, PeersAreForWhoWantsThemAndOnOneHost) {
  const std::vector<DeviceFacts> shared = {Facts("a", "1b"), Facts("a", "1b")};
  EXPECT_EQ(Choose(shared), "staged");
  EXPECT_EQ(Choose(shared, "peer"), "peer");
  EXPECT_EQ(Choose({Facts("a", "1b"), Facts("a", "1c")}), "nccl");
  EXPECT_EQ(Choose({Facts("a", "1b"), Facts("a", "1c")}, "peer"), "peer");
  EXPECT_THAT(Choose({Facts("a", "1b"), Facts("a", "1c"), Facts("b", "1b")}, "peer"),
              HasSubstr("ranks 0 and 2 are on different hosts"));
  EXPECT_THAT(Choose(std::vector<DeviceFacts>(33, Facts("a", "1b")), "peer"),
              HasSubstr("the job has 33 ranks, and at most 32 can map each other's memory"));
  std::vector<DeviceFacts> old = shared;
  old[1].why_no_peer = "operation not supported";
  EXPECT_THAT(Choose(old, "peer"), HasSubstr("rank 1: operation not supported"));
}

TEST(DeviceBackendsTest, FactsSurviveTheirWayAndLoseOnlyTheEndOfTheReason) {
  DeviceFacts facts = {.host = "h",
                       .pci_bus = "0000:1b:00.0",
                       .uuid = "5c8a9b6e",
                       .why_no_nccl = std::string(500, 'x'),
                       .wanted = "nccl",
                       .why_no_peer = "old",
                       .order = "ranks",
                       .windows = "symmetric",
                       .events = "boot/1/2",
                       .memory_mb = "512",
                       .gradient_mb = "256",
                       .in_place = "adjacent"};
  const std::string text = Encode(facts, 100);
  EXPECT_EQ(text.size(), 100u);
  facts.why_no_nccl.resize(DecodeDeviceFacts(text)->why_no_nccl.size());
  EXPECT_EQ(*DecodeDeviceFacts(text), facts);
  EXPECT_FALSE(DecodeDeviceFacts("h").ok());
}

TEST(DeviceBackendsTest, LongestFactsFit) {
  const DeviceFacts facts = {.host = std::string(110, 'h'),
                             .pci_bus = std::string(sizeof(ronda_cuda_device::pci_bus) - 1, '0'),
                             .uuid = std::string(sizeof(ronda_cuda_device::uuid) - 1, 'u'),
                             .nccl = "21474.83.64",
                             .wanted = "hierarchical-nccl",
                             .why_no_peer = std::string(100, 'x'),
                             .order = "ranks",
                             .windows = "symmetric",
                             .events = std::string(80, 'e'),
                             .memory_mb = "1048576",
                             .gradient_mb = "1048576",
                             .in_place = "adjacent"};
  const absl::StatusOr<DeviceFacts> decoded = DecodeDeviceFacts(Encode(facts, DeviceSupport::kLongestFacts));
  ASSERT_EQ(decoded.status(), absl::OkStatus());
  EXPECT_EQ(*decoded, facts);
  DeviceFacts longer = facts;
  longer.events = std::string(300, 'e');
  EXPECT_EQ(DecodeDeviceFacts(Encode(longer, DeviceSupport::kLongestFacts))->in_place, "adjacent");
}

// NCCL_HOSTID may be any text. Only the comparison of two hosts' texts counts.
TEST(DeviceBackendsTest, AnyTextMayIdentifyAHost) {
  const auto after_way = [](const std::string& host) {
    const absl::StatusOr<DeviceFacts> facts = DecodeDeviceFacts(Encode(Facts(host, "1b"), 320));
    EXPECT_EQ(facts.status(), absl::OkStatus());
    EXPECT_EQ(facts->pci_bus, "1b");
    EXPECT_EQ(facts->nccl, "2.28.9");
    return facts->host;
  };
  const std::string text(400, 'x');
  EXPECT_EQ(after_way(text), after_way(text));
  EXPECT_NE(after_way(text), after_way(text + "y"));
  EXPECT_EQ(after_way("rack 1\thost 2"), after_way("rack 1\thost 2"));
  EXPECT_NE(after_way("rack 1\thost 2"), after_way("rack 1\thost 3"));
}

TEST(DeviceBackendsTest, ReasonAgainstPeersMayHaveTabs) {
  DeviceFacts facts = Facts("a", "1b", "");
  facts.why_no_peer = "old\tdriver";
  const absl::StatusOr<DeviceFacts> decoded = DecodeDeviceFacts(Encode(facts, 320));
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(decoded->why_no_peer, "old driver");
  EXPECT_EQ(decoded->why_no_nccl, facts.why_no_nccl);
}

}  // namespace
}  // namespace ronda
