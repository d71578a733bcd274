// SPDX-License-Identifier: Apache-2.0

// Views of buffers.
#ifndef RONDA_CLIENT_RONDA_TENSOR_HPP_
#define RONDA_CLIENT_RONDA_TENSOR_HPP_

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "../ronda.h"
#include "status.hpp"

namespace ronda {
inline namespace abi1 {

// Types with the bits of 16-bit floating-point numbers, for programs without 16-bit floating-point types of their own.
struct float16 {
  std::uint16_t bits = 0;  // IEEE 754 binary16
};
struct bfloat16 {
  std::uint16_t bits = 0;  // the upper half of an IEEE 754 binary32
};

// The dtype of elements of type T. Specialise this template for your own element types that have the same bit layout:
//
//   template <> struct ronda::element_dtype<Eigen::half> { static constexpr ronda_dtype value = RONDA_FLOAT16; };
template <class T, class = void>
struct element_dtype {
  static_assert(!sizeof(T*), "not an element type that Ronda knows: specialise ronda::element_dtype for it");
};
template <>
struct element_dtype<bool> {
  static constexpr ronda_dtype value = RONDA_BOOL;
};
template <>
struct element_dtype<float16> {
  static constexpr ronda_dtype value = RONDA_FLOAT16;
};
template <>
struct element_dtype<bfloat16> {
  static constexpr ronda_dtype value = RONDA_BFLOAT16;
};
template <>
struct element_dtype<float> {
  static constexpr ronda_dtype value = RONDA_FLOAT32;
};
template <>
struct element_dtype<double> {
  static constexpr ronda_dtype value = RONDA_FLOAT64;
};
template <>
struct element_dtype<std::uint8_t> {
  static constexpr ronda_dtype value = RONDA_UINT8;
};
template <>
struct element_dtype<std::int8_t> {
  static constexpr ronda_dtype value = RONDA_INT8;
};
template <>
struct element_dtype<std::uint16_t> {
  static constexpr ronda_dtype value = RONDA_UINT16;
};
template <>
struct element_dtype<std::int16_t> {
  static constexpr ronda_dtype value = RONDA_INT16;
};
// The dtype of an integer type depends on its size, because both long and long long can have 64 bits.
template <class T>
struct element_dtype<T, std::enable_if_t<std::is_integral_v<T> && (sizeof(T) == 4 || sizeof(T) == 8)>> {
  static constexpr ronda_dtype value = std::is_signed_v<T> ? (sizeof(T) == 4 ? RONDA_INT32 : RONDA_INT64)
                                                           : (sizeof(T) == 4 ? RONDA_UINT32 : RONDA_UINT64);
};

template <class T>
inline constexpr ronda_dtype dtype_of = element_dtype<std::remove_cv_t<T>>::value;

// Returns the size of an element in bytes, or 0 if `dtype` is not a valid dtype.
constexpr std::size_t size_of(ronda_dtype dtype) noexcept {
  switch (dtype) {
    case RONDA_UINT8:
    case RONDA_INT8:
    case RONDA_BOOL:
      return 1;
    case RONDA_FLOAT16:
    case RONDA_BFLOAT16:
    case RONDA_UINT16:
    case RONDA_INT16:
      return 2;
    case RONDA_INT32:
    case RONDA_UINT32:
    case RONDA_FLOAT32:
      return 4;
    case RONDA_INT64:
    case RONDA_UINT64:
    case RONDA_FLOAT64:
      return 8;
  }
  return 0;
}

// A dense tensor in row-major order, owned by the caller. Ronda reads and writes `data` until the operation is
// complete. A tensor in GPU memory is ready once the device has done the work enqueued on `stream` before the
// submission.
struct Tensor {
  // The name must be unique among the tensors in flight, and the same on every rank. If it is empty, the tensor is
  // matched with the other ranks' tensors by the order of unnamed operations in the process set (see ronda_tensor in
  // operations.h).
  std::string name;
  void* data = nullptr;
  ronda_dtype dtype = RONDA_FLOAT32;
  std::vector<std::int64_t> shape;  // outermost dimension first; {} is a scalar
  ronda_memory memory = RONDA_MEMORY_HOST;
  void* stream = nullptr;  // for RONDA_MEMORY_CUDA: a cudaStream_t; nullptr: the default stream

  // Returns the number of elements.
  // REQUIRES: the shape has no negative dimensions (operations check for these and report them).
  std::size_t count() const noexcept {
    std::size_t count = 1;
    for (std::int64_t dim : shape) count *= static_cast<std::size_t>(dim);
    return count;
  }
  std::size_t bytes() const noexcept { return count() * size_of(dtype); }
};

// Views `data` as a tensor of `shape`, or as a scalar if no shape is given. The name may be empty.
template <class T>
Tensor tensor(std::string name, T* data, std::vector<std::int64_t> shape = {}) {
  static_assert(!std::is_const_v<T>, "operations write to a tensor: its elements cannot be const");
  Tensor view;
  view.name = std::move(name);
  view.data = data;
  view.dtype = dtype_of<T>;
  view.shape = std::move(shape);
  return view;
}

// Views the elements of `values` as a one-dimensional tensor. `values` must not be resized while the view is in use.
template <class T>
Tensor tensor(std::string name, std::vector<T>& values) {
  static_assert(!std::is_same_v<T, bool>, "std::vector<bool> has no array of bool to view: use another container");
  return tensor(std::move(name), values.data(), {static_cast<std::int64_t>(values.size())});
}

// Views GPU memory as a tensor. The elements are computed by work on `stream`, a cudaStream_t.
template <class T>
Tensor cuda_tensor(std::string name, T* data, std::vector<std::int64_t> shape, void* stream) {
  Tensor view = tensor(std::move(name), data, std::move(shape));
  view.memory = RONDA_MEMORY_CUDA;
  view.stream = stream;
  return view;
}

namespace detail {

// Returns the tensor name in the form of the C ABI. The pointer is valid as long as `name`.
inline const char* name_to_c(const std::string& name) { return name.empty() ? nullptr : name.c_str(); }

// Returns the tensor in the form of the C ABI. The result points into `tensor`, which must outlive it.
inline ronda_tensor to_c(const Tensor& tensor) {
  return {name_to_c(tensor.name), tensor.dtype, static_cast<int>(tensor.shape.size()), tensor.shape.data()};
}

// Checks that this process can read and write the elements of `tensor`. `what` begins the error text.
inline Status check_elements(const std::string& what, const Tensor& tensor) {
  const auto refusal = [&](const char* why) { return invalid_argument(what + " '" + tensor.name + "' " + why); };
  if (tensor.memory != RONDA_MEMORY_HOST) return refusal("is in a GPU's memory: only host memory is supported here");
  for (const std::int64_t dimension : tensor.shape) {
    if (dimension < 0) return refusal("has a shape with a negative dimension");
  }
  if (tensor.data == nullptr && tensor.bytes() > 0)
    return refusal("has a null pointer, and elements: pass its address");
  return {};
}

// Checks that each element of `tensor` is a T.
template <class T>
Status check_dtype(const Tensor& tensor) {
  if (tensor.dtype == dtype_of<T>) return {};
  return invalid_argument("tensor '" + tensor.name + "' has another dtype than the result that is asked for");
}

}  // namespace detail
}  // namespace abi1
}  // namespace ronda

#endif  // RONDA_CLIENT_RONDA_TENSOR_HPP_
