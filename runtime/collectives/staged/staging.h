#ifndef RONDA_RUNTIME_COLLECTIVES_STAGED_STAGING_H_
#define RONDA_RUNTIME_COLLECTIVES_STAGED_STAGING_H_

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/collectives/communicator.h"
#include "runtime/collectives/device_transport.h"
#include "runtime/cuda/device.h"

namespace ronda {

// A collective that goes through the host in rounds. Each has a slot of pinned memory to itself.
class StagedCall {
 public:
  virtual ~StagedCall() = default;

  virtual size_t rounds() const = 0;

  // Enqueues the copies of what this rank gives from the device to the slot.
  virtual absl::Status CopyOut(size_t round, std::byte* slot) = 0;

  // The collective on the host, from slot to slot; blocks. `slot` is nullptr on ranks outside.
  virtual absl::Status Exchange(size_t round, std::byte* slot) = 0;

  // Enqueues the copies of what this rank receives from the slot to the device.
  virtual absl::Status CopyBack(size_t round, std::byte* slot) = 0;
};

// Pinned memory of the host through which tensors go from a device to a collective on the host, and back.
//
// There are two slots: while the host is busy with one round, the device copies the next round out.
//
// Thread-compatible.
class Staging {
 public:
  struct Options {
    std::shared_ptr<Device> device;
    StreamHandle stream = nullptr;
    size_t slot_bytes = 0;
    StreamMarks* marks = nullptr;               // of the stream; not owned; nullptr: nobody wants to know
    std::function<absl::Status()> job_failure;  // the job's first failure; called while waiting for the device
  };

  // Errors: RESOURCE_EXHAUSTED if there is not as much memory that can be pinned.
  static absl::StatusOr<std::unique_ptr<Staging>> Create(Options options);

  // Waits until the device is done with the slots, unless it or the job has failed: then they are left to it.
  ~Staging();

  size_t slot_bytes() const { return options_.slot_bytes; }

  // All rounds. When it returns, the last copies are on the stream.
  // Errors: those of the collectives; of the device; DEADLINE_EXCEEDED if the stream's earlier work takes longer than
  // `info.limits.deadline`.
  absl::Status Run(const CallInfo& info, StagedCall& call);

  // The rounds of a call in which this rank has no part.
  static absl::Status RunOutside(StagedCall& call);

  // Calls a function of the plugin with the stream: enqueue(cuda, stream).
  template <typename Enqueue>
  absl::Status OnStream(absl::string_view what, const Enqueue& enqueue) {
    return options_.device->Call(what, [&](const ronda_cuda_plugin& cuda) { return enqueue(cuda, options_.stream); });
  }

 private:
  struct Slot {
    DeviceMemory memory;
    std::unique_ptr<DeviceEvent> event;  // behind what the stream was last given to do with it
  };

  explicit Staging(Options options) : options_(std::move(options)) {}

  Slot& SlotOf(size_t round) { return slots_[round % slots_.size()]; }
  absl::Status CopyOut(size_t round, StagedCall& call);
  absl::Status CopyBack(size_t round, StagedCall& call);

  // Waits for the device, as long as the job has not failed.
  absl::Status Await(const Slot& slot, const CallInfo& info) const;

  const Options options_;
  std::array<Slot, 2> slots_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_STAGED_STAGING_H_
