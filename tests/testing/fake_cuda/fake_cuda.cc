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
#include "tests/testing/fake_cuda/fake_kernels.h"
#include "tests/testing/fake_cuda/fake_machine.h"

namespace ronda::testing {
namespace {

// CUDA's functions take no object, so neither do the fake's: the process has one machine.
std::atomic<FakeMachine*> the_machine{nullptr};
thread_local int this_threads_device = 0;
thread_local size_t this_threads_waits = 0;
thread_local size_t this_threads_changes = 0;

FakeMachine& Machine() {
  FakeMachine* const machine = the_machine.load();
  RONDA_CHECK(machine != nullptr);
  return *machine;
}

int CurrentError() { return Machine().ErrorOf(this_threads_device); }

// Calls `action`, which returns an error, with the stream of a handle.
template <typename Action>
int WithStream(void* handle, const Action& action) {
  if (const int error = CurrentError(); error != 0) return error;
  const std::shared_ptr<FakeStream> stream = Machine().StreamOf(handle, this_threads_device);
  return stream == nullptr ? kCudaInvalidHandle : action(*stream);
}

template <typename Action>
int WithEvent(void* handle, const Action& action) {
  if (const int error = CurrentError(); error != 0) return error;
  const std::shared_ptr<FakeEvent> event = Machine().EventOf(handle);
  return event == nullptr ? kCudaInvalidHandle : action(event);
}

// For functions that make an object on this thread's device. CUDA makes a context for them.
int ErrorOfOpening() {
  const int error = CurrentError();
  if (error == kCudaSuccess) Machine().OpenContext(this_threads_device);
  return error;
}

int Enqueue(void* handle, std::function<void()> task) {
  return WithStream(handle, [&](FakeStream& stream) {
    stream.Enqueue(std::move(task));
    return kCudaSuccess;
  });
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
    case kCudaLaunchTimeout:
      known = "the launch timed out and was terminated";
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
  // No UUID: tests may treat the fakes of several processes as those of several hosts.
  std::snprintf(description->name, sizeof(description->name), "fake GPU");
  std::snprintf(description->pci_bus, sizeof(description->pci_bus), "0000:%02x:00.0", device);
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
  *memory = Machine().memory().Allocate(OwnerOf(kind), bytes);
  return *memory == nullptr ? kCudaOutOfMemory : kCudaSuccess;
}

void WaitBeforeFree() {
  if (Machine().options().frees != FakeCuda::Frees::kWaitForTheDevice) return;
  ++this_threads_waits;
  Machine().calls().waiting_frees.fetch_add(1);
  Machine().AwaitDevice(this_threads_device);
  Machine().calls().waiting_frees.fetch_sub(1);
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
    *capturing = stream.capturing();
    return kCudaSuccess;
  });
}

int StreamId(void* handle, uint64_t* id) {
  return WithStream(handle, [&](FakeStream& stream) {
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
    return WithStream(stream, [&](FakeStream& known) -> int {
      if (known.device() != event->device()) return kCudaInvalidHandle;
      known.Enqueue([event, recording = event->Record()] { event->Pass(recording); });
      return kCudaSuccess;
    });
  });
}

int WaitEvent(void* stream, void* handle) {
  return WithEvent(handle, [stream](const std::shared_ptr<FakeEvent>& event) {
    return Enqueue(stream, [event, recording = event->last_recording()] { event->AwaitPassing(recording); });
  });
}

int QueryEvent(void* handle, int* done) {
  return WithEvent(handle, [done](const std::shared_ptr<FakeEvent>& event) {
    *done = event->IsPassed(event->last_recording()) ? 1 : 0;
    if (*done == 0) ++this_threads_waits;
    // Work of the stream before the event may have failed.
    return CurrentError();
  });
}

int SynchronizeEvent(void* handle) {
  ++this_threads_waits;
  return WithEvent(handle, [](const std::shared_ptr<FakeEvent>& event) {
    event->AwaitPassing(event->last_recording());
    return CurrentError();
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
  return WithStream(handle, [&](FakeStream& stream) -> int {
    if (bytes == 0) return kCudaSuccess;
    void* const to = Machine().memory().ViewOf(stream.device(), dst, bytes);
    const void* const from = Machine().memory().ViewOf(stream.device(), src, bytes);
    if (to == nullptr || from == nullptr) return kCudaInvalidValue;
    stream.Enqueue([=, device = stream.device()] {
      if (Machine().MayUse(device, {dst, src})) std::memcpy(to, from, bytes);
    });
    return kCudaSuccess;
  });
}

int FillZero(void* dst, size_t bytes, void* handle) {
  return WithStream(handle, [&](FakeStream& stream) -> int {
    if (bytes == 0) return kCudaSuccess;
    void* const to = Machine().memory().ViewOf(stream.device(), dst, bytes);
    if (to == nullptr) return kCudaInvalidValue;
    stream.Enqueue([=, device = stream.device()] {
      if (Machine().MayUse(device, {dst})) std::memset(to, 0, bytes);
    });
    return kCudaSuccess;
  });
}

// Any of the kernels. As with a launch, the parameters are read now, and the work is done when the stream reaches it.
template <typename Call>
int Launch(const Call* call, void* handle) {
  return WithStream(handle, [&](FakeStream& stream) -> int {
    if (stream.device() != this_threads_device) return kCudaInvalidHandle;
    PreparedKernel kernel = PrepareKernel(*call, stream.device(), Machine().memory());
    if (kernel.run == nullptr) return kCudaInvalidValue;
    if (!Machine().HasKernels(stream.device())) {
      ++this_threads_waits;
      Machine().AwaitDevice(stream.device());
    }
    stream.Enqueue([kernel = std::move(kernel), device = stream.device()] {
      if (!Machine().MayUse(device, kernel.memory)) return;
      kernel.run();
      Machine().calls().finished_kernels.fetch_add(1);
    });
    return kCudaSuccess;
  });
}

thread_local int this_threads_ranges = 0;

void BeginRange(const char* name) {
  ++this_threads_ranges;
  Machine().NoteRange(name);
}

void EndRange() { RONDA_CHECK(--this_threads_ranges >= 0); }

// Counts the calls of a function of the table. Calls that get or change the current device are not counted: their
// number depends on which thread reaches a bucket first, and on its device.
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

// The streams end first. They use the machine until then.
FakeCuda::~FakeCuda() {
  while (waiting_frees() > 0) absl::SleepFor(absl::Microseconds(50));
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
size_t FakeCuda::looks_at_pointers() const { return CallsOf<DeviceOf>(); }
size_t FakeCuda::looks_at_streams() const { return CallsOf<IsCapturing>() + CallsOf<StreamId>(); }
size_t FakeCuda::calls() const { return Machine().calls().all; }
size_t FakeCuda::HostWaitsOfThisThread() { return this_threads_waits; }
size_t FakeCuda::DeviceChangesOfThisThread() { return this_threads_changes; }
int FakeCuda::waiting_frees() const { return Machine().calls().waiting_frees; }
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
