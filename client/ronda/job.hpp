// SPDX-License-Identifier: Apache-2.0

// Functions that join and shut down a job, and that return this process's rank in the job.
#ifndef RONDA_CLIENT_RONDA_JOB_HPP_
#define RONDA_CLIENT_RONDA_JOB_HPP_

#include <chrono>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "../ronda.h"
#include "status.hpp"

namespace ronda {
inline namespace abi1 {

// Settings that override the environment (RONDA_*). Options that are not set keep the value from the environment, or
// the default. Zero disables a feature. Rank 0's fusion threshold, cache capacity and stall times apply to the whole
// job.
struct Options {
  using Seconds = std::chrono::duration<double>;

  std::optional<Seconds> cycle_time;             // the longest time that a tensor waits for others to be fused with
  std::optional<std::int64_t> fusion_threshold;  // bytes of a bucket
  std::optional<std::int64_t> cache_capacity;    // entries of the response cache
  std::optional<Seconds> stall_warning;          // a tensor missing on some rank for this long is reported
  std::optional<Seconds> stall_deadline;         // a missing tensor fails after this long
  std::optional<Seconds> start_timeout;          // the longest wait for the other ranks in init(); more than zero

  // Process sets that exist from the start. Each lists its ranks in ascending order; all ranks must list the same sets.
  // Their ids are 1, 2, ... in the order of the list.
  std::vector<std::vector<int>> process_sets;

  // This process's rank and the job's size, if the program knows them. They override the variables of any launcher.
  struct Place {
    int rank = 0;
    int size = 1;
    int local_rank = 0;  // number among the ranks on this host
    int local_size = 0;  // ranks on this host; 0: Ronda finds it out
  };
  std::optional<Place> place;

  // The address and port at which rank 0 listens. A process that sets the address, the port and `place` needs no
  // environment variables. For an address, port or secret that is empty or 0, Ronda uses the value from the
  // environment; the default address is 127.0.0.1.
  std::string master_address;
  int master_port = 0;
  std::string secret;  // the same on every rank; needed if the address is not a loopback address

  // The epoch of the job, 0 to 999999999; 0 means the value from the environment. When ranks leave a job and form it
  // again, all of them use the same, higher epoch (docs/elastic.md).
  std::int64_t epoch = 0;
};

namespace detail {

// Returns the option's value for the C ABI, where zero means "unset" and a negative number means "off".
template <class Number>
Number override_of(const std::optional<Number>& value) {
  if (!value) return 0;
  return *value == 0 ? Number{-1} : *value;
}

inline std::optional<double> in_seconds(const std::optional<Options::Seconds>& duration) {
  if (!duration) return std::nullopt;
  return duration->count();
}

// The options in the form of the C ABI, and the arrays to which they point. They also point into the Options, which
// must outlive them.
struct OptionsView {
  ronda_options c = RONDA_OPTIONS_INIT;
  std::vector<ronda_rank_list> process_sets;
};

inline OptionsView to_c(const Options& options) {
  OptionsView view;
  ronda_options& c = view.c;
  c.cycle_time_ms = 1000 * override_of(in_seconds(options.cycle_time));
  c.fusion_threshold = override_of(options.fusion_threshold);
  c.cache_capacity = override_of(options.cache_capacity);
  c.stall_warning_s = override_of(in_seconds(options.stall_warning));
  c.stall_deadline_s = override_of(in_seconds(options.stall_deadline));
  c.start_timeout_s = override_of(in_seconds(options.start_timeout));
  for (const std::vector<int>& ranks : options.process_sets) {
    view.process_sets.push_back({ranks.data(), static_cast<int>(ranks.size())});
  }
  // The pointer stays valid when the view is moved, because the vector's elements keep their addresses.
  c.process_sets = view.process_sets.data();
  c.process_set_count = static_cast<int>(view.process_sets.size());
  if (options.place) {
    c.rank = options.place->rank;
    c.size = options.place->size;
    c.local_rank = options.place->local_rank;
    c.local_size = options.place->local_size;
  }
  if (!options.master_address.empty()) c.master_address = options.master_address.c_str();
  if (!options.secret.empty()) c.secret = options.secret.c_str();
  c.master_port = options.master_port;
  c.epoch = options.epoch;
  return view;
}

// Returns `number`, the result of a C function. Throws if `number` is negative, which means that the process is in no
// job.
inline int require_initialized(int number) {
  if (number < 0) throw Error(RONDA_ERROR_NOT_INITIALIZED, "Ronda is not initialized: call ronda::init() first");
  return number;
}

}  // namespace detail

// Joins the job that the environment describes. This is the job that rondarun started or that torchrun-style variables
// describe, or else a job of this process alone. Blocks until every rank has joined.
// Errors: RONDA_ERROR_ALREADY_INITIALIZED; RONDA_ERROR_INVALID_ARGUMENT (an option or an environment variable);
// RONDA_ERROR_DEADLINE (start_timeout expired); RONDA_ERROR_PEER_FAILED; RONDA_ERROR_OUT_OF_MEMORY.
inline Status try_init(const Options& options = {}) {
  const detail::OptionsView view = detail::to_c(options);
  return detail::to_status(ronda_init(&view.c));
}
inline void init(const Options& options = {}) { try_init(options).throw_if_error(); }

// Completes the operations in flight, waits until every rank has called shutdown(), and ends the job for this process,
// even if the call fails. A process that exits without shutdown() counts as failed.
// Errors: RONDA_ERROR_NOT_INITIALIZED; the job's failure, if it has failed.
inline Status try_shutdown() { return detail::to_status(ronda_shutdown()); }
inline void shutdown() { try_shutdown().throw_if_error(); }

// Fails the job on all its ranks at once, without waiting for the other ranks; see ronda.h. The function is not named
// abort(), because it would hide C's abort() in namespaces within `ronda`.
// Errors: RONDA_ERROR_NOT_INITIALIZED.
inline Status try_abort_job(const std::string& reason) { return detail::to_status(ronda_abort(reason.c_str())); }
inline void abort_job(const std::string& reason) { try_abort_job(reason).throw_if_error(); }

// Joins a job in its constructor, like init(), and leaves it in its destructor:
//
//   int main() {
//     const ronda::Job job;
//     ...
//   }
//
// The destructor does not throw. When the block ends normally, the destructor calls shutdown() and ignores an error of
// the job. To get that error, call shutdown() before the end of the block. When an exception leaves the block, the
// destructor fails the job for all ranks (abort_job), because the other ranks may wait for operations that this rank
// will never submit. The destructor does nothing if the program has called shutdown() itself.
//
// C++ does not run the destructor if the program calls exit(), or (with GCC) if nothing catches the exception. The
// process then ends without shutdown(), and the other ranks report a failure.
class Job {
 public:
  // Errors: the errors of init().
  explicit Job(const Options& options = {}) { init(options); }

  ~Job() {
    if (std::uncaught_exceptions() > exceptions_)
      (void)try_abort_job("an exception has left the block of its ronda::Job");
    (void)try_shutdown();
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

 private:
  const int exceptions_ = std::uncaught_exceptions();  // that were under way already when the block began
};

// Returns OK while the job runs; after a failure, returns the error of the job's operations. Does not communicate.
inline Status job_status() { return detail::to_status(ronda_job_status()); }

inline bool is_initialized() noexcept { return ronda_is_initialized() != 0; }

// rank() is this rank's number, 0 <= rank() < size(), and size() is the number of ranks in the job. Errors of these and
// the following functions: RONDA_ERROR_NOT_INITIALIZED.
inline int rank() { return detail::require_initialized(ronda_rank()); }
inline int size() { return detail::require_initialized(ronda_size()); }

// local_rank() is this rank's number among the ranks on its host, and local_size() is how many ranks are on that host.
inline int local_rank() { return detail::require_initialized(ronda_local_rank()); }
inline int local_size() { return detail::require_initialized(ronda_local_size()); }

// cross_rank() is this rank's number among the ranks with the same local rank on all hosts. cross_size() is the number
// of these ranks.
inline int cross_rank() { return detail::require_initialized(ronda_cross_rank()); }
inline int cross_size() { return detail::require_initialized(ronda_cross_size()); }

// Returns whether any rank has received SIGTERM. Every rank must call the function once per step; the result becomes
// true on all ranks in the same step. Waits for the other ranks only if the exchange that the previous call started is
// not complete. See ronda.h.
//
//   for (int step = first; step < last && !ronda::should_stop(); ++step) train(step);
//   save_checkpoint();
inline Result<bool> try_should_stop() {
  int stop = 0;
  Status status = detail::to_status(ronda_should_stop(&stop));
  if (!status.ok()) return status;
  return stop != 0;
}
inline bool should_stop() { return try_should_stop().value(); }

// Makes this rank write a timeline from now on, to its own file: "trace.json" becomes "trace.rank3.json". See ronda.h.
// Errors: RONDA_ERROR_INVALID_ARGUMENT (the file cannot be created, or a timeline is already being written).
inline Status try_start_timeline(const std::string& path) {
  return detail::to_status(ronda_start_timeline(path.c_str()));
}
inline void start_timeline(const std::string& path) { try_start_timeline(path).throw_if_error(); }

// Completes the timeline file, as shutdown() does. Does nothing if no timeline is being written.
inline Status try_stop_timeline() { return detail::to_status(ronda_stop_timeline()); }
inline void stop_timeline() { try_stop_timeline().throw_if_error(); }

// Counters of this rank's work since init(); see ronda.h.
inline ronda_statistics statistics() {
  ronda_statistics numbers = RONDA_STATISTICS_INIT;
  detail::to_status(ronda_get_statistics(&numbers)).throw_if_error();
  return numbers;
}

}  // namespace abi1
}  // namespace ronda

#endif  // RONDA_CLIENT_RONDA_JOB_HPP_
