#ifndef RONDA_RUNTIME_COLLECTIVES_HIERARCHICAL_HOST_GROUND_H_
#define RONDA_RUNTIME_COLLECTIVES_HIERARCHICAL_HOST_GROUND_H_

#include <array>
#include <cstddef>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/collectives/hierarchical/level_ground.h"

namespace ronda {

// For tensors in the memory of the host, whose communicators' calls do not return before they are complete.
class HostGround : public LevelGround {
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

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_HIERARCHICAL_HOST_GROUND_H_
