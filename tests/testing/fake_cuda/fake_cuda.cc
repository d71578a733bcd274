// SPDX-License-Identifier: Apache-2.0

#include "tests/testing/fake_cuda/fake_cuda.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "runtime/base/logging.h"
#include "tests/testing/fake_cuda/fake_calls.h"
#include "tests/testing/fake_cuda/fake_kernels.h"
#include "tests/testing/fake_cuda/fake_machine.h"
#include "tests/testing/fake_cuda/fake_sharing.h"

namespace ronda::testing {
namespace {

// There is one machine per process, because CUDA's functions, and thus the fake's, take no machine as an argument.
std::atomic<FakeMachine*> the_machine{nullptr};

}  // namespace

FakeMachine& Machine() {
  FakeMachine* const machine = the_machine.load();
  RONDA_CHECK(machine != nullptr);
  return *machine;
}

namespace {

template <typename Action>
int WithEvent(void* handle, const Action& action) {
  if (const int error = CurrentError(); error != 0) return error;
  const std::shared_ptr<FakeEvent> event = Machine().EventOf(handle);
  return event == nullptr ? kCudaInvalidHandle : action(event);
}

const char* Library() { return "fake CUDA runtime"; }

void ErrorText(int error, char* text, size_t size) {
  const char* known = nullptr;
  switch (error) {
    case kCudaInvalidValue:
      known = "invalid argument";
      break;
    case kCudaOutOfMemory:
      known = "out of memory";
      break;
    case kCudaInsufficientDriver:
      known = "CUDA driver version is insufficient for CUDA runtime version";
      break;
    case kCudaNoDevice:
      known = "no CUDA-capable device is detected";
      break;
    case kCudaInvalidDevice:
      known = "invalid device ordinal";
      break;
    case kCudaInvalidHandle:
      known = "invalid resource handle";
      break;
    case kCudaCaptureUnsupported:
      known = "operation not permitted when stream is capturing";
      break;
    case kCudaCaptureInvalidated:
      known = "operation failed due to a previous error during capture";
      break;
    case kCudaCaptureIsolation:
      known = "dependency created on uncaptured work in another stream";
      break;
    case kCudaCaptureImplicit:
      known = "operation would make the legacy stream depend on a capturing blocking stream";
      break;
    case kCudaCapturedEvent:
      known = "operation not permitted on an event last recorded in a capturing stream";
      break;
    case kCudaLaunchTimeout:
      known = "the launch timed out and was terminated";
      break;
    case kCudaAlreadyRegistered:
      known = "part or all of the requested memory range is already mapped";
      break;
    case kCudaNotSupported:
      known = "operation not supported";
      break;
    case kCudaIllegalAddress:
      known = "an illegal memory access was encountered";
      break;
    default:
      known = "unknown error";
  }
  std::snprintf(text, size, "%s", known);
}

int DeviceCount(int* count) {
  const FakeCuda::Options& options = Machine().options();
  *count = 0;
  if (options.driver_error != kCudaSuccess) return options.driver_error;
  *count = options.devices;
  return options.devices == 0 ? kCudaNoDevice : kCudaSuccess;
}

int Describe(int device, ronda_cuda_device* description) {
  if (const int error = Machine().ErrorOf(device); error != 0) return error;
  *description = {.capability_major = 9,
                  .capability_minor = 0,
                  .multiprocessors = 2,
                  .memory_bytes = Machine().options().memory_bytes};
  const int parts = Machine().options().parts;
  std::snprintf(description->name, sizeof(description->name), "fake GPU");
  std::snprintf(description->pci_bus, sizeof(description->pci_bus), "0000:%02x:00.0", device / parts);
  // Devices that are whole GPUs have no UUID, so that tests can treat the fake devices of different processes as
  // devices of different hosts.
  if (parts > 1) std::snprintf(description->uuid, sizeof(description->uuid), "fa4e0000-0000-4000-8000-%012d", device);
  return kCudaSuccess;
}

int UseDevice(int device) {
  ++this_threads_changes;
  if (const int error = Machine().ErrorOf(device); error != 0) return error;
  Machine().OpenContext(device);
  this_threads_device = device;
  return kCudaSuccess;
}

int RestoreDevice(int device) {
  ++this_threads_changes;
  this_threads_device = device;
  return kCudaSuccess;
}

int CurrentDevice(int* device) {
  *device = this_threads_device;
  return Machine().options().driver_error;
}

int PrepareDevice() {
  if (const int error = CurrentError(); error != 0) return error;
  Machine().LoadKernels(this_threads_device);
  return kCudaSuccess;
}

int DeviceOf(const void* pointer, int* device) {
  *device = Machine().memory().DeviceOf(pointer);
  return Machine().options().driver_error;
}

int OwnerOf(ronda_cuda_memory kind) {
  return kind == RONDA_CUDA_DEVICE_MEMORY ? this_threads_device : FakeMemory::kPinnedHost;
}

int Allocate(ronda_cuda_memory kind, size_t bytes, void** memory) {
  *memory = nullptr;
  if (const int error = ErrorOfOpening(); error != 0) return error;
  WaitBeforeAllocation();
  *memory = Machine().memory().Allocate(OwnerOf(kind), bytes);
  return *memory == nullptr ? kCudaOutOfMemory : kCudaSuccess;
}

int Release(ronda_cuda_memory kind, void* memory) {
  WaitBeforeFree();
  const bool is_released = memory == nullptr || Machine().Release(OwnerOf(kind), memory);
  return is_released ? CurrentError() : kCudaInvalidValue;
}

int CreateStream(void** stream) {
  *stream = nullptr;
  if (const int error = ErrorOfOpening(); error != 0) return error;
  *stream = Machine().CreateStream(this_threads_device);
  return kCudaSuccess;
}

int DestroyStream(void* stream) { return Machine().DestroyStream(stream) ? CurrentError() : kCudaInvalidHandle; }

int IsCapturing(void* handle, int* capturing) {
  return WithStream(handle, [&](FakeStream& stream) {
    const bool is_default = handle == nullptr;
    const bool is_captured =
        is_default ? Machine().CaptureBesideDefaultStream(stream.device()) != nullptr : stream.capture() != nullptr;
    *capturing = is_captured ? 1 : stream.capturing();
    return kCudaSuccess;
  });
}

int StreamId(void* handle, uint64_t* id) {
  return WithStream(handle, [&](FakeStream& stream) {
    if (stream.capture() != nullptr) return kCudaCaptureUnsupported;
    *id = stream.id();
    return kCudaSuccess;
  });
}

int CreateEvent(int timing, void** event) {
  *event = nullptr;
  if (const int error = ErrorOfOpening(); error != 0) return error;
  *event = Machine().CreateEvent(this_threads_device, timing != 0);
  return kCudaSuccess;
}

int DestroyEvent(void* event) { return Machine().DestroyEvent(event) ? CurrentError() : kCudaInvalidHandle; }

int RecordEvent(void* handle, void* stream) {
  return WithEvent(handle, [stream](const std::shared_ptr<FakeEvent>& event) {
    return WithStreamForWork(stream, [&](FakeStream& known) -> int {
      if (known.device() != event->device()) return kCudaInvalidHandle;
      if (auto capture = known.capture()) {
        if (!capture->is_valid()) return kCudaCaptureInvalidated;
        event->RecordCaptured({.capture = capture, .nodes = capture->EndsOf(known.id())});
        return kCudaSuccess;
      }
      return known.Enqueue([event, recording = event->Record()] { event->Pass(recording); });
    });
  });
}

// Makes a stream wait for an event, if the stream or the event belongs to a capture.
int WaitWithinCapture(FakeStream& stream, const FakeEvent& event, const FakeEvent::Captured& captured) {
  const std::shared_ptr<FakeCapture> own = stream.capture();
  if (captured.capture == nullptr) {
    return event.last_recording() == 0 ? kCudaSuccess : own->Invalidate(kCudaCaptureIsolation);
  }
  if (captured.capture->is_over()) return kCudaCapturedEvent;
  if (own != nullptr && own != captured.capture) {
    captured.capture->Invalidate(kCudaCaptureMerge);
    return own->Invalidate(kCudaCaptureMerge);
  }
  const int error = captured.capture->Join(stream.id(), captured.nodes);
  if (error == kCudaSuccess && own == nullptr) stream.set_capture(captured.capture);
  return error;
}

int WaitEvent(void* handle_of_stream, void* handle) {
  return WithEvent(handle, [handle_of_stream](const std::shared_ptr<FakeEvent>& event) {
    return WithStreamForWork(handle_of_stream, [&](FakeStream& stream) {
      const FakeEvent::Captured captured = event->captured();
      if (captured.capture != nullptr || stream.capture() != nullptr) {
        return WaitWithinCapture(stream, *event, captured);
      }
      const auto wait = [event, recording = event->last_recording()] { event->AwaitPassing(recording); };
      return stream.Enqueue(wait, FakeStream::Task::kWait);
    });
  });
}

// Returns an error if the event was captured, because a query or wait for such an event would never succeed.
int ErrorOfAsking(const FakeEvent& event) {
  const std::shared_ptr<FakeCapture> capture = event.captured().capture;
  return capture == nullptr ? CurrentError() : capture->Invalidate(kCudaCapturedEvent);
}

int QueryEvent(void* handle, int* done) {
  return WithEvent(handle, [done](const std::shared_ptr<FakeEvent>& event) {
    *done = event->IsPassed(event->last_recording()) ? 1 : 0;
    if (*done == 0) ++this_threads_waits;
    // Also reports errors of the stream's work before the event.
    return ErrorOfAsking(*event);
  });
}

int SynchronizeEvent(void* handle) {
  ++this_threads_waits;
  return WithEvent(handle, [](const std::shared_ptr<FakeEvent>& event) {
    event->AwaitPassing(event->last_recording());
    return ErrorOfAsking(*event);
  });
}

int ElapsedMs(void* begin, void* end, float* ms) {
  return WithEvent(begin, [&](const std::shared_ptr<FakeEvent>& first) {
    return WithEvent(end, [&](const std::shared_ptr<FakeEvent>& last) -> int {
      if (!first->has_times() || !last->has_times()) return kCudaInvalidHandle;
      if (first->device() != last->device()) return kCudaInvalidHandle;
      *ms = static_cast<float>(absl::ToDoubleMilliseconds(last->passed_at() - first->passed_at()));
      return kCudaSuccess;
    });
  });
}

int Copy(void* dst, const void* src, size_t bytes, void* handle) {
  return WithStreamForWork(handle, [&](FakeStream& stream) -> int {
    if (bytes == 0) return kCudaSuccess;
    void* const to = Machine().memory().ViewOf(stream.device(), dst, bytes);
    const void* const from = Machine().memory().ViewOf(stream.device(), src, bytes);
    if (to == nullptr || from == nullptr) return kCudaInvalidValue;
    return stream.Enqueue([=, device = stream.device()] {
      if (Machine().MayUse(device, {dst, src})) std::memcpy(to, from, bytes);
    });
  });
}

int FillZero(void* dst, size_t bytes, void* handle) {
  return WithStreamForWork(handle, [&](FakeStream& stream) -> int {
    if (bytes == 0) return kCudaSuccess;
    void* const to = Machine().memory().ViewOf(stream.device(), dst, bytes);
    if (to == nullptr) return kCudaInvalidValue;
    return stream.Enqueue([=, device = stream.device()] {
      if (Machine().MayUse(device, {dst})) std::memset(to, 0, bytes);
    });
  });
}

// Launches a kernel. As in CUDA, the launch copies the parameters, and the kernel runs when the stream reaches it.
template <typename Call>
int Launch(const Call* call, void* handle) {
  return WithStreamForWork(handle, [&](FakeStream& stream) -> int {
    if (stream.device() != this_threads_device) return kCudaInvalidHandle;
    PreparedKernel kernel = PrepareKernel(*call, stream.device(), Machine().memory());
    if (kernel.run == nullptr) return kCudaInvalidValue;
    if (!Machine().HasKernels(stream.device())) {
      ++this_threads_waits;
      Machine().AwaitDevice(stream.device());
    }
    return stream.Enqueue([kernel = std::move(kernel), device = stream.device()] {
      if (!Machine().MayUse(device, kernel.memory)) return;
      kernel.run();
      Machine().calls().finished_kernels.fetch_add(1);
    });
  });
}

thread_local int this_threads_ranges = 0;

void BeginRange(const char* name) {
  ++this_threads_ranges;
  Machine().RecordRange(name);
}

void EndRange() { RONDA_CHECK(--this_threads_ranges >= 0); }

// Wraps a function of the table, and counts its calls. Functions that get or change the current device are not wrapped,
// because the number of their calls depends on which thread reaches a bucket first, and on that thread's current
// device.
int counted_functions = 0;

template <auto kFunction>
struct Counted;
template <typename... Arguments, int (*kFunction)(Arguments...)>
struct Counted<kFunction> {
  static inline const int number = counted_functions++;

  static int Call(Arguments... arguments) {
    Machine().calls().all.fetch_add(1);
    Machine().calls().of_function[number].fetch_add(1);
    return kFunction(arguments...);
  }
};

template <auto kFunction>
size_t CallsOf() {
  return Machine().calls().of_function[Counted<kFunction>::number];
}

constexpr ronda_cuda_plugin kTable = {.version = RONDA_CUDA_PLUGIN_VERSION,
                                      .library = Library,
                                      .error_text = ErrorText,
                                      .device_count = Counted<DeviceCount>::Call,
                                      .describe = Counted<Describe>::Call,
                                      .use_device = UseDevice,
                                      .current_device = CurrentDevice,
                                      .restore_device = RestoreDevice,
                                      .prepare_device = Counted<PrepareDevice>::Call,
                                      .device_of = Counted<DeviceOf>::Call,
                                      .allocate = Counted<Allocate>::Call,
                                      .release = Counted<Release>::Call,
                                      .sharing_unit = Counted<SharingUnit>::Call,
                                      .allocate_shared = Counted<AllocateShared>::Call,
                                      .map_shared = Counted<MapShared>::Call,
                                      .unmap_shared = Counted<UnmapShared>::Call,
                                      .register_host = Counted<RegisterHost>::Call,
                                      .unregister_host = Counted<UnregisterHost>::Call,
                                      .create_stream = Counted<CreateStream>::Call,
                                      .destroy_stream = Counted<DestroyStream>::Call,
                                      .is_capturing = Counted<IsCapturing>::Call,
                                      .stream_id = Counted<StreamId>::Call,
                                      .create_event = Counted<CreateEvent>::Call,
                                      .destroy_event = Counted<DestroyEvent>::Call,
                                      .record_event = Counted<RecordEvent>::Call,
                                      .wait_event = Counted<WaitEvent>::Call,
                                      .query_event = Counted<QueryEvent>::Call,
                                      .synchronize_event = Counted<SynchronizeEvent>::Call,
                                      .elapsed_ms = Counted<ElapsedMs>::Call,
                                      .copy = Counted<Copy>::Call,
                                      .fill_zero = Counted<FillZero>::Call,
                                      .run_word_ops = Counted<RunWordOps>::Call,
                                      .pack = Counted<Launch<kernels::cuda::PackCall>>::Call,
                                      .unpack = Counted<Launch<kernels::cuda::UnpackCall>>::Call,
                                      .reduce = Counted<Launch<kernels::cuda::ReduceCall>>::Call,
                                      .find_non_finite = Counted<Launch<kernels::cuda::NonFiniteCall>>::Call,
                                      .add_scaled = Counted<Launch<kernels::cuda::AddScaledCall>>::Call,
                                      .adasum_dots = Counted<Launch<kernels::cuda::DotsCall>>::Call,
                                      .adasum_combine = Counted<Launch<kernels::cuda::CombineCall>>::Call,
                                      .begin_range = BeginRange,
                                      .end_range = EndRange};

}  // namespace

FakeCuda::FakeCuda(const Options& options) {
  FakeMachine* const before = the_machine.exchange(new FakeMachine(options));
  RONDA_CHECK(before == nullptr);
}

// Clears `the_machine` last, because the streams use it until they end.
FakeCuda::~FakeCuda() {
  while (waiting_frees() + waiting_allocations() > 0) absl::SleepFor(absl::Microseconds(50));
  delete the_machine.load();
  the_machine.store(nullptr);
}

const ronda_cuda_plugin* FakeCuda::table() const { return &kTable; }
void FakeCuda::FailDevice(int device, int error) { Machine().FailDevice(device, error); }
void FakeCuda::SetCapturing(void* stream, int capturing) {
  Machine().StreamOf(stream, this_threads_device)->SetCapturing(capturing);
}
void FakeCuda::FreeOn(void* stream, void* memory) {
  RONDA_CHECK(Enqueue(stream, [=] { RONDA_CHECK(Machine().memory().Free(memory)); }) == kCudaSuccess);
}
size_t FakeCuda::allocations() const { return Machine().memory().allocations(); }
size_t FakeCuda::peak_bytes() const { return Machine().memory().peak_bytes(); }
size_t FakeCuda::created_events() const { return Machine().created_events(); }
size_t FakeCuda::recorded_events() const { return CallsOf<RecordEvent>(); }
size_t FakeCuda::awaited_events() const { return CallsOf<WaitEvent>(); }
size_t FakeCuda::queried_events() const { return CallsOf<QueryEvent>(); }
size_t FakeCuda::finished_kernels() const { return Machine().calls().finished_kernels; }
size_t FakeCuda::zero_fills() const { return CallsOf<FillZero>(); }
size_t FakeCuda::word_batches() const { return CallsOf<RunWordOps>(); }
size_t FakeCuda::looks_at_pointers() const { return CallsOf<DeviceOf>(); }
size_t FakeCuda::looks_at_streams() const { return CallsOf<IsCapturing>() + CallsOf<StreamId>(); }
size_t FakeCuda::calls() const { return Machine().calls().all; }
size_t FakeCuda::HostWaitsOfThisThread() { return this_threads_waits; }
size_t FakeCuda::DeviceChangesOfThisThread() { return this_threads_changes; }
int FakeCuda::waiting_frees() const { return Machine().calls().waiting_frees; }
int FakeCuda::waiting_allocations() const { return Machine().calls().waiting_allocations; }
std::vector<std::string> FakeCuda::TakeRanges() { return Machine().TakeRanges(); }
std::string FakeCuda::Leaks() const { return Machine().Leaks(); }

struct StreamHold::Gate {
  Mutex mu;
  CondVar opened;
  bool is_open ABSL_GUARDED_BY(mu) = false;
};

StreamHold::StreamHold(void* stream) : gate_(std::make_shared<Gate>()) {
  const int error = Enqueue(stream, [gate = gate_] {
    const MutexLock lock(&gate->mu);
    while (!gate->is_open) gate->opened.Wait(&gate->mu);
  });
  RONDA_CHECK(error == kCudaSuccess);
}

void StreamHold::Release() {
  {
    const MutexLock lock(&gate_->mu);
    gate_->is_open = true;
  }
  gate_->opened.NotifyAll();
}

std::string ReadDevice(const void* memory, size_t bytes) {
  return std::string(static_cast<const char*>(fake_cuda_view(memory)), bytes);
}

void WriteDevice(void* memory, absl::string_view content) {
  content.copy(static_cast<char*>(fake_cuda_view(memory)), content.size());
}

}  // namespace ronda::testing

int fake_cuda_enqueue(void* stream, void (*function)(void*), void* context) {
  return ronda::testing::Enqueue(stream, [=] { function(context); });
}

void* fake_cuda_view(const void* address) { return ronda::testing::Machine().memory().AnyViewOf(address); }
int fake_cuda_device_of(const void* address) { return ronda::testing::Machine().memory().DeviceOf(address); }
int fake_cuda_is_pinned(const void* address) { return ronda::testing::Machine().memory().IsPinned(address) ? 1 : 0; }

void fake_cuda_wait_before_free() { ronda::testing::WaitBeforeFree(); }

int fake_cuda_is_idle(void* stream, int* idle) {
  return ronda::testing::WithStream(stream, [=](const ronda::testing::FakeStream& known) {
    *idle = known.IsIdle() ? 1 : 0;
    return ronda::testing::kCudaSuccess;
  });
}

void fake_cuda_wait_for_device() { ronda::testing::Machine().AwaitDevice(ronda::testing::this_threads_device); }

int fake_cuda_has_context(int device) { return ronda::testing::Machine().HasContext(device) ? 1 : 0; }

void fake_cuda_leaks(char* text, size_t size) {
  std::snprintf(text, size, "%s", ronda::testing::Machine().Leaks().c_str());
}
