// SPDX-License-Identifier: Apache-2.0

#include "runtime/cuda/device.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/bytes_text.h"
#include "runtime/base/logging.h"
#include "runtime/base/plugin_search.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

std::string ErrorText(const ronda_cuda_plugin& plugin, int error) {
  char text[256];
  plugin.error_text(error, text, sizeof(text));
  return text;
}

// The device that a Current object, or Adopt(), keeps current in this thread.
thread_local Device* kept = nullptr;

const char* Name(ronda_cuda_memory kind) {
  return kind == RONDA_CUDA_DEVICE_MEMORY ? "device memory" : "pinned host memory";
}

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceStream>> DeviceStream::Create(Device* device) {
  StreamHandle handle = nullptr;
  RONDA_RETURN_IF_ERROR(device->Call("creating a stream",
                                     [&handle](const ronda_cuda_plugin& cuda) { return cuda.create_stream(&handle); }));
  return std::unique_ptr<DeviceStream>(new DeviceStream(device, handle));
}

DeviceStream::~DeviceStream() {
  device_->GiveBack("destroying a stream",
                    [this](const ronda_cuda_plugin& cuda) { return cuda.destroy_stream(handle_); });
}

DeviceEvent::~DeviceEvent() { device_->Recycle(kind_, handle_); }

absl::Status DeviceEvent::Record(StreamHandle stream) {
  return device_->Call("recording an event",
                       [&](const ronda_cuda_plugin& cuda) { return cuda.record_event(handle_, stream); });
}

absl::Status DeviceEvent::OrderBefore(StreamHandle stream) const {
  return device_->Call("having a stream wait",
                       [&](const ronda_cuda_plugin& cuda) { return cuda.wait_event(stream, handle_); });
}

absl::StatusOr<bool> DeviceEvent::done() const {
  int is_done = 0;
  RONDA_RETURN_IF_ERROR(device_->Call(
      "earlier work", [&](const ronda_cuda_plugin& cuda) { return cuda.query_event(handle_, &is_done); }));
  return is_done != 0;
}

absl::Status DeviceEvent::Wait() const {
  return device_->Call("earlier work",
                       [this](const ronda_cuda_plugin& cuda) { return cuda.synchronize_event(handle_); });
}

absl::StatusOr<absl::Duration> DeviceEvent::Since(const DeviceEvent& earlier) const {
  float milliseconds = 0;
  RONDA_RETURN_IF_ERROR(device_->Call("the time between events", [&](const ronda_cuda_plugin& cuda) {
    return cuda.elapsed_ms(earlier.handle_, handle_, &milliseconds);
  }));
  return absl::Milliseconds(milliseconds);
}

DeviceMemory::DeviceMemory(DeviceMemory&& other) noexcept { *this = std::move(other); }

DeviceMemory& DeviceMemory::operator=(DeviceMemory&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(kind_, other.kind_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

DeviceMemory::~DeviceMemory() {
  if (data_ == nullptr) return;
  device_->GiveBack("freeing memory", [this](const ronda_cuda_plugin& cuda) { return cuda.release(kind_, data_); });
}

absl::StatusOr<int> CountDevices(const ronda_cuda_plugin& plugin) {
  int count = 0;
  const int error = plugin.device_count(&count);
  if (error == 0 && count > 0) return count;
  return absl::UnavailableError(
      absl::StrCat("no CUDA device: ", error == 0 ? "the driver knows none" : ErrorText(plugin, error), " (",
                   plugin.library(), ")"));
}

absl::StatusOr<std::shared_ptr<Device>> Device::Open(const ronda_cuda_plugin* plugin, int ordinal) {
  RONDA_ASSIGN_OR_RETURN(const int count, CountDevices(*plugin));
  if (ordinal < 0 || ordinal >= count) {
    return absl::NotFoundError(absl::StrCat("there is no cuda:", ordinal, ": this machine has ", count,
                                            " CUDA devices that this process may use"));
  }
  ronda_cuda_device description;
  if (const int error = plugin->describe(ordinal, &description); error != 0) {
    return absl::UnavailableError(absl::StrCat("cuda:", ordinal, ": ", ErrorText(*plugin, error)));
  }
  return std::shared_ptr<Device>(new Device(plugin, ordinal, absl::StrCat(description.name, ", cuda:", ordinal)));
}

Device::~Device() {
  std::vector<void*> idle;
  {
    const MutexLock lock(&mu_);
    for (const std::vector<void*>& events : idle_events_) idle.insert(idle.end(), events.begin(), events.end());
  }
  for (void* event : idle) {
    GiveBack("destroying an event", [event](const ronda_cuda_plugin& cuda) { return cuda.destroy_event(event); });
  }
}

absl::StatusOr<DeviceMemory> Device::Allocate(ronda_cuda_memory kind, size_t bytes, absl::string_view purpose) {
  void* data = nullptr;
  const absl::Status status =
      Call("allocating", [&](const ronda_cuda_plugin& cuda) { return cuda.allocate(kind, bytes, &data); });
  if (status.ok()) return DeviceMemory(this, kind, static_cast<std::byte*>(data), bytes);
  return absl::ResourceExhaustedError(
      absl::StrCat(status.message(), ": ", BytesText(bytes), " of ", Name(kind), " for ", purpose));
}

absl::StatusOr<std::unique_ptr<DeviceEvent>> Device::NewEvent(DeviceEvent::Kind kind) {
  const auto place = static_cast<size_t>(kind);
  {
    const MutexLock lock(&mu_);
    if (!idle_events_[place].empty()) {
      void* const handle = idle_events_[place].back();
      idle_events_[place].pop_back();
      return std::unique_ptr<DeviceEvent>(new DeviceEvent(this, kind, handle));
    }
  }
  void* handle = nullptr;
  const int timing = kind == DeviceEvent::Kind::kTimed ? 1 : 0;
  RONDA_RETURN_IF_ERROR(
      Call("creating an event", [&](const ronda_cuda_plugin& cuda) { return cuda.create_event(timing, &handle); }));
  return std::unique_ptr<DeviceEvent>(new DeviceEvent(this, kind, handle));
}

Device::Current::Current(Device* device) : device_(device), outer_(kept) {
  if (outer_ == device) return;
  error_ = device->plugin_->current_device(&before_);
  if (error_ == 0 && before_ != device->ordinal_) error_ = device->plugin_->use_device(device->ordinal_);
  if (error_ == 0) kept = device;
}

void Device::Adopt() {
  if (kept != this && plugin_->use_device(ordinal_) == 0) kept = this;
}

Device::Current::~Current() {
  kept = outer_;
  if (before_ >= 0 && before_ != device_->ordinal_) device_->plugin_->restore_device(before_);
}

void Device::Abandon(absl::string_view why) {
  {
    const MutexLock lock(&mu_);
    if (is_abandoned_.exchange(true, std::memory_order_acq_rel)) return;
    why_abandoned_ = std::string(why);
  }
  Log(LogLevel::kWarning, -1,
      absl::StrCat(name_, " is left alone, and the memory that Ronda has there is not freed: ", why));
}

bool Device::Hold(absl::string_view why) {
  if (is_held_.exchange(true, std::memory_order_acq_rel)) return false;
  Abandon(why);
  return true;
}

absl::Status Device::CheckUsable() const {
  const MutexLock lock(&mu_);
  if (!is_abandoned()) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(
      name_, " cannot be used by this process any more (", why_abandoned_,
      "): end the process, which gives the device back; another process can then use it in the place of this one"));
}

void Device::LogIfError(const absl::Status& status) {
  if (!status.ok()) Log(LogLevel::kWarning, -1, status.message());
}

absl::Status Device::ToStatus(absl::string_view what, int error) const {
  if (error == 0) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("cuda:", ordinal_, ": ", what, ": ", ErrorText(*plugin_, error)));
}

void Device::Recycle(DeviceEvent::Kind kind, void* event) {
  const MutexLock lock(&mu_);
  idle_events_[static_cast<size_t>(kind)].push_back(event);
}

absl::StatusOr<const ronda_cuda_plugin*> LoadCudaPlugin(const std::string& path) {
  const PluginDescription plugin = {.kind = "CUDA plugin",
                                    .file = kCudaPluginName,
                                    .variable = "RONDA_CUDA_PLUGIN",
                                    .needs = "NVIDIA's driver to find a device",
                                    .symbol = RONDA_CUDA_PLUGIN_SYMBOL,
                                    .version = RONDA_CUDA_PLUGIN_VERSION};
  RONDA_ASSIGN_OR_RETURN(const void* const table, LoadPlugin(plugin, path));
  return static_cast<const ronda_cuda_plugin*>(table);
}

absl::StatusOr<std::string> DescribeDevices(const ronda_cuda_plugin& plugin) {
  RONDA_ASSIGN_OR_RETURN(const int count, CountDevices(plugin));
  std::vector<std::string> names;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    ronda_cuda_device device;
    if (plugin.describe(ordinal, &device) == 0) names.emplace_back(device.name);
  }
  return absl::StrCat(count, count == 1 ? " device: " : " devices: ", absl::StrJoin(names, ", "), " (",
                      plugin.library(), ")");
}

}  // namespace ronda
