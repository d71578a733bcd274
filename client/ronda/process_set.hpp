// SPDX-License-Identifier: Apache-2.0

// Process sets, whose ranks run operations among themselves. A rank may be in several sets, and different sets may run
// operations at the same time.
//
//   ronda::ProcessSet even = ronda::add_process_set({0, 2});   // on every rank, also on ranks that are not in the set
//   if (even.included()) ronda::allreduce(view, {ronda::Op::Sum}, {even});
//   ronda::remove_process_set(even);
//
// The ranks of a set can also create it without the other ranks of the job:
//
//   if (ronda::rank() % 2 == 0) even = ronda::create_process_set({0, 2});
#ifndef RONDA_CLIENT_RONDA_PROCESS_SET_HPP_
#define RONDA_CLIENT_RONDA_PROCESS_SET_HPP_

#include <cstddef>
#include <string>
#include <vector>

#include "../ronda.h"
#include "status.hpp"

namespace ronda {
inline namespace abi1 {

// A process set, represented by its id. ProcessSet objects can be copied freely, and do not keep the set alive. The
// default is the set of all ranks.
//
// Immutable, thus thread-safe.
class ProcessSet {
 public:
  ProcessSet() = default;
  explicit ProcessSet(ronda_process_set id) noexcept : id_(id) {}  // for instance of Options::process_sets

  ronda_process_set id() const noexcept { return id_; }

  // Returns whether this rank is in the set.
  bool included() const noexcept { return ronda_process_set_rank(id_) >= 0; }

  // size() is the number of ranks in the set, and rank() is this rank's index among them, 0 <= rank() < size().
  // Errors: RONDA_ERROR_INVALID_ARGUMENT if the set does not exist or, from rank(), if it does not contain this rank;
  // RONDA_ERROR_NOT_INITIALIZED.
  int size() const { return known(ronda_process_set_size(id_), "there is no process set "); }
  int rank() const { return known(ronda_process_set_rank(id_), "this rank is not in process set "); }

  // Returns the set's ranks, in ascending order.
  // Errors: as size().
  std::vector<int> ranks() const {
    std::vector<int> ranks(static_cast<std::size_t>(size()));
    detail::to_status(ronda_process_set_ranks(id_, ranks.data())).throw_if_error();
    return ranks;
  }

  friend bool operator==(const ProcessSet& a, const ProcessSet& b) noexcept { return a.id_ == b.id_; }
  friend bool operator!=(const ProcessSet& a, const ProcessSet& b) noexcept { return a.id_ != b.id_; }

 private:
  int known(int number, const char* otherwise) const {
    if (number >= 0) return number;
    if (ronda_is_initialized() == 0) {
      throw Error(RONDA_ERROR_NOT_INITIALIZED, "Ronda is not initialized: call ronda::init() first");
    }
    throw Error(RONDA_ERROR_INVALID_ARGUMENT, otherwise + std::to_string(id_));
  }

  ronda_process_set id_ = 0;
};

// Creates a set of `ranks`, which must be in ascending order. Blocks until every rank of the job, including ranks
// outside the set, has called the function with the same ranks.
// Errors: RONDA_ERROR_INVALID_ARGUMENT; the errors of an operation.
inline Result<ProcessSet> try_add_process_set(const std::vector<int>& ranks) {
  ronda_process_set id = 0;
  Status status = detail::to_status(ronda_add_process_set(ranks.data(), static_cast<int>(ranks.size()), &id));
  if (!status.ok()) return status;
  return ProcessSet(id);
}
inline ProcessSet add_process_set(const std::vector<int>& ranks) { return try_add_process_set(ranks).value(); }

// Like try_add_process_set(), but only the ranks of the set call this function. Blocks until each of these ranks has
// called the function with the same ranks and tag. `tag` distinguishes sets of the same ranks that are created at the
// same time.
// Errors: RONDA_ERROR_INVALID_ARGUMENT (for instance: this rank is not in the set); RONDA_ERROR_DUPLICATE_NAME (another
// thread of this rank is creating a set with the same ranks and tag); the errors of an operation.
inline Result<ProcessSet> try_create_process_set(const std::vector<int>& ranks, const std::string& tag = "") {
  ronda_process_set id = 0;
  Status status =
      detail::to_status(ronda_create_process_set(ranks.data(), static_cast<int>(ranks.size()), tag.c_str(), &id));
  if (!status.ok()) return status;
  return ProcessSet(id);
}
inline ProcessSet create_process_set(const std::vector<int>& ranks, const std::string& tag = "") {
  return try_create_process_set(ranks, tag).value();
}

// Removes a set. Blocks until every rank of the job has called the function or, for a set created by
// create_process_set(), every rank of the set. Operations in flight in the set fail.
// Errors: RONDA_ERROR_INVALID_ARGUMENT if the set does not exist, or is the set of all ranks; the errors of an
// operation.
inline Status try_remove_process_set(const ProcessSet& set) {
  return detail::to_status(ronda_remove_process_set(set.id()));
}
inline void remove_process_set(const ProcessSet& set) { try_remove_process_set(set).throw_if_error(); }

// Returns all existing sets in the order of their creation, beginning with the set of all ranks.
inline std::vector<ProcessSet> process_sets() {
  std::vector<ronda_process_set> ids;
  int count = 0;
  do {
    ids.resize(static_cast<std::size_t>(count));
    detail::to_status(ronda_process_set_ids(ids.data(), static_cast<int>(ids.size()), &count)).throw_if_error();
    // Retries if `ids` is too small for all sets, because another thread may have added a set.
  } while (count > static_cast<int>(ids.size()));
  ids.resize(static_cast<std::size_t>(count));
  return std::vector<ProcessSet>(ids.begin(), ids.end());
}

}  // namespace abi1
}  // namespace ronda

#endif  // RONDA_CLIENT_RONDA_PROCESS_SET_HPP_
