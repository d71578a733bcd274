#include "runtime/bootstrap/device_choice.h"

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

std::string Choose(const std::vector<DeviceFacts>& facts, const std::string& wanted = "") {
  const auto backend = ChooseDeviceBackend(RateDeviceBackends(facts), wanted);
  return backend.ok() ? std::string(Name(*backend)) : std::string(backend.status().message());
}

TEST(DeviceChoice, NcclIsBestWhereEachRankHasAGpu) {
  EXPECT_EQ(Choose({Facts("a", "1b"), Facts("a", "1c"), Facts("b", "1b")}), "nccl");
}

TEST(DeviceChoice, RanksThatShareAGpuAreStaged) {
  const std::vector<DeviceFacts> facts = {Facts("a", "1b"), Facts("b", "1b"), Facts("b", "1b")};
  EXPECT_EQ(Choose(facts), "staged");
  EXPECT_THAT(ToString(RateDeviceBackends(facts)),
              AllOf(HasSubstr("staged (score 100: "), HasSubstr("nccl (no: ranks 1 and 2 share a GPU")));
}

TEST(DeviceChoice, NcclHasToBeThereOnAllRanksInOneVersion) {
  EXPECT_EQ(Choose({Facts("a", "1b"), Facts("a", "1c", "")}), "staged");
  EXPECT_THAT(ToString(RateDeviceBackends({Facts("a", "1b"), Facts("a", "1c", "")})),
              HasSubstr("nccl (no: rank 1: no libnccl.so.2)"));
  EXPECT_THAT(ToString(RateDeviceBackends({Facts("a", "1b"), Facts("a", "1c", "2.18.3")})),
              HasSubstr("rank 0 has NCCL 2.28.9, rank 1 has 2.18.3"));
}

TEST(DeviceChoice, WhatIsWantedIsTakenOrRefused) {
  EXPECT_EQ(Choose({Facts("a", "1b"), Facts("a", "1c")}, "staged"), "staged");
  EXPECT_THAT(Choose({Facts("a", "1b"), Facts("a", "1b")}, "nccl"),
              AllOf(HasSubstr("RONDA_DEVICE_BACKEND=\"nccl\" cannot"), HasSubstr("share a GPU")));
}

TEST(DeviceChoice, FactsSurviveTheirWayAndLoseOnlyTheEndOfTheReason) {
  DeviceFacts facts = {.host = "h", .pci_bus = "0000:1b:00.0", .why_no_nccl = std::string(500, 'x'), .wanted = "nccl"};
  const std::string text = Encode(facts, 100);
  EXPECT_EQ(text.size(), 100u);
  facts.why_no_nccl.resize(DecodeDeviceFacts(text)->why_no_nccl.size());
  EXPECT_EQ(*DecodeDeviceFacts(text), facts);
  EXPECT_FALSE(DecodeDeviceFacts("h").ok());
}

TEST(DeviceChoice, EveryBackendHasAName) {
  for (const DeviceBackend backend : {DeviceBackend::kNccl, DeviceBackend::kStaged}) {
    EXPECT_EQ(DeviceBackendFromName(Name(backend)), backend);
  }
  EXPECT_EQ(DeviceBackendFromName("gloo"), std::nullopt);
}

}  // namespace
}  // namespace ronda
