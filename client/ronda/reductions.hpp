// SPDX-License-Identifier: Apache-2.0

// Operations that reduce a tensor, or a group of tensors. A group is reduced as a whole or not at all.
#ifndef RONDA_CLIENT_RONDA_REDUCTIONS_HPP_
#define RONDA_CLIENT_RONDA_REDUCTIONS_HPP_

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "../ronda.h"
#include "handle.hpp"
#include "options.hpp"
#include "status.hpp"
#include "tensor.hpp"

namespace ronda {
inline namespace abi1 {
namespace detail {

// Rejects zero factors, because zero means "not set" in the C ABI.
inline Status check_scales(const std::string& name, const ReduceOptions& options) {
  if (options.prescale != 0 && options.postscale != 0) return {};
  return invalid_argument("tensor '" + name + "': a scale is 0, which would erase the tensor");
}

// Sets the argument fields that all reductions have. `*args` points into `input`, which must outlive it.
template <class Args>
void set_reduction(const Tensor& input, const ReduceOptions& options, const CallOptions& call, Args* args) {
  args->tensor = to_c(input);
  args->input = input.data;
  args->op = static_cast<ronda_reduce_op>(options.op);
  args->compression = static_cast<ronda_compression>(options.compression);
  args->prescale = options.prescale;
  args->postscale = options.postscale;
  args->error_feedback = options.error_feedback ? 1 : 0;
  args->detect_overflow = options.detect_overflow ? 1 : 0;
  args->call = to_c(call, input);
}

inline ronda_allreduce_args allreduce_args(const Tensor& input, void* output, const ReduceOptions& options,
                                           const CallOptions& call) {
  ronda_allreduce_args args = RONDA_ALLREDUCE_ARGS_INIT;
  set_reduction(input, options, call, &args);
  args.output = output;
  return args;
}

inline ronda_reduce_args reduce_args(const Tensor& input, void* output, int root, const ReduceOptions& options,
                                     const CallOptions& call) {
  ronda_reduce_args args = RONDA_REDUCE_ARGS_INIT;
  set_reduction(input, options, call, &args);
  args.output = output;
  args.root = root;
  return args;
}

inline ronda_reducescatter_args reducescatter_args(const Tensor& input, const ReduceOptions& options,
                                                   const CallOptions& call, const Into& into = {}) {
  ronda_reducescatter_args args = RONDA_REDUCESCATTER_ARGS_INIT;
  set_reduction(input, options, call, &args);
  args.output = into.data;
  args.output_bytes = into.bytes;
  return args;
}

// Sets the arguments of a group of in-place allreduces. `*args` points into `tensors`, which must outlive it.
inline Status set_group(const std::vector<Tensor>& tensors, const ReduceOptions& options, const CallOptions& call,
                        std::vector<ronda_allreduce_args>* args) {
  args->reserve(tensors.size());
  for (const Tensor& tensor : tensors) {
    Status status = check_scales(tensor.name, options);
    if (!status.ok()) return status;
    args->push_back(allreduce_args(tensor, tensor.data, options, call));
  }
  return {};
}

// Checks that T is the type of the tensor's elements, and that neither scale is 0.
template <class T>
Status check_output(const Tensor& tensor, const ReduceOptions& options) {
  Status status = check_dtype<T>(tensor);
  return status.ok() ? check_scales(tensor.name, options) : status;
}

}  // namespace detail

// Reduces `input` over all ranks into `output`. Shape and dtype must be the same on every rank. `output` must either be
// `input.data` or not overlap it. (T may be any type, even void. With a plain void* parameter, `{}` would mean a null
// output, where the caller means the default options of the in-place form.)
template <class T>
Result<Handle> try_allreduce_async(const Tensor& input, T* output, const ReduceOptions& options = {},
                                   const CallOptions& call = {}) {
  Status status = detail::check_scales(input.name, options);
  if (!status.ok()) return status;
  return detail::submit(ronda_allreduce_async, detail::allreduce_args(input, output, options, call));
}
inline Result<Handle> try_allreduce_async(const Tensor& in_place, const ReduceOptions& options = {},
                                          const CallOptions& call = {}) {
  return try_allreduce_async(in_place, in_place.data, options, call);
}
template <class T>
Handle allreduce_async(const Tensor& input, T* output, const ReduceOptions& options = {},
                       const CallOptions& call = {}) {
  return try_allreduce_async(input, output, options, call).value();
}
inline Handle allreduce_async(const Tensor& in_place, const ReduceOptions& options = {}, const CallOptions& call = {}) {
  return try_allreduce_async(in_place, options, call).value();
}

template <class T>
Status try_allreduce(const Tensor& input, T* output, const ReduceOptions& options = {}, const CallOptions& call = {}) {
  Status status = detail::check_scales(input.name, options);
  if (!status.ok()) return status;
  const ronda_allreduce_args args = detail::allreduce_args(input, output, options, call);
  return detail::to_status(ronda_allreduce(&args));
}
inline Status try_allreduce(const Tensor& in_place, const ReduceOptions& options = {}, const CallOptions& call = {}) {
  return try_allreduce(in_place, in_place.data, options, call);
}
template <class T>
void allreduce(const Tensor& input, T* output, const ReduceOptions& options = {}, const CallOptions& call = {}) {
  try_allreduce(input, output, options, call).throw_if_error();
}
inline void allreduce(const Tensor& in_place, const ReduceOptions& options = {}, const CallOptions& call = {}) {
  try_allreduce(in_place, options, call).throw_if_error();
}

// Reduces the tensors in place. If one of the tensors cannot be reduced, none of them is, and every handle gets the
// error of the tensor that failed. `group` names the group, and must be the same on every rank.
inline Result<std::vector<Handle>> try_grouped_allreduce_async(const std::string& group,
                                                               const std::vector<Tensor>& in_place,
                                                               const ReduceOptions& options = {},
                                                               const CallOptions& call = {}) {
  std::vector<ronda_allreduce_args> args;
  Status status = detail::set_group(in_place, options, call, &args);
  if (!status.ok()) return status;
  std::vector<ronda_handle> handles(args.size());
  status = detail::to_status(ronda_grouped_allreduce_async(args.data(), args.size(), group.c_str(), handles.data()));
  if (!status.ok()) return status;
  return detail::take_over(handles);
}
inline std::vector<Handle> grouped_allreduce_async(const std::string& group, const std::vector<Tensor>& in_place,
                                                   const ReduceOptions& options = {}, const CallOptions& call = {}) {
  return try_grouped_allreduce_async(group, in_place, options, call).value();
}
inline Status try_grouped_allreduce(const std::string& group, const std::vector<Tensor>& in_place,
                                    const ReduceOptions& options = {}, const CallOptions& call = {}) {
  std::vector<ronda_allreduce_args> args;
  Status status = detail::set_group(in_place, options, call, &args);
  if (!status.ok()) return status;
  return detail::to_status(ronda_grouped_allreduce(args.data(), args.size(), group.c_str()));
}
inline void grouped_allreduce(const std::string& group, const std::vector<Tensor>& in_place,
                              const ReduceOptions& options = {}, const CallOptions& call = {}) {
  try_grouped_allreduce(group, in_place, options, call).throw_if_error();
}

// Reduces `input` over all ranks into `output` on rank `root`. On the root, `output` must either be `input.data` or not
// overlap it. On other ranks, `output` is ignored.
inline Result<Handle> try_reduce_async(const Tensor& input, void* output, int root, const ReduceOptions& options = {},
                                       const CallOptions& call = {}) {
  Status status = detail::check_scales(input.name, options);
  if (!status.ok()) return status;
  return detail::submit(ronda_reduce_async, detail::reduce_args(input, output, root, options, call));
}
inline Handle reduce_async(const Tensor& input, void* output, int root, const ReduceOptions& options = {},
                           const CallOptions& call = {}) {
  return try_reduce_async(input, output, root, options, call).value();
}
inline Status try_reduce(const Tensor& input, void* output, int root, const ReduceOptions& options = {},
                         const CallOptions& call = {}) {
  Status status = detail::check_scales(input.name, options);
  if (!status.ok()) return status;
  const ronda_reduce_args args = detail::reduce_args(input, output, root, options, call);
  return detail::to_status(ronda_reduce(&args));
}
inline void reduce(const Tensor& input, void* output, int root, const ReduceOptions& options = {},
                   const CallOptions& call = {}) {
  try_reduce(input, output, root, options, call).throw_if_error();
}

// Reduces `input` over all ranks and distributes the rows of the result. With n rows and m ranks, each rank gets n / m
// rows, and the first n % m ranks get one more. T is the type of the tensor's elements. With `into`, Ronda writes the
// rows to the caller's memory.
template <class T>
Result<OutputHandle<T>> try_reducescatter_async(const Tensor& input, const ReduceOptions& options = {},
                                                const CallOptions& call = {}, const Into& into = {}) {
  Status status = detail::check_output<T>(input, options);
  if (!status.ok()) return status;
  const ronda_reducescatter_args args = detail::reducescatter_args(input, options, call, into);
  return detail::submit_output<T>(ronda_reducescatter_async, args, input.shape);
}
template <class T>
OutputHandle<T> reducescatter_async(const Tensor& input, const ReduceOptions& options = {},
                                    const CallOptions& call = {}, const Into& into = {}) {
  return try_reducescatter_async<T>(input, options, call, into).value();
}
template <class T>
Result<std::vector<T>> try_reducescatter(const Tensor& input, const ReduceOptions& options = {},
                                         const CallOptions& call = {}) {
  return detail::result_of(try_reducescatter_async<T>(input, options, call));
}
template <class T>
std::vector<T> reducescatter(const Tensor& input, const ReduceOptions& options = {}, const CallOptions& call = {}) {
  return try_reducescatter<T>(input, options, call).value();
}

// Like reducescatter() for several tensors. Reduces all tensors or none, as grouped_allreduce() does. If `into` is
// given, Ronda writes the result for inputs[i] to into[i].
template <class T>
Result<std::vector<OutputHandle<T>>> try_grouped_reducescatter_async(const std::string& group,
                                                                     const std::vector<Tensor>& inputs,
                                                                     const ReduceOptions& options = {},
                                                                     const CallOptions& call = {},
                                                                     const std::vector<Into>& into = {}) {
  std::vector<ronda_reducescatter_args> args;
  std::vector<detail::OutputKind> kinds;
  Status status = detail::check_into(group, inputs.size(), into);
  for (std::size_t i = 0; status.ok() && i < inputs.size(); ++i) {
    status = detail::check_output<T>(inputs[i], options);
    args.push_back(detail::reducescatter_args(inputs[i], options, call, into.empty() ? Into{} : into[i]));
    kinds.push_back({detail::row_of(inputs[i].shape), inputs[i].memory});
  }
  if (!status.ok()) return status;
  std::vector<ronda_handle> handles(args.size());
  status =
      detail::to_status(ronda_grouped_reducescatter_async(args.data(), args.size(), group.c_str(), handles.data()));
  if (!status.ok()) return status;
  return detail::take_over<T>(handles, kinds);
}
template <class T>
std::vector<OutputHandle<T>> grouped_reducescatter_async(const std::string& group, const std::vector<Tensor>& inputs,
                                                         const ReduceOptions& options = {},
                                                         const CallOptions& call = {},
                                                         const std::vector<Into>& into = {}) {
  return try_grouped_reducescatter_async<T>(group, inputs, options, call, into).value();
}

}  // namespace abi1
}  // namespace ronda

#endif  // RONDA_CLIENT_RONDA_REDUCTIONS_HPP_
