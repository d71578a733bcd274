#ifndef RONDA_RUNTIME_COLLECTIVES_ADASUM_PLACE_H_
#define RONDA_RUNTIME_COLLECTIVES_ADASUM_PLACE_H_

#include <cstddef>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/cuda/calls.h"

namespace ronda {

// Where the tensors of an Adasum are: memory and arithmetic of the host, or of a device. Calls are described as to the
// kernels (kernels/cuda/calls.h), and happen in their order and that of the communicator's; on a device they need not
// have happened when they return.
//
// Thread-compatible.
class AdasumPlace {
 public:
  virtual ~AdasumPlace() = default;

  struct Need {
    size_t bytes = 0;
    size_t pairs = 0;         // at most, of a call of Dots
    absl::string_view label;  // what the Adasum is called
  };
  // Uninitialised memory of that many bytes, aligned to 16, until Release; and what the place itself needs. No later
  // call takes any: what it would wait for may be other ranks' part in this Adasum.
  // Errors: RESOURCE_EXHAUSTED.
  virtual absl::StatusOr<std::byte*> Allocate(const Need& need) = 0;

  // No call that uses the memory comes any more. Does nothing if there is none.
  virtual void Release() = 0;

  // REQUIRES of the conversions: floating point, no blocks, no votes, nothing skipped.
  virtual absl::Status Pack(const kernels::cuda::PackCall& call) = 0;
  virtual absl::Status Unpack(const kernels::cuda::UnpackCall& call) = 0;

  // `call.scratch` is the place's own affair, and not looked at.
  // REQUIRES: no more pairs than were said to come.
  virtual absl::Status Dots(const kernels::cuda::DotsCall& call) = 0;
  virtual absl::Status Combine(const kernels::cuda::CombineCall& call) = 0;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_ADASUM_PLACE_H_
