// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_ENGINE_DEVICE_CAPTURED_CALLS_H_
#define RONDA_RUNTIME_ENGINE_DEVICE_CAPTURED_CALLS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/base/mutex.h"
#include "runtime/base/types.h"
#include "runtime/collectives/transport.h"
#include "runtime/cuda/device.h"
#include "runtime/engine/device/device_watch.h"
#include "runtime/engine/device/rank_device.h"

namespace ronda {

// A call in a CUDA graph. Each launch of the graph repeats the call. The program makes a stream wait for the call while
// the graph is being captured.
//
// Thread-compatible.
class CapturedCall {
 public:
  CapturedCall(std::shared_ptr<Device> device, std::unique_ptr<DeviceEvent> end)
      : device_(std::move(device)), end_(std::move(end)) {}

  // Makes the later work of `stream` in the graph wait for the call.
  // Errors: INVALID_ARGUMENT if `stream` is not being captured; the device's errors.
  absl::Status OrderBefore(StreamHandle stream) const;

 private:
  const std::shared_ptr<Device> device_;
  const std::unique_ptr<DeviceEvent> end_;  // a node of the graph, so it cannot be queried
};

// The calls of a lane that the program has captured into CUDA graphs.
//
// A graph repeats a call without the host, so no event shows whether the call has ended. Instead the graph itself
// writes to two words in host memory when the call begins and when it ends. A thread reads the words every few
// milliseconds. If a call does not end within its warning time, the thread reports it; at its deadline, the job fails.
//
// After the job has failed, the program may still launch its graphs, because a launch calls no function of Ronda. A
// graph would use freed memory if its NCCL communicator were aborted. So Ronda holds the device instead (Device::Hold),
// even if no graph is running.
//
// Thread-safe.
class CapturedCalls {
 public:
  // The maximum number of captured calls per lane.
  static constexpr size_t kMost = 16384;

  struct Options {
    std::shared_ptr<Device> device;
    RankDevice* rank_device = nullptr;  // not owned
    DeviceWatch::Options watch;         // only the functions for failures, the rank and the flight recorders
  };

  // Errors: RESOURCE_EXHAUSTED if there is no memory or no thread; the device's errors.
  static absl::StatusOr<std::unique_ptr<CapturedCalls>> Create(Options options);

  // Ends the thread. The rank's device keeps the words' memory, because the program may still have graphs.
  ~CapturedCalls();

  // Adds `call` to the graph that is being captured from `stream`, behind the work of `stream`.
  // Errors: RESOURCE_EXHAUSTED if kMost calls have been captured; the errors of the device, which do not fail the job;
  // the errors of the transport, after which the job fails.
  absl::StatusOr<std::shared_ptr<const CapturedCall>> Capture(DirectCall call, DirectTransport& transport,
                                                              StreamHandle stream);

  // Must be called when the job has failed, before the transport is aborted.
  void HoldDevice();

  // Ends the thread. Until then, the thread calls the functions of Options. No more calls may be captured.
  void Stop();

 private:
  // The device writes to the words in the order of the graph. Only the host sets `ended` to 0.
  struct Words {
    std::atomic<uint32_t> begun;  // 1 while the call is under way
    std::atomic<uint32_t> ended;  // 1: the call has ended since the host has set this word to 0
  };
  // The device copies `begun` to Words::begun when a call begins, and `at_end` to both words when the call ends.
  struct Constants {
    uint32_t begun = 1;
    uint32_t at_end[2] = {0, 1};
  };
  struct Call {
    std::string label;
    OpType op = OpType::kAllreduce;
    WaitLimits limits;
    enum class Launch : uint8_t { kNone, kSeen, kReported } launch = Launch::kNone;
    absl::Duration seen_at = absl::ZeroDuration();  // MonotonicTime(); when the present launch of the call was seen
  };

  explicit CapturedCalls(Options options) : options_(std::move(options)) {}

  absl::Status Prepare();
  absl::Status Fork(StreamHandle stream);
  absl::Status Copy(void* to, const void* from, size_t bytes);
  Words& WordsOf(size_t call) const { return reinterpret_cast<Words*>(words_.data())[call]; }
  void Run();
  // Looks at all calls once. Returns false if the job has failed.
  bool Look();
  // Errors: the call has not ended within its deadline.
  absl::Status LookAt(size_t index, Call& call) const;
  std::string Report(const Call& call) const;

  const Options options_;
  std::unique_ptr<DeviceStream> stream_;  // carries captured calls only, so the lane's stream stays out of captures
  DeviceMemory constants_;                // of the device
  DeviceMemory words_;                    // of the host, pinned
  Mutex mu_;
  CondVar changed_;
  std::vector<Call> calls_ ABSL_GUARDED_BY(mu_);
  bool is_stopped_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_DEVICE_CAPTURED_CALLS_H_
