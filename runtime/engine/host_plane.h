#ifndef RONDA_RUNTIME_ENGINE_HOST_PLANE_H_
#define RONDA_RUNTIME_ENGINE_HOST_PLANE_H_

#include <cstdint>
#include <vector>

#include "runtime/collectives/adasum.h"
#include "runtime/engine/data_plane.h"

namespace ronda {

// Tensors in the host's memory: everything has happened when a call returns.
//
// Thread-compatible. The communicator is not owned.
class HostPlane : public DataPlane {
 public:
  explicit HostPlane(Communicator* communicator) : communicator_(communicator) {}

  Communicator& communicator() override { return *communicator_; }
  AdasumOps& adasum_ops() override { return adasum_ops_; }
  absl::StatusOr<ResultData> Allocate(const TensorRequest& request, size_t bytes) override;
  absl::StatusOr<ResultData> AllocateZeros(absl::string_view tensor, size_t bytes) override;
  absl::Status Copy(void* dst, const void* src, size_t bytes) override;
  absl::Status PrepareOverflow(size_t tensors) override;
  absl::StatusOr<uint8_t*> FindNonFinite(absl::Span<const TensorView> tensors, DType dtype) override;
  absl::Status DeliverOverflow(const uint8_t* flags, absl::Span<OperationResult> results) override;

 private:
  Communicator* const communicator_;
  HostAdasumOps adasum_ops_;
  std::vector<uint8_t> flags_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_HOST_PLANE_H_
