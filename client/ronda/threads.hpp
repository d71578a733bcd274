// SPDX-License-Identifier: Apache-2.0

// Ranks that are threads of this process: data parallelism without a launcher.
#ifndef RONDA_CLIENT_RONDA_THREADS_HPP_
#define RONDA_CLIENT_RONDA_THREADS_HPP_

#include <exception>
#include <functional>
#include <mutex>
#include <utility>

#include "../ronda.h"
#include "job.hpp"
#include "status.hpp"

namespace ronda {
inline namespace abi1 {
namespace detail {

// The body of run_threads(), and the first exception that leaves it.
class ThreadBody {
 public:
  explicit ThreadBody(const std::function<void()>& body) : body_(body) {}

  // The function that the C ABI calls on each thread; `context` is a ThreadBody. Exceptions pass through it: an
  // exception fails the job, so that the other ranks do not wait for this rank.
  static void run(void* context) {
    auto* const self = static_cast<ThreadBody*>(context);
    try {
      self->body_();
    } catch (...) {
      const std::lock_guard<std::mutex> lock(self->mutex_);
      if (self->first_ == nullptr) self->first_ = std::current_exception();
      throw;
    }
  }

  // Call it once all threads have ended.
  void rethrow() const {
    if (first_ != nullptr) std::rethrow_exception(first_);
  }

 private:
  const std::function<void()>& body_;
  std::mutex mutex_;
  std::exception_ptr first_;
};

}  // namespace detail

// Runs `body` once for each rank of a job of `size` ranks that are threads of this process, and returns when all have
// ended. In `body` every function of Ronda acts for that thread's rank. The job begins and ends with `body`, so `body`
// calls neither init() nor shutdown().
//
//   ronda::run_threads(4, [&] {
//     std::vector<float> sum(3, ronda::rank());
//     ronda::allreduce(ronda::tensor("sum", sum), {ronda::Op::Sum});
//   });
//
// An exception that leaves `body` fails the job for the other ranks, and run_threads() throws the exception again. If
// several ranks throw, it throws the first exception. Other errors: the job's failure; RONDA_ERROR_INVALID_ARGUMENT
// (size, options).
inline void run_threads(int size, const std::function<void()>& body, const Options& options = {}) {
  detail::ThreadBody ranks(body);
  const detail::OptionsView view = detail::to_c(options);
  Status status = detail::to_status(ronda_run_threads(&view.c, size, detail::ThreadBody::run, &ranks));
  ranks.rethrow();
  status.throw_if_error();
}

// The rank for which this thread acts. A thread that `body` starts has to set it:
//
//   ronda::run_threads(2, [] {
//     std::thread reader([rank = ronda::current()] {
//       ronda::make_current(rank);
//       ...
//
// Errors of make_current(): RONDA_ERROR_INVALID_ARGUMENT if that rank's `body` has ended.
inline ronda_context current() noexcept { return ronda_current(); }
inline void make_current(ronda_context context) { detail::to_status(ronda_make_current(context)).throw_if_error(); }

}  // namespace abi1
}  // namespace ronda

#endif  // RONDA_CLIENT_RONDA_THREADS_HPP_
