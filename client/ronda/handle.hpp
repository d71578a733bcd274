// SPDX-License-Identifier: Apache-2.0

// Operations in flight, and their results.
#ifndef RONDA_CLIENT_RONDA_HANDLE_HPP_
#define RONDA_CLIENT_RONDA_HANDLE_HPP_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "../ronda.h"
#include "status.hpp"

namespace ronda {
inline namespace abi1 {

// Called by Ronda with the status of an operation once the operation has completed.
using Callback = std::function<void(const Status& status)>;

namespace detail {

// Called by the C ABI when an operation has completed. Takes ownership of `context`, which is a Callback.
inline void run_callback(void* context, ronda_status code, const char* message) {
  const std::unique_ptr<Callback> callback(static_cast<Callback*>(context));
  (*callback)(code == RONDA_OK ? Status() : Status(code, message));
}

// Makes the C ABI run `callback`. `post` passes a pointer to the callback to a C function and returns that function's
// status. If `post` returns nothing, there is no operation, and `callback` runs immediately in this thread.
template <class Post>
Status post_callback(Callback callback, const Post& post) {
  auto context = std::make_unique<Callback>(std::move(callback));
  const std::optional<ronda_status> code = post(context.get());
  if (!code) {
    run_callback(context.release(), RONDA_OK, "");
    return {};
  }
  Status status = to_status(*code);
  if (status.ok()) static_cast<void>(context.release());
  return status;
}

}  // namespace detail

// An operation in flight. The destructor waits for the operation, so that the buffers stay valid, and discards the
// operation's status. To get the status, call wait() or synchronize() first. The destructor also waits when an
// exception destroys the handle. If the operation cannot complete, for instance because another rank waits for this
// rank, the stall deadline ends it.
//
// Thread-compatible; different handles may be used in different threads.
class Handle {
 public:
  Handle() = default;                                             // of no operation: complete, without error
  explicit Handle(ronda_handle handle) noexcept : id_(handle) {}  // takes ownership of `handle`
  Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, 0)) {}
  Handle& operator=(Handle&& other) noexcept {
    if (this != &other) {
      release();
      id_ = std::exchange(other.id_, 0);
    }
    return *this;
  }
  ~Handle() { release(); }

  // Returns whether the operation has completed, successfully or not. Does not wait.
  bool poll() const {
    int done = 1;
    if (id_ != 0) detail::to_status(ronda_poll(id_, &done)).throw_if_error();
    return done != 0;
  }

  // Waits until the operation has completed, and returns its status.
  Status wait() const { return id_ == 0 ? Status() : detail::to_status(ronda_synchronize(id_)); }
  // Like wait(), but throws the error.
  void synchronize() const { wait().throw_if_error(); }

  // Makes `stream`, a cudaStream_t, wait for an operation on GPU memory, instead of this thread. Work enqueued on the
  // stream from now on can use the result. Returns once the operation's work has been enqueued on the device; see
  // ronda_synchronize_on_stream(). After wait_on(), the destructor does not wait. For operations on host memory,
  // wait_on() is the same as wait().
  Status wait_on(void* stream) const {
    return id_ == 0 ? Status() : detail::to_status(ronda_synchronize_on_stream(id_, stream));
  }
  // Like wait_on(), but throws the error.
  void synchronize_on(void* stream) const { wait_on(stream).throw_if_error(); }

  // Like wait_on(), but does not block. `callback` is called once `stream` waits for the operation, on the thread that
  // also runs the callbacks of on_completion(). Enqueue the stream's next work in the callback or later.
  Status try_wait_on_async(void* stream, Callback callback) const {
    return detail::post_callback(std::move(callback), [&](void* context) {
      return id_ == 0 ? std::nullopt
                      : std::optional(ronda_synchronize_on_stream_async(id_, stream, detail::run_callback, context));
    });
  }
  void wait_on_async(void* stream, Callback callback) const {
    try_wait_on_async(stream, std::move(callback)).throw_if_error();
  }

  // Releases the handle of an operation whose result was allocated by Ronda. Work already enqueued on `stream` may
  // still use this result; see ronda_release_on_stream(). After an error the handle is unchanged.
  Status try_release_on(void* stream) {
    if (id_ == 0) return {};
    Status status = detail::to_status(ronda_release_on_stream(id_, stream));
    if (status.ok()) id_ = 0;
    return status;
  }
  void release_on(void* stream) { try_release_on(stream).throw_if_error(); }

  // Waits, and throws the operation's error if it failed. Otherwise returns whether the result has an infinite or NaN
  // element on any rank. All ranks get the same answer. For operations without `detect_overflow` the answer is false,
  // because Ronda does not check the result.
  bool found_inf() const {
    synchronize();
    int found = 0;
    if (id_ != 0) detail::to_status(ronda_found_inf(id_, &found)).throw_if_error();
    return found != 0;
  }

  // Calls `callback` once, when the operation has completed, or immediately if it already has. The callback runs on a
  // Ronda thread that only runs callbacks. The callback may submit operations; if it blocks, it delays later callbacks.
  // If the callback throws, the job fails on every rank with the text of the exception.
  Status try_on_completion(Callback callback) const {
    return detail::post_callback(std::move(callback), [&](void* context) {
      return id_ == 0 ? std::nullopt : std::optional(ronda_on_completion(id_, detail::run_callback, context));
    });
  }
  void on_completion(Callback callback) const { try_on_completion(std::move(callback)).throw_if_error(); }

  ronda_handle id() const noexcept { return id_; }  // 0: of no operation

 private:
  void release() noexcept {
    if (id_ != 0) static_cast<void>(ronda_release(id_));
  }

  ronda_handle id_ = 0;
};

// The following functions are named as in Horovod.
inline bool poll(const Handle& handle) { return handle.poll(); }
inline void synchronize(const Handle& handle) { handle.synchronize(); }

// An operation in flight whose result consists of rows of elements of type T; a row is one slice along the first
// dimension. Ronda allocates the result, unless the caller has passed memory for it. Thread-compatible.
template <class T>
class OutputHandle : public Handle {
 public:
  OutputHandle() = default;
  // Takes ownership of `handle`. `row` is the number of elements in a row, and `memory` is the kind of memory that
  // holds the operation's buffers.
  OutputHandle(ronda_handle handle, std::size_t row, ronda_memory memory = RONDA_MEMORY_HOST)
      : Handle(handle), row_(row), memory_(memory) {}

  ronda_memory memory() const noexcept { return memory_; }  // where the result is

  // The functions from result() to rows_per_rank() first wait for the operation, unless a stream already waits for it.
  // If the operation failed, they throw its error.
  //
  // result() returns the elements, which must be in host memory (else RONDA_ERROR_INVALID_ARGUMENT).
  std::vector<T> result() {
    check_memory().throw_if_error();
    const T* elements = data();
    return std::vector<T>(elements, elements + count());
  }
  // data() returns the address of the elements; count() is their number. The address stays valid until this handle is
  // destroyed or, if the caller passed memory for the result, as long as that memory exists. Work on the stream passed
  // to wait_on() may use elements in GPU memory, and must be done before this handle is destroyed.
  const T* data() { return fetch(), data_; }
  std::size_t count() { return fetch(), static_cast<std::size_t>(rows_) * row_; }
  // rows() returns the number of rows, that is, the first dimension.
  std::int64_t rows() { return fetch(), rows_; }
  // For a gather or alltoall, rows_per_rank() returns how many rows came from each rank of the process set, in rank
  // order.
  const std::vector<std::int64_t>& rows_per_rank() { return fetch(), rows_per_rank_; }

  // Returns an error if result() cannot return the elements.
  Status check_memory() const {
    if (memory_ == RONDA_MEMORY_HOST) return {};
    return detail::invalid_argument("the result is in a GPU's memory: copy it from data()");
  }

 private:
  void fetch() {
    if (id() != 0 && id() == fetched_) return;
    const void* data = nullptr;
    const std::int64_t* rows = nullptr;
    int members = 0;
    const auto ask = [&] { return ronda_output(id(), &data, &rows_, &rows, &members); };
    // ronda_output() fails if the operation has not completed and no stream waits for it.
    if (ask() != RONDA_OK) {
      synchronize();
      detail::to_status(ask()).throw_if_error();
    }
    data_ = static_cast<const T*>(data);
    rows_per_rank_.assign(rows, rows + members);
    fetched_ = id();
  }

  std::size_t row_ = 0;
  ronda_memory memory_ = RONDA_MEMORY_HOST;
  // The following members are set by fetch():
  ronda_handle fetched_ = 0;  // the operation that the members below describe
  const T* data_ = nullptr;
  std::int64_t rows_ = 0;
  std::vector<std::int64_t> rows_per_rank_;
};

// The following functions take the Handles or OutputHandles of several operations. poll_all() returns whether all
// operations have completed. wait_for_all() and synchronize_all() wait until all operations have completed, and return
// or throw the first error.
template <class SomeHandle>
bool poll_all(const std::vector<SomeHandle>& handles) {
  for (const SomeHandle& handle : handles) {
    if (!handle.poll()) return false;
  }
  return true;
}
template <class SomeHandle>
Status wait_for_all(const std::vector<SomeHandle>& handles) {
  Status first_error;
  for (const SomeHandle& handle : handles) {
    Status status = handle.wait();
    if (first_error.ok()) first_error = std::move(status);
  }
  return first_error;
}
template <class SomeHandle>
void synchronize_all(const std::vector<SomeHandle>& handles) {
  wait_for_all(handles).throw_if_error();
}

namespace detail {

// Returns the handle written by a C function, or that function's error.
inline Result<Handle> to_handle(ronda_status code, const ronda_handle& handle) {
  if (code != RONDA_OK) return to_status(code);
  return Handle(handle);
}

// Calls `submit`, the C function of an operation whose only result is a handle.
template <class Args>
Result<Handle> submit(ronda_status (*submit)(const Args*, ronda_handle*), const Args& args) {
  ronda_handle handle = 0;
  const ronda_status code = submit(&args, &handle);
  return to_handle(code, handle);
}

// Waits for the operation, if it was submitted.
template <class SomeHandle>
Status wait_for(const Result<SomeHandle>& submitted) {
  return submitted.ok() ? submitted.value().wait() : submitted.status();
}

// Waits for the operation, if it was submitted, and returns its result.
template <class T>
Result<std::vector<T>> result_of(Result<OutputHandle<T>> submitted) {
  Status status = wait_for(submitted);
  if (status.ok()) status = submitted.value().check_memory();
  if (!status.ok()) return status;
  return submitted.value().result();
}

// Returns the number of elements in a row, a slice along the first dimension.
inline std::size_t row_of(const std::vector<std::int64_t>& shape) {
  std::size_t row = 1;
  for (std::size_t i = 1; i < shape.size(); ++i) row *= static_cast<std::size_t>(shape[i]);
  return row;
}

// Calls `submit`, the C function of an operation whose result consists of rows.
template <class T, class Args>
Result<OutputHandle<T>> submit_output(ronda_status (*submit)(const Args*, ronda_handle*), const Args& args,
                                      const std::vector<std::int64_t>& shape) {
  ronda_handle handle = 0;
  Status status = to_status(submit(&args, &handle));
  if (!status.ok()) return status;
  return OutputHandle<T>(handle, row_of(shape), args.call.memory);
}

// Returns Handles that own the handles written by a C function.
inline std::vector<Handle> take_over(const std::vector<ronda_handle>& handles) {
  std::vector<Handle> owners;
  for (const ronda_handle handle : handles) owners.emplace_back(handle);
  return owners;
}

// The arguments of OutputHandle's constructor that describe the operation's result.
struct OutputKind {
  std::size_t row = 0;
  ronda_memory memory = RONDA_MEMORY_HOST;
};
template <class T>
std::vector<OutputHandle<T>> take_over(const std::vector<ronda_handle>& handles, const std::vector<OutputKind>& kinds) {
  std::vector<OutputHandle<T>> owners;
  for (std::size_t i = 0; i < handles.size(); ++i) owners.emplace_back(handles[i], kinds[i].row, kinds[i].memory);
  return owners;
}

}  // namespace detail
}  // namespace abi1
}  // namespace ronda

#endif  // RONDA_CLIENT_RONDA_HANDLE_HPP_
