// SPDX-License-Identifier: Apache-2.0

// Tests that captures become invalid where CUDA's do, and that a graph runs the captured work.
#include "tests/testing/fake_cuda/fake_capture.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "tests/testing/fake_cuda/fake_cuda.h"

namespace ronda::testing {
namespace {

constexpr int kGlobal = 0;
constexpr int kThreadLocal = 1;
constexpr int kRelaxed = 2;

class FakeCaptureTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (void** stream : {&stream_, &other_}) ASSERT_EQ(table().create_stream(stream), kCudaSuccess);
    for (void** event : {&event_, &other_event_}) ASSERT_EQ(table().create_event(0, event), kCudaSuccess);
  }

  const ronda_cuda_plugin& table() const { return *cuda_.table(); }

  float* Floats(float value) {
    void* memory = nullptr;
    EXPECT_EQ(table().allocate(RONDA_CUDA_DEVICE_MEMORY, sizeof(float), &memory), kCudaSuccess);
    WriteDevice(memory, absl::string_view(reinterpret_cast<const char*>(&value), sizeof(value)));
    return static_cast<float*>(memory);
  }
  static float Read(const float* memory) {
    float value = 0;
    std::memcpy(&value, ReadDevice(memory, sizeof(value)).data(), sizeof(value));
    return value;
  }

  // dst = a + b
  int Add(const float* a, const float* b, float* dst, void* stream) {
    const kernels::cuda::AddScaledCall call = {.a = a, .b = b, .dst = dst, .count = 1};
    return table().add_scaled(&call, stream);
  }

  // Makes the next work of `later` wait for the work of `earlier`.
  void Order(void* event, void* earlier, void* later) {
    ASSERT_EQ(table().record_event(event, earlier), kCudaSuccess);
    ASSERT_EQ(table().wait_event(later, event), kCudaSuccess);
  }

  void Finish(void* stream) {
    ASSERT_EQ(table().record_event(event_, stream), kCudaSuccess);
    ASSERT_EQ(table().synchronize_event(event_), kCudaSuccess);
  }

  void Launch(void* graph) {
    ASSERT_EQ(fake_cuda_launch_graph(graph, other_), kCudaSuccess);
    Finish(other_);
  }

  // Makes a call while the first stream is being captured, then ends the capture and returns the result.
  int EndAfter(const std::function<void()>& call, int mode = kGlobal) {
    EXPECT_EQ(fake_cuda_begin_capture(stream_, mode), kCudaSuccess);
    call();
    void* graph = nullptr;
    const int error = fake_cuda_end_capture(stream_, &graph);
    EXPECT_EQ(error == kCudaSuccess, graph != nullptr);
    if (graph != nullptr) {
      EXPECT_EQ(fake_cuda_destroy_graph(graph), kCudaSuccess);
    }
    EXPECT_EQ(fake_cuda_is_captured(stream_), 0);
    return error;
  }

  const FakeCuda cuda_{{.delay_seed = 3}};
  void* stream_ = nullptr;
  void* other_ = nullptr;
  void* event_ = nullptr;
  void* other_event_ = nullptr;
};

TEST_F(FakeCaptureTest, GraphDoesAtEachLaunchWhatWasCaptured) {
  float* const sum = Floats(0);
  float* const one = Floats(1);
  float* const copy = Floats(0);
  int calls = 0;
  const auto count = [](void* context) { ++*static_cast<int*>(context); };
  const auto release = [](void* context) { *static_cast<int*>(context) += 100; };
  ASSERT_EQ(fake_cuda_begin_capture(stream_, kGlobal), kCudaSuccess);
  ASSERT_EQ(Add(sum, one, sum, stream_), kCudaSuccess);
  ASSERT_EQ(table().copy(copy, sum, sizeof(float), stream_), kCudaSuccess);
  ASSERT_EQ(fake_cuda_enqueue_owned(stream_, count, &calls, release), kCudaSuccess);
  int capturing = -1;
  ASSERT_EQ(table().is_capturing(stream_, &capturing), kCudaSuccess);
  EXPECT_EQ(capturing, 1);
  void* graph = nullptr;
  ASSERT_EQ(fake_cuda_end_capture(stream_, &graph), kCudaSuccess);
  Finish(stream_);
  EXPECT_EQ(Read(copy), 0) << "captured work is not done";
  for (int launch = 1; launch <= 3; ++launch) {
    Launch(graph);
    EXPECT_EQ(Read(copy), static_cast<float>(launch));
    EXPECT_EQ(calls, launch);
  }
  void* second = nullptr;
  ASSERT_EQ(fake_cuda_copy_graph(graph, &second), kCudaSuccess);
  EXPECT_EQ(fake_cuda_destroy_graph(graph), kCudaSuccess);
  EXPECT_EQ(fake_cuda_destroy_graph(graph), kCudaInvalidValue);
  Launch(second);
  EXPECT_EQ(calls, 4);
  EXPECT_EQ(fake_cuda_destroy_graph(second), kCudaSuccess);
  fake_cuda_wait_for_device();
  EXPECT_EQ(calls, 104) << "released with the last graph";
}

TEST_F(FakeCaptureTest, EventsOrderTheStreamsWithinAGraph) {
  float* const first = Floats(0);
  float* const second = Floats(0);
  float* const one = Floats(1);
  ASSERT_EQ(fake_cuda_begin_capture(stream_, kGlobal), kCudaSuccess);
  ASSERT_EQ(Add(first, one, first, stream_), kCudaSuccess);
  Order(event_, stream_, other_);
  EXPECT_EQ(fake_cuda_is_captured(other_), 1);
  ASSERT_EQ(Add(first, first, second, other_), kCudaSuccess);
  Order(other_event_, other_, stream_);
  ASSERT_EQ(Add(first, second, first, stream_), kCudaSuccess);
  void* graph = nullptr;
  ASSERT_EQ(fake_cuda_end_capture(stream_, &graph), kCudaSuccess);
  EXPECT_EQ(fake_cuda_is_captured(other_), 0);
  float expected = 0;
  for (int launch = 0; launch < 5; ++launch) {
    Launch(graph);
    expected = 3 * (expected + 1);
    EXPECT_EQ(Read(first), expected);
  }
  EXPECT_EQ(table().wait_event(other_, other_event_), kCudaCapturedEvent) << "the capture is over";
  EXPECT_EQ(fake_cuda_destroy_graph(graph), kCudaSuccess);
}

// Two pieces of work without a dependency between them may run in either order.
TEST_F(FakeCaptureTest, AMissingOrderShows) {
  std::string order;
  struct Append {
    std::string& to;
    char letter;
  } a{order, 'a'}, b{order, 'b'};
  const auto append = [](void* context) { static_cast<Append*>(context)->to += static_cast<Append*>(context)->letter; };
  const auto keep = [](void*) {};
  ASSERT_EQ(fake_cuda_begin_capture(stream_, kGlobal), kCudaSuccess);
  Order(event_, stream_, other_);
  ASSERT_EQ(fake_cuda_enqueue_owned(stream_, append, &a, keep), kCudaSuccess);
  ASSERT_EQ(fake_cuda_enqueue_owned(other_, append, &b, keep), kCudaSuccess);
  Order(other_event_, other_, stream_);
  void* graph = nullptr;
  ASSERT_EQ(fake_cuda_end_capture(stream_, &graph), kCudaSuccess);
  std::set<std::string> orders;
  for (int launch = 0; launch < 40; ++launch) {
    Launch(graph);
    orders.insert(std::exchange(order, ""));
  }
  EXPECT_EQ(orders, (std::set<std::string>{"ab", "ba"}));
  EXPECT_EQ(fake_cuda_destroy_graph(graph), kCudaSuccess);
}

TEST_F(FakeCaptureTest, AskingForTheEndOfCapturedWorkBreaksTheCapture) {
  int is = 0;
  const std::function<int()> calls[] = {
      [&] { return table().query_event(event_, &is); },
      [&] { return table().synchronize_event(event_); },
  };
  for (const auto& call : calls) {
    EXPECT_EQ(EndAfter([&] {
                ASSERT_EQ(table().record_event(event_, stream_), kCudaSuccess);
                EXPECT_EQ(call(), kCudaCapturedEvent);
                EXPECT_EQ(table().record_event(event_, stream_), kCudaCaptureInvalidated);
                EXPECT_EQ(table().fill_zero(Floats(0), 4, stream_), kCudaCaptureInvalidated);
              }),
              kCudaCaptureInvalidated);
  }
  EXPECT_EQ(EndAfter([&] { EXPECT_EQ(fake_cuda_begin_wait_for_stream(stream_), kCudaCaptureUnsupported); }),
            kCudaCaptureInvalidated);
  EXPECT_EQ(EndAfter([&] { EXPECT_EQ(fake_cuda_begin_wait_for_stream(other_), kCudaSuccess); }), kCudaSuccess);
}

TEST_F(FakeCaptureTest, ACaptureWaitsForNothingOutside) {
  ASSERT_EQ(table().record_event(other_event_, other_), kCudaSuccess);
  EXPECT_EQ(EndAfter([&] { EXPECT_EQ(table().wait_event(stream_, other_event_), kCudaCaptureIsolation); }),
            kCudaCaptureInvalidated);
  void* never_recorded = nullptr;
  ASSERT_EQ(table().create_event(0, &never_recorded), kCudaSuccess);
  EXPECT_EQ(EndAfter([&] { EXPECT_EQ(table().wait_event(stream_, never_recorded), kCudaSuccess); }), kCudaSuccess);
}

TEST_F(FakeCaptureTest, CapturesAreNotMerged) {
  ASSERT_EQ(fake_cuda_begin_capture(other_, kGlobal), kCudaSuccess);
  ASSERT_EQ(table().record_event(other_event_, other_), kCudaSuccess);
  EXPECT_EQ(EndAfter([&] { EXPECT_EQ(table().wait_event(stream_, other_event_), kCudaCaptureMerge); }),
            kCudaCaptureInvalidated);
  void* graph = nullptr;
  EXPECT_EQ(fake_cuda_end_capture(other_, &graph), kCudaCaptureInvalidated);
}

TEST_F(FakeCaptureTest, StreamsThatHaveJoinedAreOrderedBeforeTheEnd) {
  EXPECT_EQ(EndAfter([&] {
              Order(event_, stream_, other_);
              ASSERT_EQ(table().fill_zero(Floats(0), 4, other_), kCudaSuccess);
            }),
            kCudaCaptureUnjoined);
}

TEST_F(FakeCaptureTest, TheDefaultStreamIsNotUsedBesideACapturedStreamThatIsOrderedWithIt) {
  float* const memory = Floats(0);
  EXPECT_EQ(EndAfter([&] { EXPECT_EQ(table().fill_zero(memory, 4, nullptr), kCudaSuccess); }), kCudaSuccess);
  void* blocking = nullptr;
  ASSERT_EQ(fake_cuda_create_blocking_stream(&blocking), kCudaSuccess);
  ASSERT_EQ(fake_cuda_begin_capture(blocking, kRelaxed), kCudaSuccess);
  int state = -1;
  uint64_t id = 0;
  EXPECT_EQ(fake_cuda_capture_state(nullptr, &state, &id), kCudaCaptureImplicit);
  EXPECT_EQ(fake_cuda_capture_state(blocking, &state, &id), kCudaSuccess);
  EXPECT_EQ(state, 1) << "asking breaks nothing";
  EXPECT_EQ(table().fill_zero(memory, 4, nullptr), kCudaCaptureImplicit);
  void* graph = nullptr;
  EXPECT_EQ(fake_cuda_end_capture(blocking, &graph), kCudaCaptureInvalidated);
  EXPECT_EQ(fake_cuda_begin_capture(nullptr, kRelaxed), kCudaCaptureUnsupported);
}

TEST_F(FakeCaptureTest, UnsafeCallsAreForbiddenByTheModesOfCaptureAndThread) {
  struct Case {
    int capture, thread, own, others;
  };
  constexpr int kNo = kCudaCaptureUnsupported;
  for (const Case& c :
       {Case{kGlobal, kGlobal, kNo, kNo}, Case{kGlobal, kThreadLocal, kNo, 0}, Case{kGlobal, kRelaxed, 0, 0},
        Case{kThreadLocal, kGlobal, kNo, 0}, Case{kThreadLocal, kRelaxed, 0, 0}, Case{kRelaxed, kGlobal, 0, 0}}) {
    const auto call = [&] {
      int mode = c.thread;
      EXPECT_EQ(fake_cuda_exchange_capture_mode(&mode), kCudaSuccess);
      EXPECT_EQ(mode, kGlobal);
      const int error = fake_cuda_begin_unsafe_call();
      EXPECT_EQ(fake_cuda_exchange_capture_mode(&mode), kCudaSuccess);
      return error;
    };
    const std::string name = std::to_string(c.capture) + " " + std::to_string(c.thread);
    EXPECT_EQ(EndAfter([&] { EXPECT_EQ(call(), c.own) << name; }, c.capture), c.own == 0 ? 0 : kCudaCaptureInvalidated);
    const auto call_elsewhere = [&] { std::thread([&] { EXPECT_EQ(call(), c.others) << name; }).join(); };
    EXPECT_EQ(EndAfter(call_elsewhere, c.capture), c.others == 0 ? 0 : kCudaCaptureInvalidated);
  }
}

TEST_F(FakeCaptureTest, ACaptureEndsInItsStreamAndThread) {
  void* graph = nullptr;
  EXPECT_EQ(fake_cuda_end_capture(stream_, &graph), kCudaIllegalState);
  EXPECT_EQ(EndAfter([&] {
              EXPECT_EQ(fake_cuda_begin_capture(stream_, kGlobal), kCudaIllegalState);
              Order(event_, stream_, other_);
              EXPECT_EQ(fake_cuda_end_capture(other_, &graph), kCudaCaptureUnmatched);
              Order(other_event_, other_, stream_);
              std::thread([&] { EXPECT_EQ(fake_cuda_end_capture(stream_, &graph), kCudaCaptureWrongThread); }).join();
            }),
            kCudaSuccess);
}

}  // namespace
}  // namespace ronda::testing
