#include "runtime/engine/device/device_adasum_place.h"

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"

namespace ronda {

namespace cuda = kernels::cuda;

absl::StatusOr<std::byte*> DeviceAdasumPlace::Allocate(size_t bytes, absl::string_view label) {
  RONDA_RETURN_IF_ERROR(Grow(memory_, bytes, absl::StrCat("the Adasum of '", label, "'")));
  return memory_.get();
}

absl::Status DeviceAdasumPlace::Grow(ResultData& block, size_t bytes, absl::string_view purpose) {
  if (block != nullptr && block.get_deleter().bytes >= bytes) return absl::OkStatus();
  block.reset();
  RONDA_ASSIGN_OR_RETURN(block, options_.blocks->Take(bytes, purpose));
  return absl::OkStatus();
}

absl::Status DeviceAdasumPlace::Pack(const cuda::PackCall& call) {
  return options_.device->Call("packing for Adasum",
                               [&](const ronda_cuda_plugin& kernels) { return kernels.pack(&call, options_.stream); });
}

absl::Status DeviceAdasumPlace::Unpack(const cuda::UnpackCall& call) {
  return options_.device->Call(
      "unpacking for Adasum", [&](const ronda_cuda_plugin& kernels) { return kernels.unpack(&call, options_.stream); });
}

absl::Status DeviceAdasumPlace::Dots(const cuda::DotsCall& call) {
  constexpr size_t kScratchOfPair = 3 * cuda::kDotsMaxParts * sizeof(double);
  RONDA_RETURN_IF_ERROR(Grow(scratch_, static_cast<size_t>(call.pair_count) * kScratchOfPair, "Adasum's dot products"));
  cuda::DotsCall with_scratch = call;
  with_scratch.scratch = reinterpret_cast<double*>(scratch_.get());
  return options_.device->Call("Adasum's dot products", [&](const ronda_cuda_plugin& kernels) {
    return kernels.adasum_dots(&with_scratch, options_.stream);
  });
}

absl::Status DeviceAdasumPlace::Combine(const cuda::CombineCall& call) {
  return options_.device->Call(
      "Adasum", [&](const ronda_cuda_plugin& kernels) { return kernels.adasum_combine(&call, options_.stream); });
}

}  // namespace ronda
