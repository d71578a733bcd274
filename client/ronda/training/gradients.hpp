// SPDX-License-Identifier: Apache-2.0

// Computes norms of gradients in host memory, and scales gradients.
#ifndef RONDA_CLIENT_RONDA_TRAINING_GRADIENTS_HPP_
#define RONDA_CLIENT_RONDA_TRAINING_GRADIENTS_HPP_

#include <cmath>
#include <cstddef>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "../options.hpp"
#include "../process_set.hpp"
#include "../reductions.hpp"
#include "../status.hpp"
#include "../tensor.hpp"

namespace ronda {
inline namespace abi1 {
namespace detail {

// Calls `visit(element)` with a reference to each element of `gradient`.
// Errors: RONDA_ERROR_INVALID_ARGUMENT if `gradient` is not float32 or float64 in host memory, or has a null pointer or
// a negative dimension.
template <class Visit>
Status visit_elements(const Tensor& gradient, const Visit& visit) {
  const auto visit_all = [&](auto* elements) {
    const std::size_t count = gradient.count();
    for (std::size_t i = 0; i < count; ++i) visit(elements[i]);
  };
  Status status = check_elements("gradient", gradient);
  if (!status.ok()) return status;
  if (gradient.dtype == RONDA_FLOAT32) {
    visit_all(static_cast<float*>(gradient.data));
  } else if (gradient.dtype == RONDA_FLOAT64) {
    visit_all(static_cast<double*>(gradient.data));
  } else {
    return invalid_argument("gradient '" + gradient.name + "' is neither of float32 nor of float64");
  }
  return {};
}

}  // namespace detail

namespace training {

// Multiplies all gradients by `factor`, for instance by 1 / scaler.scale() if the loss was scaled.
// Errors: RONDA_ERROR_INVALID_ARGUMENT if a gradient is not float32 or float64 in host memory; the gradients before it
// have then been multiplied.
inline Status try_scale_gradients(const std::vector<Tensor>& gradients, double factor) {
  for (const Tensor& gradient : gradients) {
    Status status = detail::visit_elements(gradient, [factor](auto& element) {
      element = static_cast<std::decay_t<decltype(element)>>(element * factor);
    });
    if (!status.ok()) return status;
  }
  return {};
}
inline void scale_gradients(const std::vector<Tensor>& gradients, double factor) {
  try_scale_gradients(gradients, factor).throw_if_error();
}

// Returns the Euclidean norm over all elements of all gradients. If `shards` is given, its ranks hold different
// gradients. The norm then covers the gradients of all these ranks, each of which must call the function.
// Errors: the errors of try_scale_gradients() and of an allreduce.
inline Result<double> try_global_norm(const std::vector<Tensor>& gradients,
                                      const std::optional<ProcessSet>& shards = std::nullopt) {
  double squares = 0;
  for (const Tensor& gradient : gradients) {
    Status status = detail::visit_elements(
        gradient, [&](auto element) { squares += static_cast<double>(element) * static_cast<double>(element); });
    if (!status.ok()) return status;
  }
  if (shards) {
    ReduceOptions sum;
    sum.op = Op::Sum;
    CallOptions call;
    call.process_set = *shards;
    Status status = try_allreduce(tensor("ronda.training.global_norm", &squares), sum, call);
    if (!status.ok()) return status;
  }
  return std::sqrt(squares);
}
inline double global_norm(const std::vector<Tensor>& gradients,
                          const std::optional<ProcessSet>& shards = std::nullopt) {
  return try_global_norm(gradients, shards).value();
}

// Scales all gradients so that their global_norm() is at most `max_norm`, and returns the norm before scaling.
// Implements algorithm 1 of Pascanu, Mikolov and Bengio, "On the difficulty of training recurrent neural networks",
// 2013. After an allreduce the gradients are the same on every rank, so every rank scales by the same factor. If the
// norm is infinite or NaN, the gradients are unchanged.
//
//   optimizer.synchronize();
//   ronda::training::clip_by_global_norm(optimizer.gradients(), 1.0);
//   optimizer.step();
//
// Errors: RONDA_ERROR_INVALID_ARGUMENT if max_norm is not above 0; the errors of try_global_norm().
inline Result<double> try_clip_by_global_norm(const std::vector<Tensor>& gradients, double max_norm,
                                              const std::optional<ProcessSet>& shards = std::nullopt) {
  if (!(max_norm > 0)) {
    return detail::invalid_argument("clip_by_global_norm: max_norm is " + std::to_string(max_norm) +
                                    ": it must be above 0");
  }
  Result<double> norm = try_global_norm(gradients, shards);
  if (!norm.ok() || !std::isfinite(norm.value()) || norm.value() <= max_norm) return norm;
  Status status = try_scale_gradients(gradients, max_norm / norm.value());
  if (!status.ok()) return status;
  return norm;
}
inline double clip_by_global_norm(const std::vector<Tensor>& gradients, double max_norm,
                                  const std::optional<ProcessSet>& shards = std::nullopt) {
  return try_clip_by_global_norm(gradients, max_norm, shards).value();
}

}  // namespace training
}  // namespace abi1
}  // namespace ronda

#endif  // RONDA_CLIENT_RONDA_TRAINING_GRADIENTS_HPP_
