#ifndef RONDA_RUNTIME_COLLECTIVES_HOST_ADASUM_PLACE_H_
#define RONDA_RUNTIME_COLLECTIVES_HOST_ADASUM_PLACE_H_

#include <cstddef>
#include <memory>

#include "runtime/collectives/adasum_place.h"

namespace ronda {

// The host: kernels/cpu. Everything has happened when a call returns.
//
// Thread-compatible.
class HostAdasumPlace : public AdasumPlace {
 public:
  absl::StatusOr<std::byte*> Allocate(const Need& need) override;
  void Release() override { memory_.reset(); }
  absl::Status Pack(const kernels::cuda::PackCall& call) override;
  absl::Status Unpack(const kernels::cuda::UnpackCall& call) override;
  absl::Status Dots(const kernels::cuda::DotsCall& call) override;
  absl::Status Combine(const kernels::cuda::CombineCall& call) override;

 private:
  std::unique_ptr<std::byte[]> memory_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_HOST_ADASUM_PLACE_H_
