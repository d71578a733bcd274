#ifndef RONDA_RUNTIME_COLLECTIVES_HIERARCHICAL_LEVEL_GROUND_H_
#define RONDA_RUNTIME_COLLECTIVES_HIERARCHICAL_LEVEL_GROUND_H_

#include <cstddef>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/dtype.h"
#include "runtime/base/status_macros.h"

namespace ronda {

// What collectives in two levels need besides the communicators of the levels, and what differs with where the tensors
// are: memory for what is on its way, copies, and the order of what the two levels do.
//
// Communicators of a host have done their work when a call returns. Those of a device have put it on a stream, and each
// level has a stream of its own: what one leaves to the other is handed over.
//
//   local.Reduce(...)                                        // into memory of the slot
//   ground.HandOver(slot)                                    // by the thread that drives the level on the host
//   ground.Across(slot, [&] { return across.Reduce(...); })  // by the one that drives the level across
//   ground.TakeBack(slot)                                    // by the first again, after that has returned
//   local.Allgather(...)
//
// Thread-compatible but for Across, which another thread may call while the first is busy with other slots.
class LevelGround {
 public:
  // Which may be under way at the same time, each with something else.
  static constexpr size_t kSlots = 2;

  virtual ~LevelGround() = default;

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
inline absl::Status CrossOver(LevelGround& ground, absl::FunctionRef<absl::Status()> work) {
  RONDA_RETURN_IF_ERROR(ground.HandOver(0));
  RONDA_RETURN_IF_ERROR(ground.Across(0, work));
  return ground.TakeBack(0);
}

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_HIERARCHICAL_LEVEL_GROUND_H_
