// SPDX-License-Identifier: Apache-2.0

// Runs jobs whose ranks are threads of one test, with tensors in the memory of fake devices.
#ifndef RONDA_TESTS_RUNTIME_ENGINE_DEVICE_JOB_H_
#define RONDA_TESTS_RUNTIME_ENGINE_DEVICE_JOB_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "runtime/collectives/host_map.h"
#include "runtime/cuda/device.h"
#include "runtime/engine/runtime.h"
#include "runtime/engine/submission.h"
#include "tests/testing/fake_cuda/fake_cuda.h"

namespace ronda::testing {

class DeviceRank;

// A tensor on the device of a rank.
//
// The rank's stream writes the tensor's values. A thread that reads the tensor first waits for the stream's earlier
// work.
class DeviceTensor {
 public:
  DeviceTensor(DeviceRank& rank, size_t bytes);
  template <typename T>
  DeviceTensor(DeviceRank& rank, const std::vector<T>& values) : DeviceTensor(rank, values.size() * sizeof(T)) {
    Set(values);
  }

  // Waits for the rank's stream.
  ~DeviceTensor();

  void* data() const { return memory_.data(); }

  // Returns the memory. The destructor then does not free it.
  void* Abandon() {
    void* const memory = memory_.data();
    memory_.Abandon();
    return memory;
  }

  template <typename T>
  void Set(const std::vector<T>& values) {
    Write(values.data(), values.size() * sizeof(T));
  }
  template <typename T>
  std::vector<T> Get() const {
    return ReadAs<T>(rank_, memory_.data(), bytes_ / sizeof(T));
  }

  // Returns the values at `data` on the device, read through the rank's stream.
  template <typename T>
  static std::vector<T> ReadAs(DeviceRank& rank, const void* data, size_t count) {
    std::vector<T> values(count);
    Read(rank, data, values.data(), count * sizeof(T));
    return values;
  }

 private:
  void Write(const void* values, size_t bytes);
  static void Read(DeviceRank& rank, const void* data, void* values, size_t bytes);

  DeviceRank& rank_;
  const size_t bytes_;
  DeviceMemory memory_;
  DeviceMemory staging_;  // pinned memory for the values that are being written
};

// One rank of a job, with its runtime, its device, and a stream like a trainer's stream.
class DeviceRank {
 public:
  DeviceRank(Runtime& runtime, FakeCuda& cuda, int ordinal);

  Runtime& runtime() { return runtime_; }
  RankId rank() const { return runtime_.topology().rank; }
  Device& device() { return *device_; }
  StreamHandle stream() const { return stream_->handle(); }
  FakeCuda& fake() { return cuda_; }

  // Returns a tensor that outlives the runtime, because the device may still use it after the job has failed.
  DeviceTensor& Keep(const std::vector<float>& values) { return tensors_.emplace_back(*this, values); }

  void KeepAlive(std::shared_ptr<void> object) { kept_.push_back(std::move(object)); }

  // Holds the stream until the runtime has been destroyed.
  void HoldStream() { hold_.emplace(stream()); }

 private:
  Runtime& runtime_;
  FakeCuda& cuda_;
  const std::shared_ptr<Device> device_;
  const std::unique_ptr<DeviceStream> stream_;
  std::deque<DeviceTensor> tensors_;
  std::vector<std::shared_ptr<void>> kept_;
  std::optional<StreamHold> hold_;  // last, so that it is destroyed first
};

struct DeviceJobOptions {
  int size = 2;
  int devices = 8;               // rank r has device r % devices
  std::string backend = "nccl";  // a value of RONDA_DEVICE_BACKEND
  HostMap hosts;                 // the hosts, whose ranks share memory; empty if all ranks are on one host
  Runtime::Options runtime;
  FakeCuda::Options cuda;
  // Replaces functions of the table through which the ranks use their devices; nullptr: none.
  void (*replace)(ronda_cuda_plugin* table) = nullptr;
  std::vector<RankId> without_devices;  // these ranks do not find the libraries
  std::vector<RankId> with_windows;     // these ranks have RONDA_NCCL_WINDOWS=1
  int64_t lane_memory_mb = 0;           // RONDA_LANE_MEMORY_MB of rank 0
  int64_t gradient_memory_mb = 0;       // RONDA_GRADIENT_MEMORY_MB of rank 0
  std::vector<RankId> elsewhere;        // ranks whose flight recorders the other ranks cannot read
  bool reduces_in_place = false;        // rank 0 has RONDA_REDUCE_IN_PLACE=1
  bool reproducible = false;            // rank 0 has RONDA_REPRODUCIBLE=1
  bool expects_failure = false;         // whether the job is expected to fail
};

// Runs a job of `options.size` ranks. Each rank runs `body` and shuts down. If the job is expected to fail, so must the
// shutdown. Otherwise the shutdown must succeed and leave no objects on the devices.
void RunDeviceRanks(const DeviceJobOptions& options, const std::function<void(DeviceRank& rank)>& body);

// Returns two hosts for `size` ranks if the backend works in two levels; otherwise no hosts.
HostMap HostsFor(absl::string_view backend, int size);

// Returns the submission of an allreduce in place.
Submission DeviceSum(const std::string& name, DeviceRank& rank, const DeviceTensor& tensor, size_t count);

// Submits and waits. Returns the handle if the operation succeeds. After an error, fails the test and returns nullptr.
std::shared_ptr<Handle> SucceedOn(DeviceRank& rank, const Submission& submission);

}  // namespace ronda::testing

#endif  // RONDA_TESTS_RUNTIME_ENGINE_DEVICE_JOB_H_
