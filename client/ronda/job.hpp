// Joining and leaving a job, and this process' place in it.
#ifndef RONDA_CLIENT_RONDA_JOB_HPP_
#define RONDA_CLIENT_RONDA_JOB_HPP_

#include <chrono>
#include <cstdint>
#include <optional>

#include "../ronda.h"
#include "status.hpp"

namespace ronda {
inline namespace v1 {

// Overrides of the environment (RONDA_*). What is not set keeps the environment's value, or the default; zero switches
// a feature off. Rank 0's fusion threshold, cache capacity and stall times hold for the job.
struct Options {
  using Seconds = std::chrono::duration<double>;

  std::optional<Seconds> cycle_time;             // longest time a tensor may wait for others to be fused with
  std::optional<std::int64_t> fusion_threshold;  // bytes of a bucket
  std::optional<std::int64_t> cache_capacity;    // entries of the response cache
  std::optional<Seconds> stall_warning;          // a tensor missing on some rank for so long is reported
  std::optional<Seconds> stall_deadline;         // and fails after so long
  std::optional<Seconds> start_timeout;          // longest wait for the other ranks in init(); more than zero
};

namespace detail {

// The C ABI says "unset" with zero, and "off" with a negative number.
template <class Number>
Number override_of(const std::optional<Number>& value) {
  if (!value) return 0;
  return *value == 0 ? Number{-1} : *value;
}

inline std::optional<double> in_seconds(const std::optional<Options::Seconds>& duration) {
  if (!duration) return std::nullopt;
  return duration->count();
}

inline ronda_options to_c(const Options& options) {
  ronda_options c = RONDA_OPTIONS_INIT;
  c.cycle_time_ms = 1000 * override_of(in_seconds(options.cycle_time));
  c.fusion_threshold = override_of(options.fusion_threshold);
  c.cache_capacity = override_of(options.cache_capacity);
  c.stall_warning_s = override_of(in_seconds(options.stall_warning));
  c.stall_deadline_s = override_of(in_seconds(options.stall_deadline));
  c.start_timeout_s = override_of(in_seconds(options.start_timeout));
  return c;
}

// A number that the C ABI answers with, unless it is the -1 of a process without a job.
inline int require_initialized(int number) {
  if (number < 0) throw Error(RONDA_ERROR_NOT_INITIALIZED, "Ronda is not initialized: call ronda::init() first");
  return number;
}

}  // namespace detail

// Joins the job that the environment describes: the one that rondarun started, or torchrun-style variables do, or else
// a job of this process alone. Blocks until every rank has joined. Errors: RONDA_ERROR_ALREADY_INITIALIZED;
// RONDA_ERROR_INVALID_ARGUMENT (an option or an environment variable); RONDA_ERROR_DEADLINE (start_timeout has passed);
// RONDA_ERROR_PEER_FAILED; RONDA_ERROR_OUT_OF_MEMORY.
inline Status try_init(const Options& options = {}) {
  const ronda_options c = detail::to_c(options);
  return detail::to_status(ronda_init(&c));
}
inline void init(const Options& options = {}) { try_init(options).throw_if_error(); }

// Completes what is in flight, waits until every rank has called it, and leaves the job, also if it fails. A process
// that ends without it counts as failed. Errors: RONDA_ERROR_NOT_INITIALIZED; the job's failure, if it has failed.
inline Status try_shutdown() { return detail::to_status(ronda_shutdown()); }
inline void shutdown() { try_shutdown().throw_if_error(); }

inline bool is_initialized() noexcept { return ronda_is_initialized() != 0; }

// This process' number, 0 <= rank() < size(), and the job's number of processes.
// Errors, here and below: RONDA_ERROR_NOT_INITIALIZED.
inline int rank() { return detail::require_initialized(ronda_rank()); }
inline int size() { return detail::require_initialized(ronda_size()); }

// The same among the ranks on this host.
inline int local_rank() { return detail::require_initialized(ronda_local_rank()); }
inline int local_size() { return detail::require_initialized(ronda_local_size()); }

// The same among the ranks with this local rank, one a host.
inline int cross_rank() { return detail::require_initialized(ronda_cross_rank()); }
inline int cross_size() { return detail::require_initialized(ronda_cross_size()); }

}  // namespace v1
}  // namespace ronda

#endif  // RONDA_CLIENT_RONDA_JOB_HPP_
