#ifndef RONDA_RUNTIME_COLLECTIVES_HIERARCHICAL_LEVEL_OPS_H_
#define RONDA_RUNTIME_COLLECTIVES_HIERARCHICAL_LEVEL_OPS_H_

#include <array>
#include <cstddef>
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
#include "runtime/collectives/device_transport.h"
#include "runtime/cuda/device.h"

namespace ronda {

// What collectives in two levels need besides the communicators of the levels, and what differs with where the tensors
// are: memory for what is on its way, copies, and the order of what the two levels do.
//
// Communicators of a host have done their work when a call returns. Those of a device have put it on a stream, and each
// level has a stream of its own: what one leaves to the other is handed over.
//
//   local.Reduce(...)                                        // into memory of the slot
//   ops.HandOver(slot)                                    // by the thread that drives the level on the host
//   ops.Across(slot, [&] { return across.Reduce(...); })  // by the one that drives the level across
//   ops.TakeBack(slot)                                    // by the first again, after that has returned
//   local.Allgather(...)
//
// Thread-compatible but for Across, which another thread may call while the first is busy with other slots.
class LevelOps {
 public:
  // Which may be under way at the same time, each with something else.
  static constexpr size_t kSlots = 2;

  virtual ~LevelOps() = default;

  // At least `bytes` for what goes across in a slot. What was there before, the level on the host has finished with.
  // Errors: RESOURCE_EXHAUSTED.
  virtual absl::StatusOr<char*> SlotMemory(size_t slot, size_t bytes) = 0;

  // At least `bytes` for what the host has gathered; until the next call of it.
  // Errors: RESOURCE_EXHAUSTED.
  virtual absl::StatusOr<char*> GatherMemory(size_t bytes) = 0;

  // Elements that lie somewhere else in memory that was gathered than where they belong.
  struct Piece {
    void* to = nullptr;
    size_t count = 0;   // elements
    size_t offset = 0;  // bytes
  };
  // Copies them there, in the order of the level on the host.
  virtual absl::Status Scatter(const char* gathered, DType dtype, absl::Span<const Piece> pieces) = 0;

  // What the level on the host has done so far comes before the next Across of the slot.
  virtual absl::Status HandOver(size_t slot) = 0;
  // Calls `work`, which uses the level across.
  virtual absl::Status Across(size_t slot, absl::FunctionRef<absl::Status()> work) = 0;
  // What the level on the host does from now on comes after the last Across of the slot, which has succeeded.
  virtual absl::Status TakeBack(size_t slot) = 0;
};

// Has one thread drive both levels: what it was given so far, then `work` across, then what comes.
inline absl::Status CrossOver(LevelOps& ops, absl::FunctionRef<absl::Status()> work) {
  RONDA_RETURN_IF_ERROR(ops.HandOver(0));
  RONDA_RETURN_IF_ERROR(ops.Across(0, work));
  return ops.TakeBack(0);
}

// For tensors in the memory of the host, whose communicators' calls do not return before they are complete.
class HostLevelOps : public LevelOps {
 public:
  absl::StatusOr<char*> SlotMemory(size_t slot, size_t bytes) override { return AtLeast(bytes, slots_[slot]); }
  absl::StatusOr<char*> GatherMemory(size_t bytes) override { return AtLeast(bytes, gathered_); }
  absl::Status Scatter(const char* gathered, DType dtype, absl::Span<const Piece> pieces) override;
  absl::Status HandOver(size_t) override { return absl::OkStatus(); }
  absl::Status Across(size_t, absl::FunctionRef<absl::Status()> work) override { return work(); }
  absl::Status TakeBack(size_t) override { return absl::OkStatus(); }

 private:
  static char* AtLeast(size_t bytes, std::vector<char>& memory);

  std::array<std::vector<char>, kSlots> slots_;
  std::vector<char> gathered_;
};

// For tensors in the memory of a device, which has a stream for each of the levels. Each waits for the other by events;
// nobody waits for the device.
//
// Destroyed after the communicators of both levels, when all that uses its memory has ended.
class DeviceLevelOps : public LevelOps {
 public:
  struct Options {
    std::shared_ptr<Device> device;
    StreamHandle stream = nullptr;  // of the level on the host; not owned
    StreamMarks* marks = nullptr;   // of that stream; not owned; nullptr: nobody wants to know
  };

  // Errors: the device's.
  static absl::StatusOr<std::unique_ptr<DeviceLevelOps>> Create(Options options);

  // What the communicator across is to work on.
  StreamHandle across_stream() const { return across_->handle(); }

  absl::StatusOr<char*> SlotMemory(size_t slot, size_t bytes) override {
    return AtLeast(bytes, slots_[slot].memory, "a shard on its way to other hosts");
  }
  absl::StatusOr<char*> GatherMemory(size_t bytes) override {
    return AtLeast(bytes, gathered_, "what the ranks of the host have gathered");
  }
  absl::Status Scatter(const char* gathered, DType dtype, absl::Span<const Piece> pieces) override;
  absl::Status HandOver(size_t slot) override { return slots_[slot].handed_over->Record(options_.stream); }
  absl::Status Across(size_t slot, absl::FunctionRef<absl::Status()> work) override;
  absl::Status TakeBack(size_t slot) override {
    return Marked(options_.marks, StreamPhase::kTransfer, slots_[slot].crossed->OrderBefore(options_.stream));
  }

 private:
  struct Slot {
    DeviceMemory memory;
    std::unique_ptr<DeviceEvent> handed_over;  // by the level on the host
    std::unique_ptr<DeviceEvent> crossed;
  };

  DeviceLevelOps(Options options, std::unique_ptr<DeviceStream> across)
      : options_(std::move(options)), across_(std::move(across)) {}

  // Grows `memory` to at least twice its size, if it is too small.
  absl::StatusOr<char*> AtLeast(size_t bytes, DeviceMemory& memory, absl::string_view purpose);

  const Options options_;
  const std::unique_ptr<DeviceStream> across_;
  std::array<Slot, kSlots> slots_;
  DeviceMemory gathered_;
  std::vector<DeviceMemory> outgrown_;  // kept: to free it is to wait for the device, and so for other ranks
};

// What a call of all ranks of the job is on one of the levels: one of all ranks there, without a vote of its own.
//
// Who waits for a rank of another host may wait for one that is itself waiting, on its host, for the rank that is late;
// and who waits for what that brings back waits for both. So each step has a little more patience than the one before
// it: the first to give up is a rank that waits for the late one itself, and names it.
inline CallInfo LevelInfo(const CallInfo& info, int steps_before) {
  constexpr double kPatience = 0.05;
  const double factor = 1 + kPatience * steps_before;
  return {.label = info.label,
          .op = info.op,
          .limits = {.warning = info.limits.warning * factor, .deadline = info.limits.deadline * factor}};
}

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_HIERARCHICAL_LEVEL_OPS_H_
