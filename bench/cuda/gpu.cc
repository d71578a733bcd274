// SPDX-License-Identifier: Apache-2.0

#include "bench/cuda/gpu.h"

#include <dirent.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <memory>

#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "runtime/base/status_macros.h"
#include "runtime/cuda/device.h"

namespace ronda::bench {
namespace {

constexpr size_t kAlignment = 512;  // of the addresses that cudaMalloc returns

size_t RoundedUp(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Two CUDA events that record when work on a stream starts and finishes.
class Span {
 public:
  explicit Span(Device* device) : device_(device) {}
  ~Span() {
    for (void* const event : {begin_, end_}) {
      if (event != nullptr) Call([event](const auto& cuda) { return cuda.destroy_event(event); }).IgnoreError();
    }
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

  absl::Status Begin(StreamHandle stream) { return Mark(&begin_, stream); }
  absl::Status End(StreamHandle stream) { return Mark(&end_, stream); }

  absl::StatusOr<absl::Duration> Elapsed() {
    float ms = 0;
    RONDA_RETURN_IF_ERROR(Call([this](const auto& cuda) { return cuda.synchronize_event(end_); }));
    RONDA_RETURN_IF_ERROR(Call([&](const auto& cuda) { return cuda.elapsed_ms(begin_, end_, &ms); }));
    return absl::Milliseconds(static_cast<double>(ms));
  }

 private:
  template <typename Function>
  absl::Status Call(const Function& function) {
    return device_->Call("timing", function);
  }

  absl::Status Mark(void** event, StreamHandle stream) {
    RONDA_RETURN_IF_ERROR(Call([event](const auto& cuda) { return cuda.create_event(/*timing=*/1, event); }));
    return Call([=](const auto& cuda) { return cuda.record_event(*event, stream); });
  }

  Device* const device_;
  void* begin_ = nullptr;
  void* end_ = nullptr;
};

absl::Duration Read(clockid_t clock) {
  timespec time = {};
  if (clock_gettime(clock, &time) != 0) return absl::ZeroDuration();
  return absl::DurationFromTimespec(time);
}

struct CloseDirectory {
  void operator()(DIR* directory) const { closedir(directory); }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Gpu>> Gpu::Open(int rank) {
  const char* const path = std::getenv("RONDA_CUDA_PLUGIN");
  RONDA_ASSIGN_OR_RETURN(const ronda_cuda_plugin* const plugin, LoadCudaPlugin(path == nullptr ? "" : path));
  RONDA_ASSIGN_OR_RETURN(const int devices, CountDevices(*plugin));
  RONDA_ASSIGN_OR_RETURN(std::shared_ptr<Device> device, Device::Open(plugin, rank % devices));
  RONDA_ASSIGN_OR_RETURN(std::unique_ptr<DeviceStream> stream, DeviceStream::Create(device.get()));
  return std::unique_ptr<Gpu>(new Gpu(std::move(device), devices, std::move(stream)));
}

absl::StatusOr<DeviceMemory> Gpu::Allocate(size_t bytes) {
  RONDA_ASSIGN_OR_RETURN(DeviceMemory memory, device_->Allocate(RONDA_CUDA_DEVICE_MEMORY, bytes, "the benchmark"));
  RONDA_RETURN_IF_ERROR(device_->Call(
      "clearing memory", [&](const auto& cuda) { return cuda.fill_zero(memory.data(), bytes, stream()); }));
  return memory;
}

absl::Status Gpu::Finish() {
  constexpr absl::Duration kPollInterval = absl::Microseconds(50);
  RONDA_ASSIGN_OR_RETURN(const std::unique_ptr<DeviceEvent> end, device_->NewEvent());
  RONDA_RETURN_IF_ERROR(end->Record(stream()));
  for (;;) {
    RONDA_ASSIGN_OR_RETURN(const bool is_done, end->done());
    if (is_done) return absl::OkStatus();
    absl::SleepFor(kPollInterval);
  }
}

absl::StatusOr<absl::Duration> Gpu::Time(const std::string& label, const Submit& submit) {
  Span span(device_.get());
  RONDA_RETURN_IF_ERROR(span.Begin(stream()));
  RONDA_RETURN_IF_ERROR(device_->Call(label, [&](const auto& cuda) { return submit(cuda, stream()); }));
  RONDA_RETURN_IF_ERROR(span.End(stream()));
  return span.Elapsed();
}

absl::StatusOr<GpuGradients> GpuGradients::Create(const ModelShapes& model, Gpu* gpu, Places places) {
  const auto room_for = [places](const Parameter& parameter) {
    const size_t bytes = static_cast<size_t>(parameter.count()) * sizeof(float);
    return places == Places::kAdjacent ? bytes : RoundedUp(bytes);
  };
  size_t total = 0;
  for (const Parameter& parameter : model.parameters) total += room_for(parameter);
  GpuGradients gradients;
  RONDA_ASSIGN_OR_RETURN(gradients.memory_, gpu->Allocate(total));
  std::byte* next = gradients.memory_.data();
  for (const Parameter& parameter : model.parameters) {
    const auto count = static_cast<size_t>(parameter.count());
    gradients.tensors_.push_back({reinterpret_cast<float*>(next), count});
    gradients.bytes_ += count * sizeof(float);
    next += room_for(parameter);
  }
  return gradients;
}

std::vector<pid_t> Threads() {
  std::vector<pid_t> threads;
  const std::unique_ptr<DIR, CloseDirectory> tasks(opendir("/proc/self/task"));
  if (tasks == nullptr) return threads;
  while (const dirent* const entry = readdir(tasks.get())) {
    pid_t thread = 0;
    if (absl::SimpleAtoi(absl::string_view(entry->d_name), &thread)) threads.push_back(thread);
  }
  std::sort(threads.begin(), threads.end());
  return threads;
}

// The argument of Read() is the kernel's clock id for the thread, the same that pthread_getcpuclockid() returns. The
// high bits are the complement of the thread id. The bit with value 4 selects a thread rather than a process. The bit
// with value 2 selects the scheduler's clock.
absl::Duration CpuTimeOf(pid_t thread) {
  return Read(static_cast<clockid_t>((~static_cast<unsigned>(thread) << 3) | 6));
}

absl::Duration CpuTimeOfThisThread() { return Read(CLOCK_THREAD_CPUTIME_ID); }

absl::Duration CpuTimeOfProcess() { return Read(CLOCK_PROCESS_CPUTIME_ID); }

}  // namespace ronda::bench
