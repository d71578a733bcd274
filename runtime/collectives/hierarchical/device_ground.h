#ifndef RONDA_RUNTIME_COLLECTIVES_HIERARCHICAL_DEVICE_GROUND_H_
#define RONDA_RUNTIME_COLLECTIVES_HIERARCHICAL_DEVICE_GROUND_H_

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
#include "runtime/collectives/hierarchical/level_ground.h"
#include "runtime/collectives/stream_marks.h"
#include "runtime/cuda/device.h"

namespace ronda {

// For tensors in the memory of a device, which has a stream for each of the levels. Each waits for the other by events;
// nobody waits for the device.
//
// Destroyed after the communicators of both levels, when all that uses its memory has ended.
class DeviceGround : public LevelGround {
 public:
  struct Options {
    std::shared_ptr<Device> device;
    StreamHandle stream = nullptr;  // of the level on the host; not owned
    StreamMarks* marks = nullptr;   // of that stream; not owned; nullptr: nobody wants to know
  };

  // Errors: the device's.
  static absl::StatusOr<std::unique_ptr<DeviceGround>> Create(Options options);

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

  DeviceGround(Options options, std::unique_ptr<DeviceStream> across)
      : options_(std::move(options)), across_(std::move(across)) {}

  // Grows `memory` to at least twice its size, if it is too small.
  absl::StatusOr<char*> AtLeast(size_t bytes, DeviceMemory& memory, absl::string_view purpose);

  const Options options_;
  const std::unique_ptr<DeviceStream> across_;
  std::array<Slot, kSlots> slots_;
  DeviceMemory gathered_;
  std::vector<DeviceMemory> outgrown_;  // kept: to free it is to wait for the device, and so for other ranks
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_HIERARCHICAL_DEVICE_GROUND_H_
