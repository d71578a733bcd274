// SPDX-License-Identifier: Apache-2.0

// Barriers, and joins of ranks that have no more data.
#ifndef RONDA_CLIENT_RONDA_SYNCHRONIZATION_HPP_
#define RONDA_CLIENT_RONDA_SYNCHRONIZATION_HPP_

#include <chrono>

#include "../ronda.h"
#include "handle.hpp"
#include "options.hpp"
#include "process_set.hpp"
#include "status.hpp"

namespace ronda {
inline namespace abi1 {

// Blocks until every rank of the set has called the function as many times as this rank.
inline Status try_barrier(const ProcessSet& set = {}) { return detail::to_status(ronda_barrier(set.id())); }
inline void barrier(const ProcessSet& set = {}) { try_barrier(set).throw_if_error(); }

// Like try_barrier(), but does not block: the operation completes once every rank of the set has submitted it.
inline Result<Handle> try_barrier_async(const ProcessSet& set = {}) {
  ronda_handle handle = 0;
  const ronda_status code = ronda_barrier_async(set.id(), &handle);
  return detail::to_handle(code, handle);
}
inline Handle barrier_async(const ProcessSet& set = {}) { return try_barrier_async(set).value(); }

// Like try_barrier(), but waits for at most `timeout`, which must be positive. If the time expires, the error text of
// RONDA_ERROR_DEADLINE names every rank that has not called the function.
inline Status try_monitored_barrier(CallOptions::Seconds timeout, const ProcessSet& set = {}) {
  if (!(timeout.count() > 0)) return detail::invalid_argument("monitored_barrier: the timeout must be more than zero");
  return detail::to_status(ronda_monitored_barrier(set.id(), timeout.count()));
}
inline void monitored_barrier(CallOptions::Seconds timeout, const ProcessSet& set = {}) {
  try_monitored_barrier(timeout, set).throw_if_error();
}

// Whether an average also counts ranks that have joined.
enum class Absent {
  not_counted = RONDA_ABSENT_NOT_COUNTED,           // divide by the number of ranks that take part
  counted_as_zeros = RONDA_ABSENT_COUNTED_AS_ZEROS  // divide by the number of all ranks of the process set
};

// Announces that this rank has no more data. Until every rank of the set has joined, the operations of the other ranks
// continue without this rank where possible. Operations that need this rank (for instance as their root) fail on the
// other ranks with RONDA_ERROR_MISMATCH. Blocks until every rank has joined; after that, all ranks take part in
// operations again. Returns the rank that joined last.
//
//   while (reader.next(&batch)) train(batch);   // more often on some ranks than on others
//   const int longest = ronda::join();
//   ronda::broadcast_parameters(parameters, longest);
inline Result<int> try_join(const ProcessSet& set = {}, Absent absent = Absent::not_counted) {
  int last_rank = 0;
  Status status = detail::to_status(ronda_join(set.id(), static_cast<ronda_absent>(absent), &last_rank));
  if (!status.ok()) return status;
  return last_rank;
}
inline int join(const ProcessSet& set = {}, Absent absent = Absent::not_counted) {
  return try_join(set, absent).value();
}

// Like try_join(), but does not block; see last_rank().
inline Result<Handle> try_join_async(const ProcessSet& set = {}, Absent absent = Absent::not_counted) {
  ronda_handle handle = 0;
  const ronda_status code = ronda_join_async(set.id(), static_cast<ronda_absent>(absent), &handle);
  return detail::to_handle(code, handle);
}
inline Handle join_async(const ProcessSet& set = {}, Absent absent = Absent::not_counted) {
  return try_join_async(set, absent).value();
}

// Waits for a join_async(), and returns the rank that joined last. Throws the error if the join failed.
inline int last_rank(const Handle& join) {
  join.synchronize();
  int rank = 0;
  detail::to_status(ronda_last_rank(join.id(), &rank)).throw_if_error();
  return rank;
}

}  // namespace abi1
}  // namespace ronda

#endif  // RONDA_CLIENT_RONDA_SYNCHRONIZATION_HPP_
