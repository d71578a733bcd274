// SPDX-License-Identifier: Apache-2.0

// Operations that move tensors between ranks without arithmetic on them.
#ifndef RONDA_CLIENT_RONDA_EXCHANGES_HPP_
#define RONDA_CLIENT_RONDA_EXCHANGES_HPP_

#include <cstddef>
#include <cstdint>
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

using Dims = std::vector<std::int64_t>;

namespace detail {

template <class T>
ronda_tensor tensor_of(const std::string& name, const Dims& shape) {
  return {name_to_c(name), dtype_of<T>, static_cast<int>(shape.size()), shape.data()};
}

inline ronda_broadcast_args broadcast_args(const Tensor& tensor, int root, const CallOptions& call) {
  ronda_broadcast_args args = RONDA_BROADCAST_ARGS_INIT;
  args.tensor = to_c(tensor);
  args.data = tensor.data;
  args.root = root;
  args.call = to_c(call, tensor);
  return args;
}

inline ronda_send_args send_args(const Tensor& tensor, int to, int tag, const CallOptions& call) {
  ronda_send_args args = RONDA_SEND_ARGS_INIT;
  args.tensor = to_c(tensor);
  args.input = tensor.data;
  args.to = to;
  args.tag = tag;
  args.call = to_c(call, tensor);
  return args;
}

inline ronda_recv_args recv_args(const Tensor& tensor, int from, int tag, const CallOptions& call) {
  ronda_recv_args args = RONDA_RECV_ARGS_INIT;
  args.tensor = to_c(tensor);
  args.output = tensor.data;
  args.from = from;
  args.tag = tag;
  args.call = to_c(call, tensor);
  return args;
}

// Sets the fields of `args` that describe `input` and the memory for the result.
template <class T, class Args>
Status set_input(const Tensor& input, const CallOptions& call, const Into& into, Args* args) {
  args->tensor = to_c(input);
  args->input = input.data;
  args->call = to_c(call, input);
  args->output = into.data;
  args->output_bytes = into.bytes;
  return check_dtype<T>(input);
}

// Completes `args` from `input`, and submits the operation.
template <class T, class Args>
Result<OutputHandle<T>> submit_input(ronda_status (*submit)(const Args*, ronda_handle*), Args args, const Tensor& input,
                                     const CallOptions& call, const Into& into) {
  Status status = set_input<T>(input, call, into, &args);
  if (!status.ok()) return status;
  return submit_output<T>(submit, args, input.shape);
}

// Submits a group of allgathers. `kinds` describes their results.
template <class T>
Result<std::vector<OutputHandle<T>>> submit_group(const std::string& group,
                                                  const std::vector<ronda_allgather_args>& args,
                                                  const std::vector<OutputKind>& kinds) {
  std::vector<ronda_handle> handles(args.size());
  Status status = to_status(ronda_grouped_allgather_async(args.data(), args.size(), group.c_str(), handles.data()));
  if (!status.ok()) return status;
  return take_over<T>(handles, kinds);
}

}  // namespace detail

// Copies the elements of `tensor` on rank `root` to all other ranks, which must pass the same shape and dtype.
inline Result<Handle> try_broadcast_async(const Tensor& tensor, int root, const CallOptions& call = {}) {
  return detail::submit(ronda_broadcast_async, detail::broadcast_args(tensor, root, call));
}
inline Handle broadcast_async(const Tensor& tensor, int root, const CallOptions& call = {}) {
  return try_broadcast_async(tensor, root, call).value();
}
inline Status try_broadcast(const Tensor& tensor, int root, const CallOptions& call = {}) {
  const ronda_broadcast_args args = detail::broadcast_args(tensor, root, call);
  return detail::to_status(ronda_broadcast(&args));
}
inline void broadcast(const Tensor& tensor, int root, const CallOptions& call = {}) {
  try_broadcast(tensor, root, call).throw_if_error();
}

// Concatenates the tensors of all ranks along their first dimension. The first dimension may differ between ranks; the
// dtype and all other dimensions must be the same. `data` points to the elements. `shape` must have at least one
// dimension.
template <class T>
Result<OutputHandle<T>> try_allgather_async(const std::string& name, const T* data, const Dims& shape,
                                            const CallOptions& call = {}) {
  ronda_allgather_args args = RONDA_ALLGATHER_ARGS_INIT;
  args.tensor = detail::tensor_of<T>(name, shape);
  args.input = data;
  args.call = detail::to_c(call);
  return detail::submit_output<T>(ronda_allgather_async, args, shape);
}
template <class T>
OutputHandle<T> allgather_async(const std::string& name, const T* data, const Dims& shape,
                                const CallOptions& call = {}) {
  return try_allgather_async(name, data, shape, call).value();
}
// An allgather of a Tensor, which may be in GPU memory. The result is in the same kind of memory as the input. With
// `into`, Ronda writes the result to the caller's memory. The other operations in this file also have overloads for
// Tensors.
template <class T>
Result<OutputHandle<T>> try_allgather_async(const Tensor& input, const CallOptions& call = {}, const Into& into = {}) {
  const ronda_allgather_args args = RONDA_ALLGATHER_ARGS_INIT;
  return detail::submit_input<T>(ronda_allgather_async, args, input, call, into);
}
template <class T>
OutputHandle<T> allgather_async(const Tensor& input, const CallOptions& call = {}, const Into& into = {}) {
  return try_allgather_async<T>(input, call, into).value();
}
// Waits, and returns only the concatenation; allgather_async() also tells how many rows come from each rank.
template <class T>
Result<std::vector<T>> try_allgather(const std::string& name, const T* data, const Dims& shape,
                                     const CallOptions& call = {}) {
  return detail::result_of(try_allgather_async(name, data, shape, call));
}
template <class T>
std::vector<T> allgather(const std::string& name, const T* data, const Dims& shape, const CallOptions& call = {}) {
  return try_allgather(name, data, shape, call).value();
}

// A tensor for grouped_allgather_async().
template <class T>
struct GatherInput {
  std::string name;
  const T* data = nullptr;
  Dims shape;
};

// Starts several allgathers that run together. If one of them cannot run, none of them runs, and every handle gets that
// one's error. `group` names the group, and must be the same on every rank.
template <class T>
Result<std::vector<OutputHandle<T>>> try_grouped_allgather_async(const std::string& group,
                                                                 const std::vector<GatherInput<T>>& inputs,
                                                                 const CallOptions& call = {}) {
  std::vector<ronda_allgather_args> args(inputs.size(), RONDA_ALLGATHER_ARGS_INIT);
  std::vector<detail::OutputKind> kinds(inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    args[i].tensor = detail::tensor_of<T>(inputs[i].name, inputs[i].shape);
    args[i].input = inputs[i].data;
    args[i].call = detail::to_c(call);
    kinds[i].row = detail::row_of(inputs[i].shape);
  }
  return detail::submit_group<T>(group, args, kinds);
}
template <class T>
std::vector<OutputHandle<T>> grouped_allgather_async(const std::string& group,
                                                     const std::vector<GatherInput<T>>& inputs,
                                                     const CallOptions& call = {}) {
  return try_grouped_allgather_async(group, inputs, call).value();
}
// A group of allgathers of Tensors, which may be in GPU memory. If `into` is given, Ronda writes the result for
// inputs[i] to into[i].
template <class T>
Result<std::vector<OutputHandle<T>>> try_grouped_allgather_async(const std::string& group,
                                                                 const std::vector<Tensor>& inputs,
                                                                 const CallOptions& call = {},
                                                                 const std::vector<Into>& into = {}) {
  std::vector<ronda_allgather_args> args(inputs.size(), RONDA_ALLGATHER_ARGS_INIT);
  std::vector<detail::OutputKind> kinds(inputs.size());
  Status status = detail::check_into(group, inputs.size(), into);
  for (std::size_t i = 0; status.ok() && i < inputs.size(); ++i) {
    status = detail::set_input<T>(inputs[i], call, into.empty() ? Into{} : into[i], &args[i]);
    kinds[i] = {detail::row_of(inputs[i].shape), inputs[i].memory};
  }
  if (!status.ok()) return status;
  return detail::submit_group<T>(group, args, kinds);
}
template <class T>
std::vector<OutputHandle<T>> grouped_allgather_async(const std::string& group, const std::vector<Tensor>& inputs,
                                                     const CallOptions& call = {}, const std::vector<Into>& into = {}) {
  return try_grouped_allgather_async<T>(group, inputs, call, into).value();
}

// Like allgather(), but only rank `root` gets the result; the other ranks get an empty result.
template <class T>
Result<OutputHandle<T>> try_gather_async(const std::string& name, const T* data, const Dims& shape, int root,
                                         const CallOptions& call = {}) {
  ronda_gather_args args = RONDA_GATHER_ARGS_INIT;
  args.tensor = detail::tensor_of<T>(name, shape);
  args.input = data;
  args.root = root;
  args.call = detail::to_c(call);
  return detail::submit_output<T>(ronda_gather_async, args, shape);
}
template <class T>
OutputHandle<T> gather_async(const std::string& name, const T* data, const Dims& shape, int root,
                             const CallOptions& call = {}) {
  return try_gather_async(name, data, shape, root, call).value();
}
template <class T>
Result<OutputHandle<T>> try_gather_async(const Tensor& input, int root, const CallOptions& call = {},
                                         const Into& into = {}) {
  ronda_gather_args args = RONDA_GATHER_ARGS_INIT;
  args.root = root;
  return detail::submit_input<T>(ronda_gather_async, args, input, call, into);
}
template <class T>
OutputHandle<T> gather_async(const Tensor& input, int root, const CallOptions& call = {}, const Into& into = {}) {
  return try_gather_async<T>(input, root, call, into).value();
}
template <class T>
Result<std::vector<T>> try_gather(const std::string& name, const T* data, const Dims& shape, int root,
                                  const CallOptions& call = {}) {
  return detail::result_of(try_gather_async(name, data, shape, root, call));
}
template <class T>
std::vector<T> gather(const std::string& name, const T* data, const Dims& shape, int root,
                      const CallOptions& call = {}) {
  return try_gather(name, data, shape, root, call).value();
}

// Distributes the rows of rank `root`'s tensor to the ranks of the process set. `splits` contains the number of rows
// for each rank. If `splits` is empty, the rows are divided as evenly as possible, and the first ranks get one row more
// if necessary. The other ranks must pass the same dtype and dimensions; their `data`, `splits` and first dimension are
// ignored.
template <class T>
Result<OutputHandle<T>> try_scatter_async(const std::string& name, const T* data, const Dims& shape, int root,
                                          const Dims& splits = {}, const CallOptions& call = {}) {
  ronda_scatter_args args = RONDA_SCATTER_ARGS_INIT;
  args.tensor = detail::tensor_of<T>(name, shape);
  args.input = data;
  args.splits = splits.data();
  args.split_count = static_cast<int>(splits.size());
  args.root = root;
  args.call = detail::to_c(call);
  return detail::submit_output<T>(ronda_scatter_async, args, shape);
}
template <class T>
OutputHandle<T> scatter_async(const std::string& name, const T* data, const Dims& shape, int root,
                              const Dims& splits = {}, const CallOptions& call = {}) {
  return try_scatter_async(name, data, shape, root, splits, call).value();
}
template <class T>
Result<OutputHandle<T>> try_scatter_async(const Tensor& input, int root, const Dims& splits = {},
                                          const CallOptions& call = {}, const Into& into = {}) {
  ronda_scatter_args args = RONDA_SCATTER_ARGS_INIT;
  args.splits = splits.data();
  args.split_count = static_cast<int>(splits.size());
  args.root = root;
  return detail::submit_input<T>(ronda_scatter_async, args, input, call, into);
}
template <class T>
OutputHandle<T> scatter_async(const Tensor& input, int root, const Dims& splits = {}, const CallOptions& call = {},
                              const Into& into = {}) {
  return try_scatter_async<T>(input, root, splits, call, into).value();
}
template <class T>
Result<std::vector<T>> try_scatter(const std::string& name, const T* data, const Dims& shape, int root,
                                   const Dims& splits = {}, const CallOptions& call = {}) {
  return detail::result_of(try_scatter_async(name, data, shape, root, splits, call));
}
template <class T>
std::vector<T> scatter(const std::string& name, const T* data, const Dims& shape, int root, const Dims& splits = {},
                       const CallOptions& call = {}) {
  return try_scatter(name, data, shape, root, splits, call).value();
}

// Sends `splits[i]` rows of this rank's tensor to the i-th rank of the process set, and receives the rows that those
// ranks send to this rank, in rank order. If `splits` is empty, each rank gets the same number of rows, so the number
// of ranks must divide the first dimension. The first dimension may differ between ranks.
template <class T>
Result<OutputHandle<T>> try_alltoall_async(const std::string& name, const T* data, const Dims& shape,
                                           const Dims& splits = {}, const CallOptions& call = {}) {
  ronda_alltoall_args args = RONDA_ALLTOALL_ARGS_INIT;
  args.tensor = detail::tensor_of<T>(name, shape);
  args.input = data;
  args.splits = splits.data();
  args.split_count = static_cast<int>(splits.size());
  args.call = detail::to_c(call);
  return detail::submit_output<T>(ronda_alltoall_async, args, shape);
}
template <class T>
OutputHandle<T> alltoall_async(const std::string& name, const T* data, const Dims& shape, const Dims& splits = {},
                               const CallOptions& call = {}) {
  return try_alltoall_async(name, data, shape, splits, call).value();
}

template <class T>
Result<OutputHandle<T>> try_alltoall_async(const Tensor& input, const Dims& splits = {}, const CallOptions& call = {},
                                           const Into& into = {}) {
  ronda_alltoall_args args = RONDA_ALLTOALL_ARGS_INIT;
  args.splits = splits.data();
  args.split_count = static_cast<int>(splits.size());
  return detail::submit_input<T>(ronda_alltoall_async, args, input, call, into);
}
template <class T>
OutputHandle<T> alltoall_async(const Tensor& input, const Dims& splits = {}, const CallOptions& call = {},
                               const Into& into = {}) {
  return try_alltoall_async<T>(input, splits, call, into).value();
}

// The rows that this rank has received, and how many of them came from each rank.
template <class T>
struct AlltoallResult {
  std::vector<T> values;
  Dims received_splits;
};

template <class T>
Result<AlltoallResult<T>> try_alltoall(const std::string& name, const T* data, const Dims& shape,
                                       const Dims& splits = {}, const CallOptions& call = {}) {
  Result<OutputHandle<T>> handle = try_alltoall_async(name, data, shape, splits, call);
  Status status = detail::wait_for(handle);
  if (!status.ok()) return status;
  return AlltoallResult<T>{handle.value().result(), handle.value().rows_per_rank()};
}
template <class T>
AlltoallResult<T> alltoall(const std::string& name, const T* data, const Dims& shape, const Dims& splits = {},
                           const CallOptions& call = {}) {
  return try_alltoall(name, data, shape, splits, call).value();
}

// Sends `tensor` to rank `to`. This rank's n-th send to rank `to` with a given tag matches the n-th receive on rank
// `to` from this rank with the same tag. The sender and the receiver must pass the same dtype and shape. Up to 64 sends
// with the same tag may be in flight from one rank to another. The tensor's name is ignored.
inline Result<Handle> try_send_async(const Tensor& tensor, int to, int tag = 0, const CallOptions& call = {}) {
  return detail::submit(ronda_send_async, detail::send_args(tensor, to, tag, call));
}
inline Handle send_async(const Tensor& tensor, int to, int tag = 0, const CallOptions& call = {}) {
  return try_send_async(tensor, to, tag, call).value();
}
inline Status try_send(const Tensor& tensor, int to, int tag = 0, const CallOptions& call = {}) {
  const ronda_send_args args = detail::send_args(tensor, to, tag, call);
  return detail::to_status(ronda_send(&args));
}
inline void send(const Tensor& tensor, int to, int tag = 0, const CallOptions& call = {}) {
  try_send(tensor, to, tag, call).throw_if_error();
}

// Receives `tensor` from rank `from`.
inline Result<Handle> try_recv_async(const Tensor& tensor, int from, int tag = 0, const CallOptions& call = {}) {
  return detail::submit(ronda_recv_async, detail::recv_args(tensor, from, tag, call));
}
inline Handle recv_async(const Tensor& tensor, int from, int tag = 0, const CallOptions& call = {}) {
  return try_recv_async(tensor, from, tag, call).value();
}
inline Status try_recv(const Tensor& tensor, int from, int tag = 0, const CallOptions& call = {}) {
  const ronda_recv_args args = detail::recv_args(tensor, from, tag, call);
  return detail::to_status(ronda_recv(&args));
}
inline void recv(const Tensor& tensor, int from, int tag = 0, const CallOptions& call = {}) {
  try_recv(tensor, from, tag, call).throw_if_error();
}

}  // namespace abi1
}  // namespace ronda

#endif  // RONDA_CLIENT_RONDA_EXCHANGES_HPP_
