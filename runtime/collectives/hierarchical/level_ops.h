// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_COLLECTIVES_HIERARCHICAL_LEVEL_OPS_H_
#define RONDA_RUNTIME_COLLECTIVES_HIERARCHICAL_LEVEL_OPS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/dtype.h"
#include "runtime/base/status_macros.h"
#include "runtime/collectives/communicator.h"
#include "runtime/collectives/transport.h"
#include "runtime/cuda/device.h"

namespace ronda {

// The operations of a two-level collective that differ between host and device memory. They provide memory for data in
// transit, copy data, and order the work of the two levels.
//
// When a call to a host communicator returns, its work is complete. A call to a device communicator has only enqueued
// its work on its level's stream. So the work of the two streams must be ordered:
//
//   local.Reduce(...)                                     // into memory of the slot
//   ops.HandOver(slot)                                    // by the thread that drives the level on the host
//   ops.Across(slot, [&] { return across.Reduce(...); })  // by the thread that drives the level across
//   ops.HandBack(slot)                                    // by the first thread, after Across has returned
//   local.Allgather(...)
//
// Thread-compatible, except that a second thread may call Across() while the first thread works with other slots.
class LevelOps {
 public:
  // The number of chunks that can be in progress at the same time, each in its own slot.
  static constexpr size_t kSlots = 2;

  virtual ~LevelOps() = default;

  // Returns at least `bytes` of memory for a slot's data. The level on the host must no longer need the slot's earlier
  // data. Errors: RESOURCE_EXHAUSTED.
  virtual absl::StatusOr<char*> SlotMemory(size_t slot, size_t bytes) = 0;

  // Returns at least `bytes` of memory for gathered data, valid until the next call. Errors: RESOURCE_EXHAUSTED.
  virtual absl::StatusOr<char*> GatherMemory(size_t bytes) = 0;

  // Elements to copy from the gathered memory to `to`.
  struct Piece {
    void* to = nullptr;
    size_t count = 0;   // elements
    size_t offset = 0;  // bytes
  };
  // Copies the pieces from `gathered` to their addresses, after all earlier work of the level on the host.
  virtual absl::Status Scatter(const char* gathered, DType dtype, absl::Span<const Piece> pieces) = 0;

  // Makes the slot's next Across() wait for all work of the level on the host so far.
  virtual absl::Status HandOver(size_t slot) = 0;
  // Calls `work`, which uses the level across hosts.
  virtual absl::Status Across(size_t slot, absl::FunctionRef<absl::Status()> work) = 0;
  // Makes all later work of the level on the host wait for the slot's last Across(). REQUIRES: that call succeeded.
  virtual absl::Status HandBack(size_t slot) = 0;
};

// For a caller that drives both levels on one thread: executes `work`, which uses the level across hosts, after all
// earlier and before all later work.
inline absl::Status CrossOver(LevelOps& ops, absl::FunctionRef<absl::Status()> work) {
  RONDA_RETURN_IF_ERROR(ops.HandOver(0));
  RONDA_RETURN_IF_ERROR(ops.Across(0, work));
  return ops.HandBack(0);
}

// LevelOps for host memory. The functions that order work do nothing, because calls to host communicators have
// completed their work when they return.
class HostLevelOps : public LevelOps {
 public:
  absl::StatusOr<char*> SlotMemory(size_t slot, size_t bytes) override { return AtLeast(bytes, slots_[slot]); }
  absl::StatusOr<char*> GatherMemory(size_t bytes) override { return AtLeast(bytes, gathered_); }
  absl::Status Scatter(const char* gathered, DType dtype, absl::Span<const Piece> pieces) override;
  absl::Status HandOver(size_t) override { return absl::OkStatus(); }
  absl::Status Across(size_t, absl::FunctionRef<absl::Status()> work) override { return work(); }
  absl::Status HandBack(size_t) override { return absl::OkStatus(); }

 private:
  static char* AtLeast(size_t bytes, std::vector<char>& memory);

  std::array<std::vector<char>, kSlots> slots_;
  std::vector<char> gathered_;
};

// LevelOps for device memory. Events order the levels' streams, so no thread waits for the device.
//
// Must be destroyed after the communicators of both levels, when all work that uses its memory has ended.
class DeviceLevelOps : public LevelOps {
 public:
  struct Options {
    std::shared_ptr<Device> device;
    StreamHandle stream = nullptr;  // the stream of the level on the host; not owned
    StreamMarks* marks = nullptr;   // the marks of `stream`; not owned; may be nullptr
    // The stream of the level across hosts. kOwn: a stream of its own, so the levels work at the same time. kSame: the
    // levels share a stream, and work one after the other. This is necessary if both levels use NCCL, whose operations
    // must run in the same order on all devices, because a device may run the work of two streams in any order.
    enum class AcrossStream : uint8_t { kOwn, kSame } across = AcrossStream::kOwn;
  };

  // Errors: device errors.
  static absl::StatusOr<std::unique_ptr<DeviceLevelOps>> Create(Options options);

  // Returns the stream for the communicator across hosts.
  StreamHandle across_stream() const { return across_ == nullptr ? options_.stream : across_->handle(); }

  absl::StatusOr<char*> SlotMemory(size_t slot, size_t bytes) override {
    return AtLeast(bytes, slots_[slot].memory, "a shard on its way to other hosts");
  }
  absl::StatusOr<char*> GatherMemory(size_t bytes) override {
    return AtLeast(bytes, gathered_, "data gathered from the ranks of the host");
  }
  absl::Status Scatter(const char* gathered, DType dtype, absl::Span<const Piece> pieces) override;
  absl::Status HandOver(size_t slot) override { return slots_[slot].handed_over->Record(options_.stream); }
  absl::Status Across(size_t slot, absl::FunctionRef<absl::Status()> work) override;
  absl::Status HandBack(size_t slot) override {
    return Marked(options_.marks, StreamPhase::kTransfer, slots_[slot].crossed->OrderBefore(options_.stream));
  }

 private:
  struct Slot {
    DeviceMemory memory;
    std::unique_ptr<DeviceEvent> handed_over;  // recorded on the stream of the level on the host
    std::unique_ptr<DeviceEvent> crossed;
  };

  DeviceLevelOps(Options options, std::unique_ptr<DeviceStream> across)
      : options_(std::move(options)), across_(std::move(across)) {}

  // If `memory` is too small, replaces it with memory of at least twice the size.
  absl::StatusOr<char*> AtLeast(size_t bytes, DeviceMemory& memory, absl::string_view purpose);

  const Options options_;
  const std::unique_ptr<DeviceStream> across_;  // nullptr: the same stream
  std::array<Slot, kSlots> slots_;
  DeviceMemory gathered_;
  std::vector<DeviceMemory> outgrown_;  // kept, because freeing waits for the device, and so for other ranks
};

// Returns the CallInfo for one level's part of a call of all ranks of the job. All ranks of the level take part,
// without a vote.
//
// A rank may be waiting for a rank on another host that is itself waiting for a late rank. So each step gets a slightly
// longer deadline than the previous one. The first rank that gives up is then one that waits for the late rank
// directly, and its error names that rank.
inline CallInfo LevelInfo(const CallInfo& info, int steps_before) {
  constexpr double kExtraPerStep = 0.05;
  const double factor = 1 + kExtraPerStep * steps_before;
  return {.label = info.label,
          .op = info.op,
          .limits = {.warning = info.limits.warning * factor, .deadline = info.limits.deadline * factor}};
}

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_HIERARCHICAL_LEVEL_OPS_H_
