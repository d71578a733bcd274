#ifndef RONDA_BENCH_CUDA_GPU_H_
#define RONDA_BENCH_CUDA_GPU_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "bench/shapes/shapes.h"
#include "runtime/cuda/device.h"

namespace ronda::bench {

// The GPU that a benchmark uses, and a stream of it. It comes with Ronda's plugin, which may also be one whose devices
// are the CPU: then what is measured is the benchmark itself.
//
// Thread-compatible.
class Gpu {
 public:
  // A rank's GPU: ranks of a host share GPUs if they have to. `rank` is that on its host.
  // Errors: those of LoadCudaPlugin(), CountDevices() and Device::Open().
  static absl::StatusOr<std::unique_ptr<Gpu>> Open(int rank);

  const std::string& name() const { return device_->name(); }
  int devices() const { return devices_; }  // of this host
  StreamHandle stream() const { return stream_->handle(); }

  // Filled with zeros once the stream comes to it.
  absl::StatusOr<DeviceMemory> Allocate(size_t bytes);

  // Sleeps until the stream has done what it has been given: uses no CPU to speak of.
  absl::Status Finish();

  // How long the stream takes for what `submit` gives it, by the device's own clock. Waits for it.
  using Submit = std::function<int(const ronda_cuda_plugin& cuda, StreamHandle stream)>;
  absl::StatusOr<absl::Duration> Time(const std::string& what, const Submit& submit);

 private:
  Gpu(std::shared_ptr<Device> device, int devices, std::unique_ptr<DeviceStream> stream)
      : device_(std::move(device)), devices_(devices), stream_(std::move(stream)) {}

  const std::shared_ptr<Device> device_;
  const int devices_;
  const std::unique_ptr<DeviceStream> stream_;
};

// A model's gradients, float32, in memory of a GPU, each where an allocator would have put it. The GPU must outlive
// them.
class GpuGradients {
 public:
  static absl::StatusOr<GpuGradients> Create(const ModelShapes& model, Gpu* gpu);

  struct Place {
    float* data;
    size_t count;  // elements
  };
  const std::vector<Place>& places() const { return places_; }  // in the model's order
  size_t bytes() const { return bytes_; }                       // of the elements

 private:
  GpuGradients() = default;

  std::vector<Place> places_;
  size_t bytes_ = 0;
  DeviceMemory memory_;
};

}  // namespace ronda::bench

#endif  // RONDA_BENCH_CUDA_GPU_H_
