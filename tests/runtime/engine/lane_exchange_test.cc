// SPDX-License-Identifier: Apache-2.0

#include "runtime/engine/device/lane_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/runtime/engine/device_job.h"
#include "tests/runtime/engine/job.h"
#include "tests/runtime/engine/lane_calls.h"
#include "tests/testing/fake_nccl/load_fake_nccl.h"

namespace ronda::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Returns an exchange of floats between two adjacent buffers, with these element counts to and from each rank.
LaneExchange Alltoall(DeviceRank& rank, const DeviceTensor& input, const std::vector<size_t>& sends,
                      const DeviceTensor& output, const std::vector<size_t>& receives) {
  LaneExchange exchange = {.op = OpType::kAlltoall, .dtype = DType::kFloat32, .stream = rank.stream()};
  const auto add = [](void* data, const std::vector<size_t>& counts, std::vector<DirectPart>* parts) {
    auto* at = static_cast<float*>(data);
    for (const size_t count : counts) {
      parts->push_back({.data = count == 0 ? nullptr : at, .count = count});
      at += count;
    }
  };
  add(input.data(), sends, &exchange.sends);
  add(output.data(), receives, &exchange.receives);
  return exchange;
}

void MakeAndOrder(DeviceRank& rank, Calls& calls, const LaneExchange& exchange) {
  const auto handle = calls.lane().Exchange(exchange);
  ASSERT_EQ(handle.status(), absl::OkStatus());
  EXPECT_EQ((*handle)->OrderBefore(rank.stream()), absl::OkStatus());
}

TEST(LaneExchange, PartsOfDifferentSizesReachTheirRanks) {
  constexpr int kRanks = 3;
  RunDeviceRanks({.size = kRanks, .cuda = {.delay_seed = 3}}, [](DeviceRank& rank) {
    Calls calls(rank);
    const auto self = static_cast<size_t>(rank.rank());
    for (size_t step = 0; step < 5; ++step) {
      const auto count = [step](size_t from, size_t to) { return (from + 2 * to + step) % 4; };
      std::vector<size_t> sends, receives;
      std::vector<float> sent, expected;
      for (size_t peer = 0; peer < kRanks; ++peer) {
        sends.push_back(count(self, peer));
        receives.push_back(count(peer, self));
        sent.insert(sent.end(), sends.back(), static_cast<float>(100 * step + 10 * self + peer));
        expected.insert(expected.end(), receives.back(), static_cast<float>(100 * step + 10 * peer + self));
      }
      const size_t room = std::max<size_t>(expected.size(), 1);
      const DeviceTensor output(rank, std::vector<float>(room, -1));
      sent.resize(std::max<size_t>(sent.size(), 1));
      const DeviceTensor input(rank, sent);
      MakeAndOrder(rank, calls, Alltoall(rank, input, sends, output, receives));
      std::vector<float> received = output.Get<float>();
      received.resize(expected.size());
      EXPECT_EQ(received, expected) << "step " << step;
    }
    EXPECT_EQ(calls.lane().calls(), 5u);
  });
}

TEST(LaneExchange, GathersAndScattersOfOtherTypesUseTheCallersMemory) {
  RunDeviceRanks({.size = 2, .cuda = {.delay_seed = 4}}, [](DeviceRank& rank) {
    Calls calls(rank, AddSet(rank.runtime(), {0, 1}));
    DeviceTensor own(rank, std::vector<uint16_t>(3, static_cast<uint16_t>(rank.rank() + 1)));
    const DeviceTensor first(rank, std::vector<uint16_t>(3, 9)), second(rank, std::vector<uint16_t>(3, 9));
    const bool is_root = rank.rank() == 1;
    const DirectPart mine = {.data = own.data(), .count = 3};
    const std::vector<DirectPart> rooms = {{.data = first.data(), .count = 3}, {.data = second.data(), .count = 3}};
    const std::vector<DirectPart> nothing(2);
    LaneExchange exchange = {.op = OpType::kGather,
                             .dtype = DType::kInt16,
                             .root = 1,
                             .sends = {{}, mine},
                             .receives = is_root ? rooms : nothing,
                             .stream = rank.stream()};
    MakeAndOrder(rank, calls, exchange);
    EXPECT_THAT(first.Get<uint16_t>(), Each(is_root ? 1 : 9));
    EXPECT_THAT(second.Get<uint16_t>(), Each(is_root ? 2 : 9));
    exchange.op = OpType::kScatter;
    exchange.sends = is_root ? std::vector<DirectPart>{rooms[1], rooms[0]} : nothing;
    exchange.receives = {{}, mine};
    own.Set(std::vector<uint16_t>(3, 0));
    MakeAndOrder(rank, calls, exchange);
    EXPECT_THAT(own.Get<uint16_t>(), Each(is_root ? 1 : 2));
  });
}

TEST(LaneExchange, TheOwnPartMayStayInItsPlace) {
  RunDeviceRanks({.size = 2}, [](DeviceRank& rank) {
    Calls calls(rank);
    const DeviceTensor tensor(rank, std::vector<float>{4, 5});
    const DirectPart whole = {.data = tensor.data(), .count = 2};
    LaneExchange exchange = {.dtype = DType::kFloat32, .stream = rank.stream()};
    exchange.sends.resize(2);
    exchange.receives.resize(2);
    exchange.sends[static_cast<size_t>(rank.rank())] = exchange.receives[static_cast<size_t>(rank.rank())] = whole;
    MakeAndOrder(rank, calls, exchange);
    EXPECT_THAT(tensor.Get<float>(), ElementsAre(4, 5));
  });
}

TEST(LaneExchange, CallsOfTheLaneBeforeAndAfterKeepTheirOrder) {
  RunDeviceRanks({.size = 2, .cuda = {.delay_seed = 5}}, [](DeviceRank& rank) {
    Calls calls(rank);
    const DeviceTensor a(rank, std::vector<float>(4, static_cast<float>(rank.rank() + 1)));
    const DeviceTensor b(rank, std::vector<float>(4, -1));
    ASSERT_EQ(calls.Make(DeviceSum("", rank, a, 4)).status(), absl::OkStatus());
    ASSERT_EQ(calls.lane().Exchange(Alltoall(rank, a, {2, 2}, b, {2, 2})).status(), absl::OkStatus());
    ASSERT_EQ(calls.Make(DeviceSum("", rank, b, 4)).status(), absl::OkStatus());
    EXPECT_EQ(calls.lane().OrderBefore(rank.stream()), absl::OkStatus());
    EXPECT_THAT(a.Get<float>(), Each(3));
    EXPECT_THAT(b.Get<float>(), Each(6));
  });
}

// Makes the exchange, and returns the failure of the job, which may come only after the exchange has ended.
absl::Status FailureAfter(DeviceRank& rank, Calls& calls, const LaneExchange& exchange) {
  const absl::Status status = Calls::StatusOf(calls.lane().Exchange(exchange));
  if (!status.ok()) return status;
  while (rank.runtime().failure().ok()) std::this_thread::yield();
  return rank.runtime().failure();
}

// Rank 1 receives less than rank 0 sends. NCCL hangs, or ends the call with wrong bytes.
TEST(LaneExchange, CountsThatDifferAreReportedWithBothNumbers) {
  RunDeviceRanks({.size = 2, .expects_failure = true}, [](DeviceRank& rank) {
    Calls calls(rank);
    DeviceTensor& input = rank.Keep(std::vector<float>(8, 1));
    DeviceTensor& output = rank.Keep(std::vector<float>(8, 1));
    const LaneExchange exchange = rank.rank() == 0 ? Alltoall(rank, input, {0, 5}, output, {0, 2})
                                                   : Alltoall(rank, input, {2, 0}, output, {4, 0});
    const absl::Status status = FailureAfter(rank, calls, exchange);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("in call 1 of lane 0, alltoall: rank 0 sends 5 elements to rank 1, which receives 4"));
    EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << "the job does not go on";
  });
  while (!PopFakeNcclReport().empty()) {
  }
}

// Rank 0's send finishes, because the data fits into NCCL's buffers. Rank 1 has nothing to do.
TEST(LaneExchange, CountsThatDifferFailTheJobThoughNoDeviceWaits) {
  RunDeviceRanks({.size = 2, .expects_failure = true}, [](DeviceRank& rank) {
    Calls calls(rank);
    DeviceTensor& input = rank.Keep(std::vector<float>(8, 1));
    DeviceTensor& output = rank.Keep(std::vector<float>(8, 1));
    const LaneExchange exchange = Alltoall(rank, input, {0, rank.rank() == 0 ? 5u : 0u}, output, {0, 0});
    EXPECT_THAT(std::string(FailureAfter(rank, calls, exchange).message()),
                HasSubstr("rank 0 sends 5 elements to rank 1, which receives 0"));
  });
  while (!PopFakeNcclReport().empty()) {
  }
}

TEST(LaneExchange, OtherOperationsAndTypesAreReportedWithBothCalls) {
  RunDeviceRanks({.size = 2, .expects_failure = true}, [](DeviceRank& rank) {
    Calls calls(rank);
    DeviceTensor& input = rank.Keep(std::vector<float>(8, 1));
    DeviceTensor& output = rank.Keep(std::vector<float>(8, 1));
    LaneExchange exchange = Alltoall(rank, input, {1, 1}, output, {1, 1});
    if (rank.rank() == 1) {
      exchange.op = OpType::kGather;
      exchange.dtype = DType::kUint8;
    }
    EXPECT_THAT(std::string(Calls::StatusOf(calls.lane().Exchange(exchange)).message()),
                AllOf(HasSubstr("rank 0 has called alltoall (parts of float32)"),
                      HasSubstr("rank 1 has called gather (parts of uint8 to rank 0)")));
  });
  while (!PopFakeNcclReport().empty()) {
  }
}

TEST(LaneExchange, WrongPartsAreRefusedBeforeTheCall) {
  RunDeviceRanks({.size = 2}, [](DeviceRank& rank) {
    Calls calls(rank);
    const DeviceTensor tensor(rank, std::vector<float>(8, 1));
    const DeviceTensor output(rank, std::vector<float>(8, 1));
    const auto text = [&](const LaneExchange& exchange) {
      const absl::Status status = calls.lane().Exchange(exchange).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
      return std::string(status.message());
    };
    const LaneExchange right = Alltoall(rank, tensor, {2, 2}, output, {2, 2});
    LaneExchange wrong = right;
    wrong.sends.pop_back();
    EXPECT_EQ(text(wrong), "alltoall: sends has 1 parts for 2 ranks: pass one for each");
    wrong = right;
    wrong.receives[1].data = nullptr;
    EXPECT_EQ(text(wrong), "alltoall: receives[1], for rank 1, is null, but has 2 elements");
    wrong = right;
    wrong.sends[0].count = SIZE_MAX / 2;
    EXPECT_THAT(text(wrong), HasSubstr("sends[0], for rank 0, has more bytes than 64 bits can count"));
    wrong = right;
    wrong.receives[1].data = static_cast<float*>(tensor.data()) + 1;
    EXPECT_THAT(text(wrong), AllOf(HasSubstr("overlaps what it"), HasSubstr(": pass disjoint buffers")));
    wrong = right;
    wrong.receives[1].data = wrong.receives[0].data;
    EXPECT_THAT(text(wrong), HasSubstr("overlaps what it receives from rank"));
    wrong = Alltoall(rank, tensor, {2, 2}, output, {3, 3});
    EXPECT_THAT(text(wrong), HasSubstr("elements to itself, but receives 3: pass the same number"));
    wrong = right;
    wrong.op = OpType::kScatter;
    wrong.root = 5;
    EXPECT_THAT(text(wrong), HasSubstr("scatter: root 5 is not in the process set, whose ranks are 0, 1"));
    std::vector<float> host(2);
    wrong = right;
    wrong.sends[0].data = host.data();
    EXPECT_THAT(text(wrong), HasSubstr("a buffer of it is in the host's"));
    EXPECT_EQ(calls.lane().calls(), 0u);
    MakeAndOrder(rank, calls, right);
  });
}

// Returns the texts for such parts.
std::vector<FlightEvent> EventsOf(const std::vector<PartRecord>& records) {
  std::byte memory = {};  // stands for the lane's memory
  std::vector<DirectPart> parts;
  for (const PartRecord& record : records) {
    parts.push_back({.data = record.is_in_memory ? &memory : nullptr, .count = record.count});
  }
  std::vector<FlightEvent> events;
  const auto in_memory = [&](const void* data) { return data == &memory; };
  DescribeParts("call 17 of lane 1", PartWay::kSends, parts, in_memory, [&](absl::string_view text) {
    EXPECT_LE(text.size(), FlightRecorder::kNameBytes);
    events.push_back({.name = std::string(text)});
  });
  return events;
}

TEST(LaneExchange, TheRecorderGetsEveryCount) {
  const std::vector<FlightEvent> few = EventsOf({{40}, {40}, {40, true}, {40, true}, {3, true}, {0}, {0, true}});
  ASSERT_EQ(few.size(), 1u);
  EXPECT_EQ(few[0].name, "call 17 of lane 1 sends to 0 on: 40x2 40mx2 3m 0x2");
  std::vector<PartRecord> records;
  for (size_t i = 0; i < 300; ++i) records.push_back({i % 5 == 0 ? 7 : i * 1'000'003, i % 3 == 0 && i > 0});
  const std::vector<FlightEvent> many = EventsOf(records);
  for (size_t i = 0; i < records.size(); ++i) {
    EXPECT_EQ(FindPart(many, "call 17 of lane 1", PartWay::kSends, static_cast<int>(i)), records[i]) << i;
  }
  EXPECT_EQ(FindPart(many, "call 17 of lane 1", PartWay::kSends, 300), std::nullopt);
  EXPECT_EQ(FindPart(many, "call 17 of lane 1", PartWay::kReceives, 0), std::nullopt);
  EXPECT_EQ(FindPart(many, "call 1 of lane 1", PartWay::kSends, 0), std::nullopt);
}

TEST(LaneExchange, TextsThatAreNotItsOwnHaveNoCount) {
  for (const char* const text : {"call 17 of lane 1 sends to ", "call 17 of lane 1 sends to x on: 5",
                                 "call 17 of lane 1 sends to 0 on: y", "call 17 of lane 1 sends to 0 on: 5xz"}) {
    const std::vector<FlightEvent> events = {{.name = text}};
    EXPECT_EQ(FindPart(events, "call 17 of lane 1", PartWay::kSends, 0), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace ronda::testing
