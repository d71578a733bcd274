// SPDX-License-Identifier: Apache-2.0

// Runs ranks as threads of this process, for data parallelism without a launcher.
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

// Calls the body of run_threads(), and keeps the first exception thrown by any rank's body.
class ThreadBody {
 public:
  explicit ThreadBody(const std::function<void()>& body) : body_(body) {}

  // Called by the C ABI on each thread; `context` is a ThreadBody. Lets exceptions through, because they make the C
  // function fail the job, so that the other ranks do not wait for this rank.
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

  // Rethrows the first exception, if there is one. Must be called after all threads have ended.
  void rethrow() const {
    if (first_ != nullptr) std::rethrow_exception(first_);
  }

 private:
  const std::function<void()>& body_;
  std::mutex mutex_;
  std::exception_ptr first_;
};

}  // namespace detail

// Runs a job whose `size` ranks are threads of this process, calls `body` once on each of them, and returns once all of
// them have ended. In `body`, every function of Ronda acts for the calling thread's rank. Each thread joins the job
// before `body` and leaves it afterwards, so `body` must not call init() or shutdown().
//
//   ronda::run_threads(4, [&] {
//     std::vector<float> sum(3, ronda::rank());
//     ronda::allreduce(ronda::tensor("sum", sum), {ronda::Op::Sum});
//   });
//
// An exception that leaves `body` fails the job for the other ranks, and run_threads() rethrows it. If several ranks
// throw, run_threads() rethrows the first exception. Other errors: the job's failure; RONDA_ERROR_INVALID_ARGUMENT
// (size, options).
inline void run_threads(int size, const std::function<void()>& body, const Options& options = {}) {
  detail::ThreadBody ranks(body);
  const detail::OptionsView view = detail::to_c(options);
  Status status = detail::to_status(ronda_run_threads(&view.c, size, detail::ThreadBody::run, &ranks));
  ranks.rethrow();
  status.throw_if_error();
}

// current() returns the rank for which this thread acts. A thread started by `body` must set its rank with
// make_current():
//
//   ronda::run_threads(2, [] {
//     std::thread reader([rank = ronda::current()] {
//       ronda::make_current(rank);
//       ...
//
// Errors of make_current(): RONDA_ERROR_INVALID_ARGUMENT if `body` has already ended on the rank `context`.
inline ronda_context current() noexcept { return ronda_current(); }
inline void make_current(ronda_context context) { detail::to_status(ronda_make_current(context)).throw_if_error(); }

}  // namespace abi1
}  // namespace ronda

#endif  // RONDA_CLIENT_RONDA_THREADS_HPP_
