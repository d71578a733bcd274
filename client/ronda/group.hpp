// SPDX-License-Identifier: Apache-2.0

// Prepared groups: the allreduces of a step that repeats.
#ifndef RONDA_CLIENT_RONDA_GROUP_HPP_
#define RONDA_CLIENT_RONDA_GROUP_HPP_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "../ronda.h"
#include "options.hpp"
#include "reductions.hpp"
#include "status.hpp"
#include "tensor.hpp"

namespace ronda {
inline namespace abi1 {

// Allreduces that are checked once, announced one by one in each step, and waited for together. See groups.h.
//
//   ronda::PreparedGroup gradients = ronda::prepare_group("gradients", tensors);
//   for (...) {
//     ... backward: tensors[i] is complete
//     gradients.ready(i);
//     gradients.synchronize();
//   }
//
// The destructor waits for submitted tensors. ready() is thread-safe; the other functions are thread-compatible.
class PreparedGroup {
 public:
  PreparedGroup() = default;                                             // without members
  explicit PreparedGroup(ronda_group group) noexcept : group_(group) {}  // takes ownership of `group`
  PreparedGroup(PreparedGroup&& other) noexcept : group_(std::exchange(other.group_, nullptr)) {}
  PreparedGroup& operator=(PreparedGroup&& other) noexcept {
    if (this != &other) {
      release();
      group_ = std::exchange(other.group_, nullptr);
    }
    return *this;
  }
  ~PreparedGroup() { release(); }

  // Until a step has announced all tensors, the group submits each tensor individually, or with its tensor group. In
  // later steps, tensors that were announced one after the other in that step are neighbours. Call this function
  // between steps.
  void learn_order() { detail::to_status(ronda_group_learn_order(group_)).throw_if_error(); }
  // Makes the tensors at positions `members` of the list run together or not at all. See ronda_group_combine().
  Status try_combine(const std::string& name, const std::vector<std::size_t>& members) {
    return detail::to_status(ronda_group_combine(group_, members.data(), members.size(), name.c_str()));
  }
  void combine(const std::string& name, const std::vector<std::size_t>& members) {
    try_combine(name, members).throw_if_error();
  }

  // Returns whether the group was prepared for the current job of this thread's rank, or false if the group has no
  // members.
  bool is_current() const {
    int current = 0;
    if (group_ != nullptr) detail::to_status(ronda_group_is_current(group_, &current)).throw_if_error();
    return current != 0;
  }

  // Announces that tensor `index` is complete. The tensor belongs to Ronda until the end of the step.
  // Errors: RONDA_ERROR_INVALID_ARGUMENT if the tensor has already been announced in this step; the errors of a
  // submission.
  Status try_ready(std::size_t index) { return detail::to_status(ronda_group_ready(group_, index)); }
  void ready(std::size_t index) { try_ready(index).throw_if_error(); }

  // Like try_ready(), for a tensor that has moved to `data`. From now on it is reduced in place there.
  Status try_ready_at(std::size_t index, void* data) {
    return detail::to_status(ronda_group_ready_at(group_, index, data));
  }
  void ready_at(std::size_t index, void* data) { try_ready_at(index, data).throw_if_error(); }

  // Like try_ready_at(), for a tensor in GPU memory that is filled by work on `stream`, a cudaStream_t.
  Status try_ready_on(std::size_t index, void* data, void* stream) {
    return detail::to_status(ronda_group_ready_on_stream(group_, index, data, stream));
  }
  void ready_on(std::size_t index, void* data, void* stream) { try_ready_on(index, data, stream).throw_if_error(); }

  // Waits until all tensors are reduced, and begins the next step.
  // Errors: RONDA_ERROR_INVALID_ARGUMENT if a tensor was not announced (the step then does not end); otherwise the
  // error of the first tensor that failed.
  Status wait() { return detail::to_status(ronda_group_wait(group_)); }
  void synchronize() { wait().throw_if_error(); }

  // Like wait(), for tensors in GPU memory: `stream`, a cudaStream_t, waits instead of this thread.
  Status wait_on(void* stream) { return detail::to_status(ronda_group_wait_on_stream(group_, stream)); }
  void synchronize_on(void* stream) { wait_on(stream).throw_if_error(); }

  // Like wait_on(), but each tensor's own stream waits for the tensor; this thread waits for tensors in host memory. If
  // the device fails later, finish() or the next call of this function returns the error. finish() blocks until the
  // device has reduced the tensors.
  Status wait_on_own_streams() { return detail::to_status(ronda_group_wait_on_own_streams(group_)); }
  Status finish() const { return group_ == nullptr ? Status() : detail::to_status(ronda_group_finish(group_)); }

  // With `detect_overflow`, returns whether any result of the step that the last wait() ended has an infinite or NaN
  // element on any rank.
  bool found_inf() const {
    int found = 0;
    detail::to_status(ronda_group_found_inf(group_, &found)).throw_if_error();
    return found != 0;
  }

  // Returns the position of the first tensor whose result has an infinite or NaN element.
  std::optional<std::size_t> overflowed() const {
    std::int64_t index = -1;
    detail::to_status(ronda_group_overflowed(group_, &index)).throw_if_error();
    if (index < 0) return std::nullopt;
    return static_cast<std::size_t>(index);
  }

  ronda_group get() const noexcept { return group_; }

 private:
  void release() noexcept {
    if (group_ != nullptr) static_cast<void>(ronda_group_release(group_));
  }

  ronda_group group_ = nullptr;
};

// Prepares allreduces in place. `name` is used in error messages.
inline Result<PreparedGroup> try_prepare_group(const std::string& name, const std::vector<Tensor>& in_place,
                                               const ReduceOptions& options = {}, const CallOptions& call = {}) {
  std::vector<ronda_allreduce_args> args;
  Status status = detail::set_group(in_place, options, call, &args);
  if (!status.ok()) return status;
  ronda_group group = nullptr;
  status = detail::to_status(ronda_prepare_group(args.data(), args.size(), name.c_str(), &group));
  if (!status.ok()) return status;
  return PreparedGroup(group);
}
inline PreparedGroup prepare_group(const std::string& name, const std::vector<Tensor>& in_place,
                                   const ReduceOptions& options = {}, const CallOptions& call = {}) {
  return try_prepare_group(name, in_place, options, call).value();
}

}  // namespace abi1
}  // namespace ronda

#endif  // RONDA_CLIENT_RONDA_GROUP_HPP_
