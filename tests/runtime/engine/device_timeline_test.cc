// SPDX-License-Identifier: Apache-2.0

// Tests how a timeline shows the device work of each bucket, with times of the devices' own clocks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>
#include <deque>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/time.h"
#include "runtime/monitor/flight_recorder.h"
#include "runtime/monitor/timeline/trace.h"
#include "tests/runtime/engine/device_job.h"
#include "tests/runtime/engine/job.h"
#include "tests/runtime/monitor/timeline/trace_reader.h"

namespace ronda::testing {
namespace {

using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using ::testing::Not;

constexpr int kRanks = 3;
constexpr double kRounding = 0.002;  // us
constexpr int kSteps = 12;           // the later ones have a locked schedule and open votes

double Microseconds(FlightTime time) { return absl::ToDoubleMicroseconds(time); }

// Returns the spans in the row of a rank's device, which must be sorted by time.
std::vector<TraceEvent> DeviceSpans(const std::string& path, RankId rank) {
  const auto events = ReadTraceFile(PathOfRank(path, rank));
  EXPECT_TRUE(events.has_value());
  if (!events.has_value()) return {};
  EXPECT_EQ(Overlap(*events), "");
  std::vector<TraceEvent> spans;
  for (const TraceEvent& event : *events) {
    if (event.tid != RowOf(*events, absl::StrCat("cuda:", rank)) || event.ph != "X") continue;
    if (!spans.empty()) {
      EXPECT_LE(spans.back().ts, event.ts + kRounding);
    }
    spans.push_back(event);
  }
  return spans;
}

class DeviceTimeline : public ::testing::TestWithParam<std::string> {
 protected:
  std::string path() const {
    return absl::StrCat(::testing::TempDir(), absl::StrReplaceAll(GetParam(), {{"-", "_"}}), ".json");
  }
  void Run(const std::function<void(DeviceRank& rank)>& body) {
    RunDeviceRanks({.size = kRanks, .backend = GetParam(), .hosts = HostsFor(GetParam(), kRanks)}, body);
  }
};

INSTANTIATE_TEST_SUITE_P(Backends, DeviceTimeline,
                         ::testing::Values("nccl", "hierarchical-staged", "staged", "hierarchical-nccl", "peer"),
                         [](const auto& backend) {
                           return absl::StrReplaceAll(backend.param, {{"-", "_"}});
                         });

void Step(DeviceRank& rank, std::deque<DeviceTensor>& tensors) {
  std::vector<Submission> submissions;
  for (DeviceTensor& tensor : tensors) {
    submissions.push_back(DeviceSum(absl::StrCat("x", submissions.size()), rank, tensor, 100));
  }
  const auto handles = SubmitAll(rank.runtime(), submissions);
  ASSERT_TRUE(handles.ok()) << handles.status();
  for (const auto& handle : *handles) EXPECT_EQ(handle->Wait(), absl::OkStatus());
}

// A profiler sees one range for each bucket that a rank enqueues on its device.
TEST_P(DeviceTimeline, RangesOfTheHostAreNamedLikeTheSpans) {
  std::vector<std::string> ranges;
  std::barrier all_have_trained(kRanks);
  Run([&](DeviceRank& rank) {
    std::deque<DeviceTensor> tensors;
    for (int i = 0; i < 3; ++i) tensors.emplace_back(rank, std::vector<float>(100, 1));
    all_have_trained.arrive_and_wait();
    Step(rank, tensors);
    all_have_trained.arrive_and_wait();
    if (rank.rank() == 0) ranges = rank.fake().TakeRanges();
    all_have_trained.arrive_and_wait();
  });
  EXPECT_EQ(ranges, std::vector<std::string>(kRanks, "ALLREDUCE x0 and 2 more"));
}

// In the timeline, a bucket and its parts begin after the submission of its tensors, and end before the wait for them
// ends.
TEST_P(DeviceTimeline, BucketsLieBetweenSubmissionAndCompletion) {
  std::vector<std::vector<FlightTime>> times(kRanks);
  std::barrier all_have_trained(kRanks);
  Run([&](DeviceRank& rank) {
    std::deque<DeviceTensor> tensors;
    for (int i = 0; i < 3; ++i) tensors.emplace_back(rank, std::vector<float>(100, 1.0f));
    ASSERT_TRUE(rank.runtime().StartTimeline(path()).ok());
    for (int step = 0; step < kSteps; ++step) {
      times[rank.rank()].push_back(FlightNow());
      Step(rank, tensors);
    }
    times[rank.rank()].push_back(FlightNow());
    all_have_trained.arrive_and_wait();
  });
  for (RankId rank = 0; rank < kRanks; ++rank) {
    const auto buckets = Named(DeviceSpans(path(), rank), "ALLREDUCE");
    ASSERT_THAT(buckets, Not(IsEmpty()));
    const double begin = Microseconds(times[rank].front()), end = Microseconds(times[rank].back());
    size_t step = 0;
    for (const TraceEvent& bucket : buckets) {
      if (bucket.ts >= end) continue;  // the vetoed bucket by which the ranks unlock at the shutdown
      EXPECT_GE(bucket.ts, begin);
      while (bucket.ts >= Microseconds(times[rank][step + 1])) ++step;
      EXPECT_LE(bucket.end(), Microseconds(times[rank][step + 1]) + kRounding) << "in step " << step;
    }
    EXPECT_EQ(step, kSteps - 1) << "no step is without a bucket at its end";
  }
}

TEST_P(DeviceTimeline, PartsOfABucketAreNamed) {
  Run([&](DeviceRank& rank) {
    std::deque<DeviceTensor> tensors;
    for (int i = 0; i < 3; ++i) tensors.emplace_back(rank, std::vector<float>(100, 1.0f));
    ASSERT_TRUE(rank.runtime().StartTimeline(path()).ok());
    for (int step = 0; step < kSteps; ++step) Step(rank, tensors);
  });
  for (RankId rank = 0; rank < kRanks; ++rank) {
    const auto spans = DeviceSpans(path(), rank);
    std::vector<std::string> names;
    for (const TraceEvent& span : spans) names.push_back(span.name);
    EXPECT_THAT(names, IsSupersetOf({"WAIT_FOR_DATA", "TRANSFER"}));
    EXPECT_THAT(names, IsSupersetOf({"PACK", "UNPACK"}));
  }
}

TEST_P(DeviceTimeline, StartsAndStopsWhileBucketsAreUnderWay) {
  Run([&](DeviceRank& rank) {
    std::deque<DeviceTensor> tensors;
    for (int i = 0; i < 3; ++i) tensors.emplace_back(rank, std::vector<float>(100, 1.0f));
    for (int round = 0; round < 3; ++round) {
      Step(rank, tensors);
      ASSERT_TRUE(rank.runtime().StartTimeline(path()).ok());
      for (int step = 0; step < kSteps; ++step) Step(rank, tensors);
      rank.runtime().StopTimeline();
    }
  });
  for (RankId rank = 0; rank < kRanks; ++rank) EXPECT_THAT(DeviceSpans(path(), rank), Not(IsEmpty()));
}

TEST_P(DeviceTimeline, ExchangesAreATransfer) {
  Run([&](DeviceRank& rank) {
    ASSERT_TRUE(rank.runtime().StartTimeline(path()).ok());
    const DeviceTensor tensor(rank, std::vector<float>(100, 1.0f));
    Submission submission = DeviceSum("y", rank, tensor, 100);
    submission.request.op = OpType::kBroadcast;
    ASSERT_NE(SucceedOn(rank, submission), nullptr);
  });
  for (RankId rank = 0; rank < kRanks; ++rank) {
    EXPECT_THAT(Named(DeviceSpans(path(), rank), "BROADCAST"), Not(IsEmpty()));
    EXPECT_THAT(Named(DeviceSpans(path(), rank), "TRANSFER"), Not(IsEmpty()));
  }
}

}  // namespace
}  // namespace ronda::testing
