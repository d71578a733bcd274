// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_BENCH_CUDA_GPU_H_
#define RONDA_BENCH_CUDA_GPU_H_

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "bench/harness/model_shapes.h"
#include "runtime/cuda/device.h"

namespace ronda::bench {

// A GPU with a stream, for benchmarks. Uses Ronda's CUDA plugin. In tests, the plugin runs on the CPU, so the measured
// figures mean nothing. Thread-compatible.
class Gpu {
 public:
  // Opens the GPU for local rank `rank`. If a host has fewer GPUs than ranks, ranks share GPUs. Errors: those of
  // LoadCudaPlugin(), CountDevices() and Device::Open().
  static absl::StatusOr<std::unique_ptr<Gpu>> Open(int rank);

  const std::string& name() const { return device_->name(); }
  int devices() const { return devices_; }  // of this host
  StreamHandle stream() const { return stream_->handle(); }

  // Allocates memory, which the stream fills with zeros.
  absl::StatusOr<DeviceMemory> Allocate(size_t bytes);

  // Waits until the stream has finished all of its work. The thread sleeps meanwhile, and uses hardly any CPU time.
  absl::Status Finish();

  // Enqueues work by calling `submit`, and waits until the work is done. Returns the time that the work takes on the
  // stream, measured by the device's clock.
  using Submit = std::function<int(const ronda_cuda_plugin& cuda, StreamHandle stream)>;
  absl::StatusOr<absl::Duration> Time(const std::string& label, const Submit& submit);

 private:
  Gpu(std::shared_ptr<Device> device, int devices, std::unique_ptr<DeviceStream> stream)
      : device_(std::move(device)), devices_(devices), stream_(std::move(stream)) {}

  const std::shared_ptr<Device> device_;
  const int devices_;
  const std::unique_ptr<DeviceStream> stream_;
};

// A model's gradients in the memory of a GPU, in float32. The GPU must outlive them.
class GpuGradients {
 public:
  // kAllocated: each gradient starts at an address that an allocator could return. kAdjacent: each gradient starts
  // where the previous one ends.
  enum class Places { kAllocated, kAdjacent };
  static absl::StatusOr<GpuGradients> Create(const ModelShapes& model, Gpu* gpu, Places places = Places::kAllocated);

  struct Tensor {
    float* data;
    size_t count;  // elements
  };
  const std::vector<Tensor>& tensors() const { return tensors_; }  // in the model's order
  size_t bytes() const { return bytes_; }                          // of the elements

 private:
  GpuGradients() = default;

  std::vector<Tensor> tensors_;
  size_t bytes_ = 0;
  DeviceMemory memory_;
};

// Returns the ids of this process's threads in ascending order.
std::vector<pid_t> Threads();

// Returns the CPU time that a thread has used since it started, with nanosecond resolution. The value is up to date
// even while the thread runs on another core. Returns zero if the thread has ended.
absl::Duration CpuTimeOf(pid_t thread);

absl::Duration CpuTimeOfThisThread();

// Returns the CPU time of all threads of this process, including threads that have ended.
absl::Duration CpuTimeOfProcess();

// Returns a line with a measured figure and its target: "packing to float16: 93.1 % of a copy (aim: at least 85 % of a
// copy)". tools/gpu/run.sh builds its table from these lines. REQUIRES: `subject` has no ": ".
inline std::string AimLine(const std::string& subject, const std::string& measured, const std::string& aim) {
  return subject + ": " + measured + " (aim: " + aim + ")\n";
}

}  // namespace ronda::bench

#endif  // RONDA_BENCH_CUDA_GPU_H_
