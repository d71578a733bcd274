// Operations in flight, and their results.
#ifndef RONDA_CLIENT_RONDA_HANDLE_HPP_
#define RONDA_CLIENT_RONDA_HANDLE_HPP_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "../ronda.h"
#include "status.hpp"

namespace ronda {
inline namespace v1 {

// Called with the status of the operation that has completed.
using Callback = std::function<void(const Status& status)>;

namespace detail {

// What the C ABI calls back; `context` is a Callback that nobody else owns.
inline void run_callback(void* context, ronda_status code, const char* message) {
  const std::unique_ptr<Callback> callback(static_cast<Callback*>(context));
  (*callback)(code == RONDA_OK ? Status() : Status(code, message));
}

}  // namespace detail

// An operation in flight. Its destructor waits for the operation, so that buffers are not pulled from under it, and
// drops its status: ask for that with wait() or synchronize() before. So does an exception that passes a handle on its
// way: where the other ranks wait for this one meanwhile, that ends with the stall deadline.
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

  // Waits, throws the operation's error, and otherwise returns whether the result has an element that is infinite or
  // not a number, on any rank: the same answer on every rank. For reductions with `detect_overflow`; of others, which
  // nobody has looked at, false.
  bool found_inf() const {
    synchronize();
    int found = 0;
    if (id_ != 0) detail::to_status(ronda_found_inf(id_, &found)).throw_if_error();
    return found != 0;
  }

  // Has `callback` called once, when the operation has ended; at once if it has. It runs on a thread of Ronda's that
  // serves nothing else: it may submit, but what it waits for delays the callbacks after it. If it throws, the job
  // fails with the exception's text on every rank.
  Status try_on_completion(Callback callback) const {
    auto context = std::make_unique<Callback>(std::move(callback));
    if (id_ == 0) {
      detail::run_callback(context.release(), RONDA_OK, "");
      return {};
    }
    Status status = detail::to_status(ronda_on_completion(id_, detail::run_callback, context.get()));
    if (status.ok()) static_cast<void>(context.release());
    return status;
  }
  void on_completion(Callback callback) const { try_on_completion(std::move(callback)).throw_if_error(); }

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

// An operation in flight whose result the library allocates: rows of elements of type T, a row being a unit of the
// first dimension. Thread-compatible.
template <class T>
class OutputHandle {
 public:
  OutputHandle() = default;
  // Takes `handle` over. `row` is the number of elements of a row.
  OutputHandle(ronda_handle handle, std::size_t row) : handle_(handle), row_(row) {}

  // As in Handle.
  bool poll() const { return handle_.poll(); }
  Status wait() const { return handle_.wait(); }
  void synchronize() const { handle_.synchronize(); }
  bool found_inf() const { return handle_.found_inf(); }
  Status try_on_completion(Callback callback) const { return handle_.try_on_completion(std::move(callback)); }
  void on_completion(Callback callback) const { handle_.on_completion(std::move(callback)); }
  ronda_handle id() const noexcept { return handle_.id(); }

  // Wait, throw the operation's error, and otherwise return:
  // the elements;
  std::vector<T> result() {
    const T* elements = data();
    return std::vector<T>(elements, elements + count());
  }
  // the same without a copy, count() elements, valid as long as this handle;
  const T* data() { return fetch(), data_; }
  std::size_t count() { return fetch(), static_cast<std::size_t>(rows_) * row_; }
  // the number of rows, that is, the first dimension;
  std::int64_t rows() { return fetch(), rows_; }
  // of a gather or alltoall, how many of the rows came from each rank of the process set, in the order of ranks.
  const std::vector<std::int64_t>& rows_per_rank() { return fetch(), rows_per_rank_; }

 private:
  void fetch() {
    if (fetched_) return;
    synchronize();
    const void* data = nullptr;
    const std::int64_t* rows = nullptr;
    int members = 0;
    detail::to_status(ronda_output(handle_.id(), &data, &rows_, &rows, &members)).throw_if_error();
    data_ = static_cast<const T*>(data);
    rows_per_rank_.assign(rows, rows + members);
    fetched_ = true;
  }

  Handle handle_;
  std::size_t row_ = 0;
  // Set by fetch():
  bool fetched_ = false;
  const T* data_ = nullptr;  // the library's
  std::int64_t rows_ = 0;
  std::vector<std::int64_t> rows_per_rank_;
};

namespace detail {

// The handle that a C function has written if it returned RONDA_OK.
inline Result<Handle> to_handle(ronda_status code, const ronda_handle& handle) {
  if (code != RONDA_OK) return to_status(code);
  return Handle(handle);
}

// Waits for what was submitted, if it was.
template <class SomeHandle>
Status wait_for(const Result<SomeHandle>& submitted) {
  return submitted.ok() ? submitted.value().wait() : submitted.status();
}

// Waits for all, and returns the first error.
template <class SomeHandle>
Status wait_for_all(const std::vector<SomeHandle>& handles) {
  Status first_error;
  for (const SomeHandle& handle : handles) {
    Status status = handle.wait();
    if (first_error.ok()) first_error = std::move(status);
  }
  return first_error;
}

// Waits for what was submitted, if it was, and returns its result.
template <class T>
Result<std::vector<T>> result_of(Result<OutputHandle<T>> submitted) {
  Status status = wait_for(submitted);
  if (!status.ok()) return status;
  return submitted.value().result();
}

// Elements of a row: a unit of the first dimension.
inline std::size_t row_of(const std::vector<std::int64_t>& shape) {
  std::size_t row = 1;
  for (std::size_t i = 1; i < shape.size(); ++i) row *= static_cast<std::size_t>(shape[i]);
  return row;
}

// Owners of what a C function has written.
inline std::vector<Handle> take_over(const std::vector<ronda_handle>& handles) {
  std::vector<Handle> owners;
  for (const ronda_handle handle : handles) owners.emplace_back(handle);
  return owners;
}
template <class T>
std::vector<OutputHandle<T>> take_over(const std::vector<ronda_handle>& handles, const std::vector<std::size_t>& rows) {
  std::vector<OutputHandle<T>> owners;
  for (std::size_t i = 0; i < handles.size(); ++i) owners.emplace_back(handles[i], rows[i]);
  return owners;
}

}  // namespace detail
}  // namespace v1
}  // namespace ronda

#endif  // RONDA_CLIENT_RONDA_HANDLE_HPP_
