// SPDX-License-Identifier: Apache-2.0

// Operations on libtorch tensors in host memory. If a tensor is not contiguous, Ronda works on a contiguous copy of it.
//
//   at::Tensor mean = ronda::torch::allreduce("mean", tensor);
//   ronda::torch::broadcast_("weights", weights, /*root=*/0);          in place, with libtorch's naming
//   auto sum = ronda::torch::allreduce_async("sum", tensor, {ronda::Op::Sum});
//   ... other work
//   use(sum.result());
//
// Options and errors are the same as in ../collectives.hpp. libtorch's autograd cannot differentiate the operations in
// this file.
#ifndef RONDA_CLIENT_RONDA_TORCH_COLLECTIVES_HPP_
#define RONDA_CLIENT_RONDA_TORCH_COLLECTIVES_HPP_

#include <torch/types.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "../exchanges.hpp"
#include "../handle.hpp"
#include "../options.hpp"
#include "../reductions.hpp"
#include "tensor.hpp"

namespace ronda {
inline namespace abi1 {
namespace torch {

// An operation in flight on tensors that have the same shape on every rank. The handle keeps the tensors alive. The
// destructor waits for the operation. Thread-compatible.
class TensorHandle {
 public:
  // Takes ownership of the operation, which writes to `output` and reads `input`.
  TensorHandle(Handle handle, detail::Rows output, at::Tensor result, at::Tensor input = {})
      : input_(std::move(input)), output_(std::move(output)), result_(std::move(result)), handle_(std::move(handle)) {}

  TensorHandle(TensorHandle&&) = default;
  // First waits for this object's own operation, which still uses the tensors.
  TensorHandle& operator=(TensorHandle&& other) noexcept {
    handle_ = std::move(other.handle_);
    input_ = std::move(other.input_);
    output_ = std::move(other.output_);
    result_ = std::move(other.result_);
    is_fetched_ = other.is_fetched_;
    return *this;
  }

  bool poll() const { return handle_.poll(); }

  // Waits, and returns the result, which is the caller's own tensor for an in-place operation. Throws the operation's
  // error if it failed.
  const at::Tensor& result() {
    if (is_fetched_) return result_;
    handle_.synchronize();
    output_.written();
    is_fetched_ = true;
    return result_;
  }

  // With `detect_overflow`, like Handle::found_inf().
  bool found_inf() const { return handle_.found_inf(); }

 private:
  at::Tensor input_;
  detail::Rows output_;
  at::Tensor result_;
  bool is_fetched_ = false;
  Handle handle_;  // the last member: it waits before the tensors are destroyed
};

// An operation in flight whose result may have a different number of rows than its input. The destructor waits for the
// operation. Thread-compatible.
class RowsHandle {
 public:
  // Takes ownership of the operation, which reads `input`. The result has the shape and dtype of `input`, except for
  // the number of rows.
  RowsHandle(OutputHandle<char> handle, at::Tensor input) : input_(std::move(input)), handle_(std::move(handle)) {}

  RowsHandle(RowsHandle&&) = default;
  // First waits for this object's own operation, which still uses the tensor.
  RowsHandle& operator=(RowsHandle&& other) noexcept {
    handle_ = std::move(other.handle_);
    input_ = std::move(other.input_);
    result_ = std::move(other.result_);
    return *this;
  }

  bool poll() const { return handle_.poll(); }

  // Waits, and returns the result. Throws the operation's error if it failed.
  const at::Tensor& result() {
    if (result_.defined()) return result_;
    std::vector<std::int64_t> shape = input_.sizes().vec();
    shape.at(0) = handle_.rows();
    at::Tensor result = at::empty(shape, input_.options());
    if (result.numel() > 0) std::memcpy(result.data_ptr(), handle_.data(), result.nbytes());
    return result_ = result;
  }

  // For an allgather or alltoall, returns how many of the rows came from each rank, in rank order.
  const std::vector<std::int64_t>& rows_per_rank() { return handle_.rows_per_rank(); }

 private:
  at::Tensor input_;
  at::Tensor result_;
  OutputHandle<char> handle_;  // the last member: it waits before the tensor is destroyed
};

namespace detail {

// Sets the fields of `args` that describe the input, and calls `submit`, the C function of an operation whose result
// consists of rows.
template <class Args>
RowsHandle submit_rows(ronda_status (*submit)(const Args*, ronda_handle*), Args args, const std::string& name,
                       const at::Tensor& tensor, const CallOptions& call) {
  const at::Tensor input = Rows(name, tensor).get();
  const Tensor view = torch::view(name, input);
  args.tensor = ronda::detail::to_c(view);
  args.input = view.data;
  args.call = ronda::detail::to_c(call);
  ronda_handle handle = 0;
  ronda::detail::to_status(submit(&args, &handle)).throw_if_error();
  // The OutputHandle treats elements as bytes, because only libtorch knows the element type here.
  return RowsHandle(OutputHandle<char>(handle, ronda::detail::row_of(view.shape) * size_of(view.dtype)), input);
}

}  // namespace detail

// Reduces the tensor over all ranks. Functions whose names end in `_` work in place; the others return a new tensor.
inline TensorHandle allreduce_async_(const std::string& name, const at::Tensor& tensor,
                                     const ReduceOptions& options = {}, const CallOptions& call = {}) {
  detail::Rows rows(name, tensor);
  return {ronda::allreduce_async(view(name, rows.get()), options, call), rows, tensor};
}
inline TensorHandle allreduce_async(const std::string& name, const at::Tensor& tensor,
                                    const ReduceOptions& options = {}, const CallOptions& call = {}) {
  const detail::Rows input(name, tensor);
  const at::Tensor output = at::empty_like(input.get());
  return {ronda::allreduce_async(view(name, input.get()), output.data_ptr(), options, call), detail::Rows(name, output),
          output, input.get()};
}
inline at::Tensor allreduce_(const std::string& name, const at::Tensor& tensor, const ReduceOptions& options = {},
                             const CallOptions& call = {}) {
  return allreduce_async_(name, tensor, options, call).result();
}
inline at::Tensor allreduce(const std::string& name, const at::Tensor& tensor, const ReduceOptions& options = {},
                            const CallOptions& call = {}) {
  return allreduce_async(name, tensor, options, call).result();
}

// Reduces several tensors in place, or none if one of them cannot be reduced. `group` and the order of the tensors must
// be the same on every rank.
inline void grouped_allreduce_(const std::string& group, const std::vector<at::Tensor>& tensors,
                               const ReduceOptions& options = {}, const CallOptions& call = {}) {
  std::vector<detail::Rows> rows;
  std::vector<Tensor> views;
  for (const at::Tensor& tensor : tensors) {
    const std::string name = group + "." + std::to_string(views.size());
    rows.emplace_back(name, tensor);
    views.push_back(view(name, rows.back().get()));
  }
  ronda::grouped_allreduce(group, views, options, call);
  for (const detail::Rows& written : rows) written.written();
}

// Copies the elements on rank `root` to the other ranks, whose tensors must have the same shape and dtype. Functions
// whose names end in `_` work in place; the others return a new tensor.
inline TensorHandle broadcast_async_(const std::string& name, const at::Tensor& tensor, int root,
                                     const CallOptions& call = {}) {
  detail::Rows rows(name, tensor);
  return {ronda::broadcast_async(view(name, rows.get()), root, call), rows, tensor};
}
inline at::Tensor broadcast_(const std::string& name, const at::Tensor& tensor, int root,
                             const CallOptions& call = {}) {
  return broadcast_async_(name, tensor, root, call).result();
}
inline at::Tensor broadcast(const std::string& name, const at::Tensor& tensor, int root, const CallOptions& call = {}) {
  detail::check(name, tensor);
  return broadcast_(name, tensor.detach().clone(at::MemoryFormat::Contiguous), root, call);
}

// Concatenates the tensors of all ranks along their first dimension, which may differ between ranks.
inline RowsHandle allgather_async(const std::string& name, const at::Tensor& tensor, const CallOptions& call = {}) {
  return detail::submit_rows<ronda_allgather_args>(ronda_allgather_async, RONDA_ALLGATHER_ARGS_INIT, name, tensor,
                                                   call);
}
inline at::Tensor allgather(const std::string& name, const at::Tensor& tensor, const CallOptions& call = {}) {
  return allgather_async(name, tensor, call).result();
}

// Reduces the tensor over all ranks and distributes the rows of the result. If the number of rows is not a multiple of
// the number of ranks, the first ranks get one row more.
inline RowsHandle reducescatter_async(const std::string& name, const at::Tensor& tensor,
                                      const ReduceOptions& options = {}, const CallOptions& call = {}) {
  ronda::detail::check_scales(name, options).throw_if_error();
  ronda_reducescatter_args args = RONDA_REDUCESCATTER_ARGS_INIT;
  ronda::detail::set_reduction(Tensor(), options, call, &args);
  return detail::submit_rows(ronda_reducescatter_async, args, name, tensor, call);
}
inline at::Tensor reducescatter(const std::string& name, const at::Tensor& tensor, const ReduceOptions& options = {},
                                const CallOptions& call = {}) {
  return reducescatter_async(name, tensor, options, call).result();
}

// Sends `splits[i]` rows of the tensor to the i-th rank, and receives rows from every rank, in rank order. Without
// `splits`, each rank gets the same number of rows, so the number of rows must be a multiple of the number of ranks.
inline RowsHandle alltoall_async(const std::string& name, const at::Tensor& tensor,
                                 const std::vector<std::int64_t>& splits = {}, const CallOptions& call = {}) {
  ronda_alltoall_args args = RONDA_ALLTOALL_ARGS_INIT;
  args.splits = splits.data();
  args.split_count = static_cast<int>(splits.size());
  return detail::submit_rows(ronda_alltoall_async, args, name, tensor, call);
}
inline at::Tensor alltoall(const std::string& name, const at::Tensor& tensor,
                           const std::vector<std::int64_t>& splits = {}, const CallOptions& call = {}) {
  return alltoall_async(name, tensor, splits, call).result();
}

}  // namespace torch
}  // namespace abi1
}  // namespace ronda

#endif  // RONDA_CLIENT_RONDA_TORCH_COLLECTIVES_HPP_
