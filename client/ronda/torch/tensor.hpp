// SPDX-License-Identifier: Apache-2.0

// Converts libtorch tensors to Ronda tensors.
#ifndef RONDA_CLIENT_RONDA_TORCH_TENSOR_HPP_
#define RONDA_CLIENT_RONDA_TORCH_TENSOR_HPP_

#include <torch/types.h>

#include <optional>
#include <string>
#include <utility>

#include "../status.hpp"
#include "../tensor.hpp"

namespace ronda {
inline namespace abi1 {
// Functions in this file throw Error, and do not catch libtorch's own exceptions. In this namespace, `torch` means
// ronda::torch, so libtorch names need a leading `::`, as in ::torch::nn.
namespace torch {
namespace detail {

inline std::optional<ronda_dtype> dtype_of(at::ScalarType type) noexcept {
  switch (type) {
    case at::kByte:
      return RONDA_UINT8;
    case at::kChar:
      return RONDA_INT8;
    case at::kShort:
      return RONDA_INT16;
    case at::kInt:
      return RONDA_INT32;
    case at::kLong:
      return RONDA_INT64;
    case at::kBool:
      return RONDA_BOOL;
    case at::kHalf:
      return RONDA_FLOAT16;
    case at::kBFloat16:
      return RONDA_BFLOAT16;
    case at::kFloat:
      return RONDA_FLOAT32;
    case at::kDouble:
      return RONDA_FLOAT64;
    default:
      return std::nullopt;
  }
}

inline Error invalid(const std::string& what) { return Error(RONDA_ERROR_INVALID_ARGUMENT, what); }

// Throws Error for tensors that no operation accepts, including those in GPU memory. Tensors in GPU memory would need
// the CUDA stream that computes them, which only libtorch's CUDA library knows; CPU programs do not have that library.
inline void check(const std::string& name, const at::Tensor& tensor) {
  const auto refuse = [&](const std::string& why) { return invalid("tensor '" + name + "' " + why); };
  if (!tensor.defined()) throw refuse("is undefined");
  if (tensor.layout() != at::kStrided) throw refuse("is sparse: pass tensor.to_dense()");
  if (!tensor.device().is_cpu()) {
    throw refuse("is on the device " + tensor.device().str() + ": here tensors are in host memory, as tensor.cpu() is");
  }
  if (!dtype_of(tensor.scalar_type())) {
    throw refuse("has elements of type " + std::string(c10::toString(tensor.scalar_type())) +
                 ", which Ronda does not know");
  }
}

// Tells autograd that the tensor's elements have changed, as libtorch's own in-place operations do.
inline void mark_written(const at::Tensor& tensor) {
  if (!tensor.is_inference()) tensor.unsafeGetTensorImpl()->bump_version();
}

// The elements of a tensor in row-major order: in the tensor's own memory if possible, otherwise in a copy. Views with
// libtorch's negative bit (imag(conj(z))) are also copied, because their memory holds the elements with the other sign.
class Rows {
 public:
  // Throws Error (RONDA_ERROR_INVALID_ARGUMENT) if check() rejects the tensor.
  Rows(const std::string& name, const at::Tensor& tensor) : tensor_(tensor) {
    check(name, tensor);
    rows_ = tensor.detach().resolve_neg().contiguous();
  }

  const at::Tensor& get() const noexcept { return rows_; }

  // Must be called after the elements have been written. If they are in a copy, copies them back to the tensor.
  void written() const {
    if (rows_.data_ptr() != tensor_.data_ptr()) {
      const ::torch::NoGradGuard no_grad;
      tensor_.detach().copy_(rows_);
    }
    mark_written(tensor_);
  }

 private:
  at::Tensor tensor_;
  at::Tensor rows_;
};

}  // namespace detail

// Returns a Ronda tensor that refers to the host memory of a libtorch tensor. The libtorch tensor must outlive all
// operations on the result.
//
//   ronda::allreduce(ronda::torch::view("w", w));
//
// Throws Error (RONDA_ERROR_INVALID_ARGUMENT) if the tensor is undefined, sparse, on a device, of a type that Ronda
// does not support, not contiguous, or a view that changes signs (is_neg()). The operations of collectives.hpp, unlike
// this function, also accept such views, and tensors that are not contiguous.
inline Tensor view(std::string name, const at::Tensor& tensor) {
  detail::check(name, tensor);
  if (!tensor.is_contiguous()) throw detail::invalid("tensor '" + name + "' is not contiguous");
  if (tensor.is_neg()) {
    throw detail::invalid("tensor '" + name + "' is a view that changes signs: pass tensor.resolve_neg()");
  }
  Tensor view;
  view.name = std::move(name);
  view.data = tensor.data_ptr();
  view.dtype = *detail::dtype_of(tensor.scalar_type());
  view.shape = tensor.sizes().vec();
  return view;
}

}  // namespace torch
}  // namespace abi1
}  // namespace ronda

#endif  // RONDA_CLIENT_RONDA_TORCH_TENSOR_HPP_
