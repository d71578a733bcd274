// SPDX-License-Identifier: Apache-2.0

// Operations on objects (byte strings of any length), and on sparse tensors, in which only few rows are nonzero.
#ifndef RONDA_CLIENT_RONDA_OBJECTS_HPP_
#define RONDA_CLIENT_RONDA_OBJECTS_HPP_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "../ronda.h"
#include "exchanges.hpp"
#include "handle.hpp"
#include "options.hpp"
#include "status.hpp"
#include "tensor.hpp"

namespace ronda {
inline namespace abi1 {
namespace detail {

using SubmitObject = ronda_status (*)(const ronda_object_args*, ronda_handle*);

inline Result<OutputHandle<char>> submit_object(SubmitObject submit, const std::string& name, std::string_view bytes,
                                                int root, const CallOptions& call) {
  ronda_object_args args = RONDA_OBJECT_ARGS_INIT;
  args.name = name_to_c(name);
  args.data = bytes.data();
  args.size = bytes.size();
  args.root = root;
  args.call = to_c(call);
  ronda_handle handle = 0;
  Status status = to_status(submit(&args, &handle));
  if (!status.ok()) return status;
  return OutputHandle<char>(handle, 1);
}

// Returns the object that the received bytes represent.
template <class T>
T object_of(std::string_view bytes) {
  if constexpr (std::is_same_v<T, std::string>) {
    return std::string(bytes);
  } else {
    T object;
    std::memcpy(&object, bytes.data(), sizeof(T));
    return object;
  }
}

template <class T>
std::string_view bytes_of(const T& object) {
  if constexpr (std::is_same_v<T, std::string>) {
    return object;
  } else {
    static_assert(std::is_trivially_copyable_v<T>, "an object is a std::string, or of a type that memcpy may copy");
    return {reinterpret_cast<const char*>(&object), sizeof(T)};
  }
}

// Returns an error if the object received from `rank`, which has `size` bytes, cannot be a T. A std::string may have
// any size.
template <class T>
Status check_size(const std::string& name, std::int64_t size, int rank) {
  if (std::is_same_v<T, std::string> || size == static_cast<std::int64_t>(sizeof(T))) return {};
  return Status(RONDA_ERROR_MISMATCH, "object '" + name + "': rank " + std::to_string(rank) + " sent " +
                                          std::to_string(size) + " bytes where this one expects " +
                                          std::to_string(sizeof(T)) + ": pass the same type on every rank");
}

}  // namespace detail

// Gives every rank the bytes of rank `root`. The other ranks need not know how many bytes there are. The arguments of
// the other ranks are ignored.
inline Result<OutputHandle<char>> try_broadcast_object_async(const std::string& name, std::string_view bytes, int root,
                                                             const CallOptions& call = {}) {
  return detail::submit_object(ronda_broadcast_object_async, name, bytes, root, call);
}
inline OutputHandle<char> broadcast_object_async(const std::string& name, std::string_view bytes, int root,
                                                 const CallOptions& call = {}) {
  return try_broadcast_object_async(name, bytes, root, call).value();
}

// Returns the object of rank `root`: a std::string of any length, or a trivially copyable T.
template <class T>
Result<T> try_broadcast_object(const std::string& name, const T& object, int root, const CallOptions& call = {}) {
  Result<OutputHandle<char>> handle = try_broadcast_object_async(name, detail::bytes_of(object), root, call);
  Status status = detail::wait_for(handle);
  if (!status.ok()) return status;
  OutputHandle<char>& sent = handle.value();
  status = detail::check_size<T>(name, sent.rows(), root);
  if (!status.ok()) return status;
  return detail::object_of<T>({sent.data(), sent.count()});
}
template <class T>
T broadcast_object(const std::string& name, const T& object, int root, const CallOptions& call = {}) {
  return try_broadcast_object(name, object, root, call).value();
}

// Concatenates the bytes of all ranks. rows_per_rank() of the handle returns how many bytes came from each rank.
inline Result<OutputHandle<char>> try_allgather_object_async(const std::string& name, std::string_view bytes,
                                                             const CallOptions& call = {}) {
  return detail::submit_object(ronda_allgather_object_async, name, bytes, 0, call);
}
inline OutputHandle<char> allgather_object_async(const std::string& name, std::string_view bytes,
                                                 const CallOptions& call = {}) {
  return try_allgather_object_async(name, bytes, call).value();
}

// Returns the objects of all ranks of the process set, in rank order. Ranks that have joined contribute no object.
template <class T>
Result<std::vector<T>> try_allgather_object(const std::string& name, const T& object, const CallOptions& call = {}) {
  Result<OutputHandle<char>> handle = try_allgather_object_async(name, detail::bytes_of(object), call);
  Status status = detail::wait_for(handle);
  if (!status.ok()) return status;
  const std::vector<int> members = call.process_set.ranks();
  std::vector<T> objects;
  const char* next = handle.value().data();
  const std::vector<std::int64_t>& sizes = handle.value().rows_per_rank();
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0 && !std::is_same_v<T, std::string>) continue;
    status = detail::check_size<T>(name, sizes[i], members[i]);
    if (!status.ok()) return status;
    objects.push_back(detail::object_of<T>({next, static_cast<std::size_t>(sizes[i])}));
    next += sizes[i];
  }
  return objects;
}
template <class T>
std::vector<T> allgather_object(const std::string& name, const T& object, const CallOptions& call = {}) {
  return try_allgather_object(name, object, call).value();
}

// The nonzero rows of a tensor. If an index occurs more than once, the row of the tensor is the sum of the rows with
// that index.
template <class T>
struct SparseRows {
  std::vector<std::int64_t> indices;  // of the rows in the dense tensor
  std::vector<T> values;              // indices.size() rows
};

// The result of sparse_allreduce_async(): the rows of all ranks, in rank order.
template <class T>
struct SparseHandles {
  OutputHandle<std::int64_t> indices;
  OutputHandle<T> values;
};

namespace detail {

template <class T>
Result<SparseHandles<T>> submit_sparse(const ronda_sparse_allreduce_args& args, std::size_t row) {
  ronda_handle indices = 0, values = 0;
  Status status = to_status(ronda_sparse_allreduce_async(&args, &indices, &values));
  if (!status.ok()) return status;
  return SparseHandles<T>{OutputHandle<std::int64_t>(indices, 1, args.call.memory),
                          OutputHandle<T>(values, row, args.call.memory)};
}

}  // namespace detail

// Sums or averages sparse tensors over all ranks. Each rank passes only the nonzero rows of its tensor. `values` has
// these rows, and `indices` contains the index of each row in the dense tensor. If `values` and `indices` are in GPU
// memory, so are the results. Averages require values in host memory.
template <class T>
Result<SparseHandles<T>> try_sparse_allreduce_async(const Tensor& values, const std::int64_t* indices,
                                                    Op op = Op::Average, const CallOptions& call = {}) {
  Status status = detail::check_dtype<T>(values);
  if (!status.ok()) return status;
  ronda_sparse_allreduce_args args = RONDA_SPARSE_ALLREDUCE_ARGS_INIT;
  args.tensor = detail::to_c(values);
  args.values = values.data;
  args.indices = indices;
  args.op = static_cast<ronda_reduce_op>(op);
  args.call = detail::to_c(call, values);
  return detail::submit_sparse<T>(args, detail::row_of(values.shape));
}
template <class T>
SparseHandles<T> sparse_allreduce_async(const Tensor& values, const std::int64_t* indices, Op op = Op::Average,
                                        const CallOptions& call = {}) {
  return try_sparse_allreduce_async<T>(values, indices, op, call).value();
}

// Sums or averages sparse tensors over all ranks. Each rank passes only the nonzero rows of its tensor. The result has
// the rows of all ranks, in rank order. An average is divided by the same number as in an allreduce. `row_shape` is the
// shape of one row; {} if rows are single elements.
template <class T>
Result<SparseRows<T>> try_sparse_allreduce(const std::string& name, const SparseRows<T>& rows, const Dims& row_shape,
                                           Op op = Op::Average, const CallOptions& call = {}) {
  Dims shape = {static_cast<std::int64_t>(rows.indices.size())};
  shape.insert(shape.end(), row_shape.begin(), row_shape.end());
  if (rows.values.size() != rows.indices.size() * detail::row_of(shape)) {
    return detail::invalid_argument("sparse_allreduce '" + name + "': there are " + std::to_string(rows.values.size()) +
                                    " values for " + std::to_string(rows.indices.size()) + " rows of " +
                                    std::to_string(detail::row_of(shape)));
  }
  ronda_sparse_allreduce_args args = RONDA_SPARSE_ALLREDUCE_ARGS_INIT;
  args.tensor = detail::tensor_of<T>(name, shape);
  args.values = rows.values.data();
  args.indices = rows.indices.data();
  args.op = static_cast<ronda_reduce_op>(op);
  args.call = detail::to_c(call);
  Result<SparseHandles<T>> handles = detail::submit_sparse<T>(args, detail::row_of(shape));
  if (!handles.ok()) return handles.status();
  Status status = handles.value().values.wait();
  if (!status.ok()) return status;
  return SparseRows<T>{handles.value().indices.result(), handles.value().values.result()};
}
template <class T>
SparseRows<T> sparse_allreduce(const std::string& name, const SparseRows<T>& rows, const Dims& row_shape,
                               Op op = Op::Average, const CallOptions& call = {}) {
  return try_sparse_allreduce(name, rows, row_shape, op, call).value();
}

}  // namespace abi1
}  // namespace ronda

#endif  // RONDA_CLIENT_RONDA_OBJECTS_HPP_
