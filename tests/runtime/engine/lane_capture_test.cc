// SPDX-License-Identifier: Apache-2.0

// Tests lane calls that are captured into graphs. These tests have their own binary, because work on a held device
// remains until the process ends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstddef>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "runtime/base/clock.h"
#include "tests/runtime/engine/device_job.h"
#include "tests/runtime/engine/job.h"
#include "tests/runtime/engine/lane_calls.h"
#include "tests/testing/fake_cuda/fake_capture.h"
#include "tests/testing/fake_nccl/load_fake_nccl.h"

namespace ronda::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr int kRanks = 2;
constexpr size_t kCount = 6;
constexpr int kGlobalMode = 0;  // cudaStreamCaptureModeGlobal, which forbids unsafe calls to all threads

// A graph that is captured from the stream of a rank.
class Graph {
 public:
  Graph(DeviceRank& rank, const std::function<void()>& body) : rank_(rank) {
    EXPECT_EQ(fake_cuda_begin_capture(rank.stream(), kGlobalMode), 0);
    body();
    error_ = fake_cuda_end_capture(rank.stream(), &graph_);
  }
  ~Graph() {
    if (graph_ != nullptr) fake_cuda_destroy_graph(graph_);
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  int error() const { return error_; }  // of the end of the capture
  void Launch() const { EXPECT_EQ(fake_cuda_launch_graph(graph_, rank_.stream()), 0); }

 private:
  DeviceRank& rank_;
  void* graph_ = nullptr;
  int error_ = 0;
};

Submission Sum(DeviceRank& rank, const DeviceTensor& tensor) { return DeviceSum("", rank, tensor, kCount); }

std::vector<float> Floats(float value, size_t count = kCount) { return std::vector<float>(count, value); }

TEST(LaneCapture, EachLaunchRepeatsTheCalls) {
  RunDeviceRanks({.size = kRanks, .cuda = {.delay_seed = 21}}, [](DeviceRank& rank) {
    Calls calls(rank);
    DeviceTensor tensor(rank, Floats(-1));
    const DeviceTensor all(rank, Floats(-1, kRanks * kCount));
    const auto own = static_cast<float>(rank.rank() + 1);
    const Graph graph(rank, [&] {
      calls.MakeAndOrder(Sum(rank, tensor));
      Submission gather = Sum(rank, tensor);
      gather.request.op = OpType::kAllgather;
      gather.output = all.data();
      gather.output_bytes = kRanks * kCount * sizeof(float);
      calls.MakeAndOrder(gather);
      Submission scatter = Sum(rank, all);
      scatter.request.op = OpType::kReduceScatter;
      scatter.request.shape = {kRanks, kCount};
      scatter.output = tensor.data();
      scatter.output_bytes = kCount * sizeof(float);
      calls.MakeAndOrder(scatter);
    });
    ASSERT_EQ(graph.error(), 0);
    EXPECT_THAT(tensor.Get<float>(), Each(-1)) << "captured work is not done";
    for (const float step : {1.0f, 10.0f, 100.0f}) {
      tensor.Set(Floats(step * own));
      graph.Launch();
      EXPECT_THAT(all.Get<float>(), Each(3 * step));
      EXPECT_THAT(tensor.Get<float>(), Each(6 * step));
    }
    calls.MakeAndOrder(Sum(rank, tensor));  // not captured
    EXPECT_THAT(tensor.Get<float>(), Each(1200));
  });
}

TEST(LaneCapture, BroadcastsReducesAndExchangesCanBeCaptured) {
  RunDeviceRanks({.size = kRanks, .cuda = {.delay_seed = 22}}, [](DeviceRank& rank) {
    Calls calls(rank);
    DeviceTensor tensor(rank, Floats(-1));
    const DeviceTensor other(rank, Floats(-1));
    const auto own = static_cast<float>(rank.rank() + 1);
    const Graph graph(rank, [&] {
      Submission broadcast = Sum(rank, tensor);
      broadcast.request.op = OpType::kBroadcast;
      broadcast.request.root = 1;
      broadcast.input = nullptr;
      calls.MakeAndOrder(broadcast);  // 2 step
      Submission reduce = Sum(rank, tensor);
      reduce.request.op = OpType::kReduce;
      calls.MakeAndOrder(reduce);  // 4 step on rank 0
      auto* const from = static_cast<float*>(tensor.data());
      auto* const to = static_cast<float*>(other.data());
      const LaneExchange exchange = {.dtype = DType::kFloat32,
                                     .sends = {{from, 3}, {from + 3, 3}},
                                     .receives = {{to, 3}, {to + 3, 3}},
                                     .stream = rank.stream()};
      const auto handle = calls.lane().Exchange(exchange);
      ASSERT_EQ(handle.status(), absl::OkStatus());
      EXPECT_EQ((*handle)->OrderBefore(rank.stream()), absl::OkStatus());
    });
    ASSERT_EQ(graph.error(), 0);
    for (const float step : {1.0f, 10.0f, 100.0f}) {
      tensor.Set(Floats(step * own));
      graph.Launch();
      std::vector<float> expected = Floats(2 * step);
      std::fill_n(expected.begin(), 3, 4 * step);
      EXPECT_EQ(other.Get<float>(), expected);
    }
  });
}

TEST(LaneCapture, ACapturedCallIsOverAtOnceAndIsAwaitedOnlyInTheCapture) {
  RunDeviceRanks({.size = kRanks}, [](DeviceRank& rank) {
    Calls calls(rank);
    const DeviceTensor tensor(rank, Floats(1));
    const auto other = *DeviceStream::Create(&rank.device());
    std::shared_ptr<Handle> handle;
    const Graph graph(rank, [&] {
      handle = *calls.Make(Sum(rank, tensor));
      EXPECT_TRUE(handle->done());
      EXPECT_EQ(handle->Wait(), absl::OkStatus());
      EXPECT_EQ(handle->OrderBefore(rank.stream()), absl::OkStatus());
      EXPECT_THAT(std::string(handle->OrderBefore(other->handle()).message()),
                  HasSubstr("this stream is not being captured: wait for the operation in the capture"));
    });
    ASSERT_EQ(graph.error(), 0);
    EXPECT_EQ(handle->OrderBefore(rank.stream()).code(), absl::StatusCode::kInvalidArgument);
    graph.Launch();
    EXPECT_THAT(tensor.Get<float>(), Each(2));
  });
}

TEST(LaneCapture, ACallForWhichNoStreamWaitsMakesTheCaptureFail) {
  RunDeviceRanks({.size = kRanks}, [](DeviceRank& rank) {
    Calls calls(rank);
    const DeviceTensor tensor(rank, Floats(1));
    const Graph graph(rank, [&] { EXPECT_EQ(calls.Make(Sum(rank, tensor)).status(), absl::OkStatus()); });
    EXPECT_EQ(graph.error(), kCudaCaptureUnjoined);
    calls.MakeAndOrder(Sum(rank, tensor));
    EXPECT_THAT(tensor.Get<float>(), Each(2)) << "the lane can be used";
  });
}

// How many copies of this thread the device still makes. A captured call has one before and one after the collective.
thread_local int copies_left = std::numeric_limits<int>::max();
int (*copy_on_device)(void* dst, const void* src, size_t bytes, void* stream) = nullptr;

// The graph of the failed capture has the collective, so the other ranks' graphs have it too, and its number is used.
TEST(LaneCapture, ACallThatFailsAfterItsCollectiveKeepsItsNumber) {
  const auto replace = [](ronda_cuda_plugin* table) {
    copy_on_device = table->copy;
    table->copy = [](void* dst, const void* src, size_t bytes, void* stream) {
      return copies_left-- > 0 ? copy_on_device(dst, src, bytes, stream) : static_cast<int>(kCudaOutOfMemory);
    };
  };
  RunDeviceRanks({.size = kRanks, .replace = replace}, [](DeviceRank& rank) {
    Calls calls(rank);
    const DeviceTensor tensor(rank, Floats(1));
    const Graph good(rank, [&] { calls.MakeAndOrder(Sum(rank, tensor)); });
    ASSERT_EQ(calls.lane().calls(), 1u);
    if (rank.rank() == 0) copies_left = 1;
    const Graph bad(rank, [&] { EXPECT_EQ(calls.Make(Sum(rank, tensor)).ok(), rank.rank() != 0); });
    copies_left = std::numeric_limits<int>::max();
    EXPECT_EQ(calls.lane().calls(), 2u);
    calls.MakeAndOrder(Sum(rank, tensor));  // not captured
    EXPECT_THAT(tensor.Get<float>(), Each(2)) << "the lane can be used";
  });
}

TEST(LaneCapture, LaunchesThatEndDoNotReachTheDeadline) {
  constexpr absl::Duration kDeadline = absl::Milliseconds(500);
  std::atomic<int> launches{0};  // that rank 0 has decided to make
  std::atomic<bool> is_over{false};
  RunDeviceRanks({.size = kRanks}, [&](DeviceRank& rank) {
    Calls calls(rank);
    const DeviceTensor tensor(rank, Floats(0));
    Submission sum = Sum(rank, tensor);
    sum.request.limits = {.warning = absl::Milliseconds(100), .deadline = kDeadline};
    const Graph graph(rank, [&] { calls.MakeAndOrder(sum); });
    ASSERT_EQ(graph.error(), 0);
    const absl::Duration end = MonotonicTime() + 3 * kDeadline / 2;
    for (int launch = 0; rank.rank() == 0 || launch < launches || !is_over; ++launch) {
      if (rank.rank() == 0) {
        if (MonotonicTime() > end) break;
        ++launches;
      }
      while (launch >= launches && !is_over) std::this_thread::yield();
      if (launch >= launches) break;
      graph.Launch();
      EXPECT_THAT(tensor.Get<float>(), Each(0));
    }
    is_over = true;
    EXPECT_EQ(rank.runtime().failure(), absl::OkStatus());
    calls.MakeAndOrder(Sum(rank, tensor));
  });
}

// Runs a job that fails. Both ranks have captured a sum of a tensor of ones, and rank 0 has launched its graph. Both
// ranks run `body`. After the runtimes have been destroyed, rank 1 also launches its graph, so that the device of rank
// 0 becomes free.
void FailWithGraphs(const std::string& why, const std::function<void(DeviceRank& rank)>& body) {
  std::atomic<int> held{0};
  Runtime::Options options;
  options.stream_is_held = [&](const std::string& text) {
    EXPECT_THAT(text, AllOf(HasSubstr(why), HasSubstr("CUDA graphs of the program have collectives")));
    ++held;
  };
  RunDeviceRanks({.size = kRanks, .runtime = options, .expects_failure = true}, [&](DeviceRank& rank) {
    Calls calls(rank);
    const DeviceTensor& tensor = rank.Keep(Floats(1));
    Submission sum = Sum(rank, tensor);
    sum.request.limits = {.warning = absl::Milliseconds(20), .deadline = absl::Milliseconds(200)};
    const auto graph = std::make_shared<Graph>(rank, [&] { calls.MakeAndOrder(sum); });
    ASSERT_EQ(graph->error(), 0);
    rank.KeepAlive(graph);
    if (rank.rank() == 0) graph->Launch();
    body(rank);
    while (held < kRanks) std::this_thread::yield();
    EXPECT_THAT(std::string(calls.StatusOf(Sum(rank, tensor)).message()), HasSubstr(why));
    const bool is_late = rank.rank() == 1;
    rank.KeepAlive(std::shared_ptr<void>(nullptr, [is_late, &tensor, graph](void*) {
      if (is_late) graph->Launch();
      EXPECT_THAT(tensor.Get<float>(), Each(2)) << "no stream has gone on with a wrong result";
    }));
  });
}

TEST(LaneCapture, ALaunchThatARankOmitsFailsAtItsDeadline) {
  ::testing::internal::CaptureStderr();
  FailWithGraphs("waited 200ms for", [](DeviceRank& rank) {
    while (rank.runtime().failure().ok()) std::this_thread::yield();
    EXPECT_THAT(std::string(rank.runtime().failure().message()),
                AllOf(HasSubstr("of rank 0 to carry out allreduce 'call 1 of lane 0: 6 x float32, sum, captured'"),
                      HasSubstr("every rank must launch the graph of this capture")));
  });
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("has waited 20ms for"));
}

TEST(LaneCapture, TheFailureOfAJobHoldsTheDevicesWithGraphs) {
  FailWithGraphs("given up", [](DeviceRank& rank) {
    if (rank.rank() == 1) rank.runtime().Abandon(absl::AbortedError("given up"));
  });
}

// The runtime of this test cannot end the process, so it must log that the graphs never end.
TEST(LaneCapture, RanksThatCaptureDifferentCallsGetBoth) {
  ::testing::internal::CaptureStderr();
  RunDeviceRanks({.size = kRanks, .expects_failure = true}, [](DeviceRank& rank) {
    Calls calls(rank);
    const DeviceTensor& tensor = rank.Keep(Floats(1));
    // The first sum of each kind waits for the other rank, so it must not be captured.
    calls.MakeAndOrder(Sum(rank, tensor));
    Submission product = Sum(rank, tensor);
    product.request.reduction = Reduction::kProduct;
    calls.MakeAndOrder(product);
    auto graph = std::make_shared<Graph>(rank, [&] {
      const auto made = calls.Make(rank.rank() == 0 ? product : Sum(rank, tensor));
      if (made.ok()) (*made)->OrderBefore(rank.stream()).IgnoreError();
    });
    rank.KeepAlive(graph);
    while (rank.runtime().failure().ok()) std::this_thread::yield();
    EXPECT_THAT(std::string(rank.runtime().failure().message()),
                AllOf(HasSubstr("in call 3 of lane 0"),
                      HasSubstr("rank 0 has called allreduce (6 x float32, product, captured)"),
                      HasSubstr("rank 1 has called allreduce (6 x float32, sum, captured)")));
  });
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("CUDA graphs of the program have collectives"), HasSubstr("so end this process")));
}

TEST(LaneCapture, OperationsOfTheEngineAreRefused) {
  RunDeviceRanks({.size = kRanks}, [](DeviceRank& rank) {
    Calls calls(rank);
    const DeviceTensor tensor(rank, Floats(1));
    const Graph graph(rank, [&] {
      const absl::Status status = rank.runtime().Submit(DeviceSum("x", rank, tensor, kCount)).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
      calls.MakeAndOrder(Sum(rank, tensor));
    });
    ASSERT_EQ(graph.error(), 0);
    graph.Launch();
    EXPECT_THAT(tensor.Get<float>(), Each(2));
  });
}

}  // namespace
}  // namespace ronda::testing
