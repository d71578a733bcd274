// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_ENGINE_DATA_PLANE_H_
#define RONDA_RUNTIME_ENGINE_DATA_PLANE_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "runtime/collectives/adasum.h"
#include "runtime/collectives/communicator.h"
#include "runtime/engine/handle.h"
#include "runtime/negotiation/messages.h"

namespace ronda {

// A tensor that FindNonFinite searches for infinite and NaN elements.
struct TensorView {
  const void* data = nullptr;
  size_t count = 0;  // elements
};

// The memory that holds the tensors of a bucket, on the host or on a device. Calls of a DataPlane and of its
// communicator take effect in the order in which they were made. On a device a call may take effect after it has
// returned.
//
// Thread-compatible: used by the progress thread (progress_engine.h).
class DataPlane {
 public:
  virtual ~DataPlane() = default;

  virtual Communicator& communicator() = 0;
  virtual AdasumOps& adasum_ops() = 0;

  // Returns uninitialised memory for a result.
  // Errors: RESOURCE_EXHAUSTED, naming the tensor. The job must then end, because the other ranks go on with the
  // operation.
  virtual absl::StatusOr<ResultData> Allocate(const TensorRequest& request, size_t bytes) = 0;

  // Returns zeroed memory for the residual of the tensor.
  // Errors: RESOURCE_EXHAUSTED.
  virtual absl::StatusOr<ResultData> AllocateZeros(absl::string_view tensor, size_t bytes) = 0;

  virtual absl::Status Copy(void* dst, const void* src, size_t bytes) = 0;

  // Allocates memory for the overflow flags of `tensors` tensors. Must be called before the work that computes these
  // tensors: an allocation on a device may wait for this work, and an error would then come too late. Errors:
  // RESOURCE_EXHAUSTED.
  virtual absl::Status PrepareOverflow(size_t tensors) = 0;

  // Returns one flag per tensor, in the memory of this data plane. The flag is 1 if the tensor has an element that is
  // infinite or NaN, else 0. The flags are valid until the next PrepareOverflow.
  // REQUIRES: PrepareOverflow was called.
  virtual absl::StatusOr<uint8_t*> FindNonFinite(absl::Span<const TensorView> tensors, DType dtype) = 0;

  // Stores the flag of each tensor in its result.
  // REQUIRES: PrepareOverflow was called.
  virtual absl::Status DeliverOverflow(const uint8_t* flags, absl::Span<OperationResult> results) = 0;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_DATA_PLANE_H_
