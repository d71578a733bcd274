#include "runtime/engine/data_plane.h"

#include <cstring>
#include <new>

#include "absl/strings/str_cat.h"
#include "kernels/cpu/gradients.h"

namespace ronda {

absl::StatusOr<ResultData> HostPlane::Allocate(const TensorRequest& request, size_t bytes) {
  ResultData data(new (std::nothrow) std::byte[bytes]);
  if (data == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for the ", bytes, " bytes that ", Name(request.op), " '", request.name, "' returns"));
  }
  return data;
}

absl::StatusOr<ResultData> HostPlane::AllocateZeros(absl::string_view tensor, size_t bytes) {
  ResultData data(new (std::nothrow) std::byte[bytes]());
  if (data == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for the ", bytes, " bytes of error feedback of tensor '", tensor, "'"));
  }
  return data;
}

absl::Status HostPlane::Copy(void* dst, const void* src, size_t bytes) {
  // A tensor without elements may have no buffer.
  if (bytes > 0) std::memcpy(dst, src, bytes);
  return absl::OkStatus();
}

absl::Status HostPlane::PrepareOverflow(size_t tensors) {
  flags_.clear();
  flags_.reserve(tensors);
  return absl::OkStatus();
}

absl::StatusOr<uint8_t*> HostPlane::FindNonFinite(absl::Span<const TensorView> tensors, DType dtype) {
  for (const TensorView& tensor : tensors) {
    flags_.push_back(tensor.count > 0 && kernels::HasNonFinite(tensor.data, dtype, tensor.count) ? 1 : 0);
  }
  return flags_.data();
}

absl::Status HostPlane::DeliverOverflow(const uint8_t* flags, absl::Span<OperationResult> results) {
  for (size_t i = 0; i < results.size(); ++i) {
    if (flags[i] != 0) results[i].overflow = OperationResult::Overflow::kFound;
  }
  return absl::OkStatus();
}

}  // namespace ronda
