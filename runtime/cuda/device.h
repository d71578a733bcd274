// SPDX-License-Identifier: Apache-2.0

// A GPU and its streams, events and memory, through the CUDA plugin (plugin.h).
#ifndef RONDA_RUNTIME_CUDA_DEVICE_H_
#define RONDA_RUNTIME_CUDA_DEVICE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "runtime/base/mutex.h"
#include "runtime/cuda/plugin.h"

namespace ronda {

// The plugin's file name.
inline constexpr char kCudaPluginName[] = "libronda_cuda.so";

// Loads the plugin for CUDA devices from `path` (RONDA_CUDA_PLUGIN) or, if `path` is empty, from the plugin folders
// (runtime/base/plugin_search.h). Never unloads it. The plugin can be loaded even without a driver or a device.
//
// Errors: NOT_FOUND that names the paths it tried and the remedy; FAILED_PRECONDITION if the plugin has the wrong
// version.
absl::StatusOr<const ronda_cuda_plugin*> LoadCudaPlugin(const std::string& path);

// Describes the plugin's devices for --check-build, for example "2 devices: NVIDIA H200, NVIDIA H200 (CUDA runtime
// 13.0, driver 13.0)".
// Errors: UNAVAILABLE with the driver's text if there is no driver or no device.
absl::StatusOr<std::string> DescribeDevices(const ronda_cuda_plugin& plugin);

class Device;

// cudaStream_t; nullptr is the default stream.
using StreamHandle = void*;

// A stream of Ronda's own, with the highest priority.
//
// Thread-compatible. The device must outlive the stream.
class DeviceStream {
 public:
  static absl::StatusOr<std::unique_ptr<DeviceStream>> Create(Device* device);
  ~DeviceStream();

  StreamHandle handle() const { return handle_; }

 private:
  DeviceStream(Device* device, StreamHandle handle) : device_(device), handle_(handle) {}

  Device* const device_;
  const StreamHandle handle_;
};

// Marks a point in a stream's work (a CUDA event). Created by Device::NewEvent(). The destructor returns the event to
// the device for reuse.
//
// Thread-compatible, except done() and Wait(), which are thread-safe. The device must outlive the event.
class DeviceEvent {
 public:
  // A timed event records when the device passes it, which costs the device a little time.
  enum class Kind : uint8_t { kOrder, kTimed };

  ~DeviceEvent();

  // Places the point after all work enqueued on `stream` so far.
  absl::Status Record(StreamHandle stream);
  // Makes all later work on `stream` wait until the device has passed the point. Does not block.
  absl::Status OrderBefore(StreamHandle stream) const;
  // Returns whether the device has passed the point.
  // Errors: INTERNAL if the device had an error before the point.
  absl::StatusOr<bool> done() const;
  // Blocks until the device has passed the point.
  // Errors: as done().
  absl::Status Wait() const;
  // Returns how long after `earlier` the device passed this point. Accurate to about half a microsecond; less accurate
  // for a second or more.
  // REQUIRES: both events are timed.
  // Errors: INTERNAL for a driver error, or if the device has not passed both points.
  absl::StatusOr<absl::Duration> Since(const DeviceEvent& earlier) const;

 private:
  friend class Device;
  DeviceEvent(Device* device, Kind kind, void* handle) : device_(device), kind_(kind), handle_(handle) {}

  Device* const device_;
  const Kind kind_;
  void* const handle_;
};

// During the lifetime of a DeviceRange, profilers show a named span of the calling thread, and the work that the thread
// enqueues on the GPU within it. A thread must destroy its ranges in the reverse order of their creation.
class DeviceRange {
 public:
  DeviceRange(const ronda_cuda_plugin& plugin, const std::string& name) : plugin_(plugin) {
    plugin_.begin_range(name.c_str());
  }
  ~DeviceRange() { plugin_.end_range(); }
  DeviceRange(const DeviceRange&) = delete;
  DeviceRange& operator=(const DeviceRange&) = delete;

 private:
  const ronda_cuda_plugin& plugin_;
};

// Device memory, or host memory that the device can address.
//
// The device must outlive the memory.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(DeviceMemory&& other) noexcept;
  DeviceMemory& operator=(DeviceMemory&& other) noexcept;
  ~DeviceMemory();

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }

  // Prevents this object from freeing the memory. While the device may still use it, freeing it would wait for the
  // device, perhaps for ever.
  void Abandon() { data_ = nullptr; }

 private:
  friend class Device;
  DeviceMemory(Device* device, ronda_cuda_memory kind, std::byte* data, size_t size)
      : device_(device), kind_(kind), data_(data), size_(size) {}

  Device* device_ = nullptr;
  ronda_cuda_memory kind_ = RONDA_CUDA_DEVICE_MEMORY;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// Returns the number of devices that this process can use, at least one.
// Errors: UNAVAILABLE with the driver's text if there is no driver or no device.
absl::StatusOr<int> CountDevices(const ronda_cuda_plugin& plugin);

// A rank's GPU, used through the plugin (plugin.h).
//
// Thread-safe. Every function makes the device the calling thread's current CUDA device during the call, and then
// restores the trainer's device. A caller of several functions can keep the device current between them with a Current
// object.
class Device {
 public:
  // During the lifetime of a Current object, the device stays current in the calling thread, and the device's functions
  // neither query nor change the current device. Meanwhile the thread must not run the trainer's code. A thread must
  // destroy its Current objects in the reverse order of their creation.
  class Current {
   public:
    explicit Current(Device* device);
    ~Current();
    Current(const Current&) = delete;
    Current& operator=(const Current&) = delete;

    int error() const { return error_; }

   private:
    Device* const device_;
    Device* const outer_;  // the device that an outer Current keeps current, or that the thread has adopted
    int before_ = -1;      // the trainer's device; -1: not known yet
    int error_ = 0;
  };

  // Makes the device permanently current in the calling thread. Only for threads that Ronda started, and that end
  // before the device is destroyed.
  void Adopt();

  // Opens this machine's device `ordinal`. `plugin` must outlive the device.
  // Errors: UNAVAILABLE with the driver's text if there is no driver; NOT_FOUND that gives the number of devices.
  static absl::StatusOr<std::shared_ptr<Device>> Open(const ronda_cuda_plugin* plugin, int ordinal);
  ~Device();

  int ordinal() const { return ordinal_; }

  // How long a rank waits for the device's work at the end of a job before it abandons the device. Must be set before
  // other threads use the device.
  static constexpr absl::Duration kTimeout = absl::Seconds(2);
  absl::Duration timeout() const { return timeout_; }
  void set_timeout(absl::Duration timeout) { timeout_ = timeout; }

  // Returns for example "NVIDIA H200, cuda:0".
  const std::string& name() const { return name_; }
  const ronda_cuda_plugin& plugin() const { return *plugin_; }

  // Allocates memory. Errors: RESOURCE_EXHAUSTED that gives the size, the kind of memory and `purpose` ("the fusion
  // buffer").
  absl::StatusOr<DeviceMemory> Allocate(ronda_cuda_memory kind, size_t bytes, absl::string_view purpose);

  // Reuses a returned event, or creates one if there is none.
  absl::StatusOr<std::unique_ptr<DeviceEvent>> NewEvent(DeviceEvent::Kind kind = DeviceEvent::Kind::kOrder);

  // Must be called when a thread has given up waiting for the device. Logs `why`. From then on, Ronda frees nothing on
  // the device, because freeing memory also waits for the device. Ronda's memory and unfinished work stay on the device
  // until the process exits.
  void Abandon(absl::string_view why);
  bool is_abandoned() const { return is_abandoned_.load(std::memory_order_acquire); }

  // Must be called when the job has failed while a stream of the trainer waits for the job's work. Leaves this work
  // unfinished until the process exits, and abandons the device: if Ronda aborted the work, the trainer's stream would
  // continue with a wrong result. Returns whether this is the first call.
  bool Hold(absl::string_view why);
  bool is_held() const { return is_held_.load(std::memory_order_acquire); }

  // Checks that the device is usable. Errors: INTERNAL if it has been abandoned. The text names the device and the
  // reason, and says that this process cannot use the device again.
  absl::Status CheckUsable() const;

  // Calls `function`, which frees memory or another device resource, unless the device has been abandoned. Logs errors,
  // because the caller cannot handle them.
  template <typename Function>
  void GiveBack(absl::string_view what, const Function& function) {
    if (!is_abandoned()) LogIfError(Call(what, function));
  }

  // Calls a function of the plugin, with the device current:
  //  device->Call("the pack kernel", [&](const ronda_cuda_plugin& cuda) { return cuda.pack(&call, stream); })
  // Errors: INTERNAL "cuda:0: the pack kernel: <the driver's words>".
  template <typename Function>
  absl::Status Call(absl::string_view what, const Function& function) {
    const Current current(this);
    return ToStatus(what, current.error() != 0 ? current.error() : function(*plugin_));
  }

 private:
  Device(const ronda_cuda_plugin* plugin, int ordinal, std::string name)
      : plugin_(plugin), ordinal_(ordinal), name_(std::move(name)) {}

  friend class DeviceEvent;
  friend class DeviceMemory;
  friend class DeviceStream;

  absl::Status ToStatus(absl::string_view what, int error) const;
  static void LogIfError(const absl::Status& status);
  void Recycle(DeviceEvent::Kind kind, void* event);

  const ronda_cuda_plugin* const plugin_;
  const int ordinal_;
  const std::string name_;
  absl::Duration timeout_ = kTimeout;
  std::atomic<bool> is_abandoned_{false};
  std::atomic<bool> is_held_{false};
  mutable Mutex mu_;
  std::string why_abandoned_ ABSL_GUARDED_BY(mu_);
  std::vector<void*> idle_events_[2] ABSL_GUARDED_BY(mu_);  // by kind
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_CUDA_DEVICE_H_
