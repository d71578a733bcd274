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

// A tensor to examine.
struct TensorView {
  const void* data = nullptr;
  size_t count = 0;  // elements
};

// The memory that holds the tensors of a bucket: the host's, or a device's. All calls take effect there in the order in
// which they were made, calls to the communicator included. On a device a call may take effect after it has returned.
//
// Thread-compatible: used by the progress thread (progress_engine.h).
class DataPlane {
 public:
  virtual ~DataPlane() = default;

  virtual Communicator& communicator() = 0;
  virtual AdasumOps& adasum_ops() = 0;

  // Uninitialised memory for a result.
  // Errors: RESOURCE_EXHAUSTED that names the tensor; the other ranks proceed, so the job cannot continue.
  virtual absl::StatusOr<ResultData> Allocate(const TensorRequest& request, size_t bytes) = 0;

  // Memory full of zeros, for the residual of the tensor.
  // Errors: RESOURCE_EXHAUSTED.
  virtual absl::StatusOr<ResultData> AllocateZeros(absl::string_view tensor, size_t bytes) = 0;

  virtual absl::Status Copy(void* dst, const void* src, size_t bytes) = 0;

  // Makes room for the flags of `tensors` tensors. Called before the work whose results are examined: to allocate
  // memory of a device may have to wait for work on it, and an error would come too late. Errors: RESOURCE_EXHAUSTED.
  virtual absl::Status PrepareOverflow(size_t tensors) = 0;

  // Returns one flag per tensor, in this memory: 1 if it has an element that is infinite or NaN, else 0. Valid until
  // the next PrepareOverflow.
  // REQUIRES: PrepareOverflow was called.
  virtual absl::StatusOr<uint8_t*> FindNonFinite(absl::Span<const TensorView> tensors, DType dtype) = 0;

  // Gives each of `results` its flag.
  // REQUIRES: PrepareOverflow was called.
  virtual absl::Status DeliverOverflow(const uint8_t* flags, absl::Span<OperationResult> results) = 0;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_DATA_PLANE_H_
