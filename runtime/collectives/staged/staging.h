// SPDX-License-Identifier: Apache-2.0

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
#include "runtime/collectives/transport.h"
#include "runtime/cuda/device.h"

namespace ronda {

// A collective whose data passes through host memory in rounds. Each round uses a slot of pinned memory.
class StagedCall {
 public:
  virtual ~StagedCall() = default;

  virtual size_t rounds() const = 0;

  // Enqueues the copies of this rank's contribution from the device to the slot.
  virtual absl::Status CopyOut(size_t round, std::byte* slot) = 0;

  // Runs the collective on the host, with its input and output in the slot. Blocks until the collective is complete.
  // `slot` is nullptr on ranks outside the group.
  virtual absl::Status Exchange(size_t round, std::byte* slot) = 0;

  // Enqueues the copies of this rank's results from the slot to the device.
  virtual absl::Status CopyBack(size_t round, std::byte* slot) = 0;
};

// Pinned host memory, through which tensors travel from a device to a collective on the host and back.
//
// There are two slots: while the host works on one round, the device copies the next round's data to the other slot.
//
// Thread-compatible.
class Staging {
 public:
  struct Options {
    std::shared_ptr<Device> device;
    StreamHandle stream = nullptr;
    size_t slot_bytes = 0;
    StreamMarks* marks = nullptr;               // of the stream; not owned; may be nullptr
    std::function<absl::Status()> job_failure;  // the job's first failure; called during waits for the device
  };

  // Errors: RESOURCE_EXHAUSTED if the memory cannot be pinned.
  static absl::StatusOr<std::unique_ptr<Staging>> Create(Options options);

  // Waits until the device no longer uses the slots. If the device or the job has failed, does not free them, because
  // the device may still use them.
  ~Staging();

  size_t slot_bytes() const { return options_.slot_bytes; }

  // Runs all rounds. On return, the last copies are enqueued on the stream, but need not be complete. Errors: those of
  // the collectives and of the device; DEADLINE_EXCEEDED if the stream's earlier work takes longer than
  // `info.limits.deadline`.
  absl::Status Run(const CallInfo& info, StagedCall& call);

  // Runs a call's rounds on a rank outside the call's group.
  static absl::Status RunOutside(StagedCall& call);

  // Calls enqueue(plugin, stream), which enqueues work on the stream.
  template <typename Enqueue>
  absl::Status OnStream(absl::string_view what, const Enqueue& enqueue) {
    return options_.device->Call(what, [&](const ronda_cuda_plugin& cuda) { return enqueue(cuda, options_.stream); });
  }

 private:
  struct Slot {
    DeviceMemory memory;
    std::unique_ptr<DeviceEvent> event;  // recorded after the stream's last work on the slot
  };

  explicit Staging(Options options) : options_(std::move(options)) {}

  Slot& SlotOf(size_t round) { return slots_[round % slots_.size()]; }
  absl::Status CopyOut(size_t round, StagedCall& call);
  absl::Status CopyBack(size_t round, StagedCall& call);

  // Waits for the device's work on `slot`, at the latest until the job fails.
  absl::Status Await(const Slot& slot, const CallInfo& info) const;

  const Options options_;
  std::array<Slot, 2> slots_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_STAGED_STAGING_H_
