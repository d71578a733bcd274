// Collective operations on named tensors.
//
// Every rank submits the same tensors with the same arguments, in any order; the name brings them together. Functions
// named *_async return at once, and the buffers belong to the operation until its handle is complete. The others wait.
//
// Errors of a submission, thrown or returned at once:
//   RONDA_ERROR_NOT_INITIALIZED, RONDA_ERROR_INVALID_ARGUMENT, RONDA_ERROR_DUPLICATE_NAME (the name is in flight), or
//   the job's failure.
// Errors of an operation, from its handle or from the functions that wait:
//   RONDA_ERROR_MISMATCH      ranks disagree about shape, dtype, operation or root; the job goes on
//   RONDA_ERROR_DEADLINE      a rank has not submitted the tensor in time
//   RONDA_ERROR_PEER_FAILED   a rank has died or left
//   RONDA_ERROR_OUT_OF_MEMORY, RONDA_ERROR_INTERNAL
// After an error the contents of the outputs are undefined.
#ifndef RONDA_CLIENT_RONDA_COLLECTIVES_HPP_
#define RONDA_CLIENT_RONDA_COLLECTIVES_HPP_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "../ronda.h"
#include "status.hpp"
#include "tensor.hpp"

namespace ronda {
inline namespace v1 {

enum class Op {
  Sum = RONDA_SUM,
  Min = RONDA_MIN,
  Max = RONDA_MAX,
  Product = RONDA_PRODUCT,
  Average = RONDA_AVERAGE,  // the sum divided by size(); integers round towards zero; not for bool
};

// The format in which float and double elements travel between ranks. Sums are made in fp32 and rounded once.
enum class Compression {
  none = RONDA_COMPRESSION_NONE,
  fp16 = RONDA_COMPRESSION_FP16,  // 3 to 4 digits, up to 65504
  bf16 = RONDA_COMPRESSION_BF16,  // 2 to 3 digits, float's range
};

struct AllreduceOptions {
  Op op = Op::Average;
  Compression compression = Compression::none;
  double prescale = 1;   // factor applied to each rank's input; finite, not 0
  double postscale = 1;  // factor applied to the result; finite, not 0
};

// An operation in flight. Its destructor waits for the operation, so that buffers are not pulled from under it, and
// drops its status: ask for that with wait() or synchronize() before.
//
// Thread-compatible; different handles may be used in different threads.
class Handle {
 public:
  Handle() = default;                                             // of no operation: complete, without error
  explicit Handle(ronda_handle handle) noexcept : id_(handle) {}  // takes `handle` over
  Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, 0)) {}
  Handle& operator=(Handle&& other) noexcept {
    if (this != &other) {
      release();
      id_ = std::exchange(other.id_, 0);
    }
    return *this;
  }
  ~Handle() { release(); }

  // Whether the operation has ended, in success or failure. Does not wait.
  bool poll() const {
    int done = 1;
    if (id_ != 0) detail::to_status(ronda_poll(id_, &done)).throw_if_error();
    return done != 0;
  }

  // Waits until the operation has ended, and returns how.
  Status wait() const { return id_ == 0 ? Status() : detail::to_status(ronda_synchronize(id_)); }
  // The same, throwing the error.
  void synchronize() const { wait().throw_if_error(); }

  ronda_handle id() const noexcept { return id_; }  // 0: of no operation

 private:
  void release() noexcept {
    if (id_ != 0) static_cast<void>(ronda_release(id_));
  }

  ronda_handle id_ = 0;
};

// As Horovod spells them.
inline bool poll(const Handle& handle) { return handle.poll(); }
inline void synchronize(const Handle& handle) { handle.synchronize(); }

// Reduces `input` over all ranks into `output`, which has the same shape and dtype on every rank and is `input.data` or
// does not overlap it.
inline Result<Handle> try_allreduce_async(const Tensor& input, void* output, const AllreduceOptions& options = {}) {
  if (options.prescale == 0 || options.postscale == 0) {
    return detail::invalid_argument("allreduce '" + input.name + "': a scale is 0, which would erase the tensor");
  }
  ronda_allreduce_args args = RONDA_ALLREDUCE_ARGS_INIT;
  args.tensor = detail::to_c(input);
  args.input = input.data;
  args.output = output;
  args.op = static_cast<ronda_reduce_op>(options.op);
  args.compression = static_cast<ronda_compression>(options.compression);
  args.prescale = options.prescale;
  args.postscale = options.postscale;
  ronda_handle handle = 0;
  Status status = detail::to_status(ronda_allreduce_async(&args, &handle));
  if (!status.ok()) return status;
  return Handle(handle);
}
inline Result<Handle> try_allreduce_async(const Tensor& in_place, const AllreduceOptions& options = {}) {
  return try_allreduce_async(in_place, in_place.data, options);
}
inline Handle allreduce_async(const Tensor& input, void* output, const AllreduceOptions& options = {}) {
  return try_allreduce_async(input, output, options).value();
}
inline Handle allreduce_async(const Tensor& in_place, const AllreduceOptions& options = {}) {
  return try_allreduce_async(in_place, options).value();
}

inline Status try_allreduce(const Tensor& input, void* output, const AllreduceOptions& options = {}) {
  Result<Handle> handle = try_allreduce_async(input, output, options);
  return handle.ok() ? handle.value().wait() : handle.status();
}
inline Status try_allreduce(const Tensor& in_place, const AllreduceOptions& options = {}) {
  return try_allreduce(in_place, in_place.data, options);
}
inline void allreduce(const Tensor& input, void* output, const AllreduceOptions& options = {}) {
  try_allreduce(input, output, options).throw_if_error();
}
inline void allreduce(const Tensor& in_place, const AllreduceOptions& options = {}) {
  try_allreduce(in_place, options).throw_if_error();
}

// Copies the elements of `tensor` on rank `root` to all other ranks, which pass the same shape and dtype.
inline Result<Handle> try_broadcast_async(const Tensor& tensor, int root) {
  ronda_broadcast_args args = RONDA_BROADCAST_ARGS_INIT;
  args.tensor = detail::to_c(tensor);
  args.data = tensor.data;
  args.root = root;
  ronda_handle handle = 0;
  Status status = detail::to_status(ronda_broadcast_async(&args, &handle));
  if (!status.ok()) return status;
  return Handle(handle);
}
inline Handle broadcast_async(const Tensor& tensor, int root) { return try_broadcast_async(tensor, root).value(); }

inline Status try_broadcast(const Tensor& tensor, int root) {
  Result<Handle> handle = try_broadcast_async(tensor, root);
  return handle.ok() ? handle.value().wait() : handle.status();
}
inline void broadcast(const Tensor& tensor, int root) { try_broadcast(tensor, root).throw_if_error(); }

// An allgather in flight, and its result. Thread-compatible.
template <class T>
class AllgatherHandle {
 public:
  AllgatherHandle() = default;
  // Takes `handle` over. `row` is the number of elements of one unit of the first dimension; `ranks` is size().
  AllgatherHandle(ronda_handle handle, std::size_t row, int ranks)
      : handle_(handle), row_(row), first_dims_(static_cast<std::size_t>(ranks)) {}

  // As in Handle.
  bool poll() const { return handle_.poll(); }
  Status wait() const { return handle_.wait(); }
  void synchronize() const { handle_.synchronize(); }

  // Wait, throw the operation's error, and otherwise return:
  // the elements of all ranks, in rank order;
  std::vector<T> result() {
    const T* elements = fetch();
    return std::vector<T>(elements, elements + count());
  }
  // the same without a copy, count() elements, valid as long as this handle;
  const T* data() { return fetch(); }
  std::size_t count() { return fetch(), static_cast<std::size_t>(first_dim_) * row_; }
  // the first dimension of every rank's input, in rank order.
  const std::vector<std::int64_t>& first_dims() { return fetch(), first_dims_; }

 private:
  const T* fetch() {
    if (data_ == nullptr) {
      synchronize();
      const void* data = nullptr;
      detail::to_status(ronda_allgather_output(handle_.id(), &data, &first_dim_, first_dims_.data())).throw_if_error();
      data_ = static_cast<const T*>(data);
    }
    return data_;
  }

  Handle handle_;
  std::size_t row_ = 0;
  std::vector<std::int64_t> first_dims_;
  std::int64_t first_dim_ = 0;  // of the result; set with data_
  const T* data_ = nullptr;     // the library's
};

// Concatenates the ranks' tensors along their first dimension, which may differ between them; the dtype and all other
// dimensions are the same on every rank. `data` has the elements of `shape`, of at least one dimension.
template <class T>
Result<AllgatherHandle<T>> try_allgather_async(const std::string& name, const T* data,
                                               const std::vector<std::int64_t>& shape) {
  ronda_allgather_args args = RONDA_ALLGATHER_ARGS_INIT;
  args.tensor = {name.c_str(), dtype_of<T>, static_cast<int>(shape.size()), shape.data()};
  args.input = data;
  const int ranks = ronda_size();
  ronda_handle handle = 0;
  Status status = detail::to_status(ronda_allgather_async(&args, &handle));
  if (!status.ok()) return status;
  std::size_t row = 1;
  for (std::size_t i = 1; i < shape.size(); ++i) row *= static_cast<std::size_t>(shape[i]);
  return AllgatherHandle<T>(handle, row, ranks);
}
template <class T>
AllgatherHandle<T> allgather_async(const std::string& name, const T* data, const std::vector<std::int64_t>& shape) {
  return try_allgather_async(name, data, shape).value();
}

// The concatenation itself; allgather_async tells also which rank gave how much.
template <class T>
Result<std::vector<T>> try_allgather(const std::string& name, const T* data, const std::vector<std::int64_t>& shape) {
  Result<AllgatherHandle<T>> handle = try_allgather_async(name, data, shape);
  if (!handle.ok()) return handle.status();
  Status status = handle.value().wait();
  if (!status.ok()) return status;
  return handle.value().result();
}
template <class T>
std::vector<T> allgather(const std::string& name, const T* data, const std::vector<std::int64_t>& shape) {
  return try_allgather(name, data, shape).value();
}

// Waits until every rank has called it as often as this one.
inline Status try_barrier() { return detail::to_status(ronda_barrier()); }
inline void barrier() { try_barrier().throw_if_error(); }

}  // namespace v1
}  // namespace ronda

#endif  // RONDA_CLIENT_RONDA_COLLECTIVES_HPP_
