// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_TESTS_RUNTIME_ENGINE_LANE_CALLS_H_
#define RONDA_TESTS_RUNTIME_ENGINE_LANE_CALLS_H_

#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/engine/device/caller_lane.h"
#include "tests/runtime/engine/device_job.h"

namespace ronda::testing {

// Opens a lane on a rank, and makes calls on this lane.
class Calls {
 public:
  explicit Calls(DeviceRank& rank, ProcessSetId process_set = kGlobalProcessSet)
      : rank_(rank), process_set_(process_set) {
    const absl::StatusOr<bool> is_open = rank.runtime().OpenLane(process_set, nullptr, WaitLimits());
    EXPECT_EQ(is_open.status(), absl::OkStatus());
    EXPECT_TRUE(*is_open);
  }

  CallerLane& lane() { return *rank_.runtime().lanes().Find(process_set_); }

  absl::StatusOr<std::shared_ptr<Handle>> Make(Submission submission) {
    submission.request.process_set = process_set_;
    const absl::StatusOr<bool> carries = lane().Carries(submission);
    EXPECT_EQ(carries.status(), absl::OkStatus());
    EXPECT_TRUE(*carries);
    return lane().Submit(&submission);
  }

  // Makes the call, and makes the rank's stream wait for its result.
  void MakeAndOrder(Submission submission) {
    const auto handle = Make(std::move(submission));
    ASSERT_EQ(handle.status(), absl::OkStatus());
    EXPECT_EQ((*handle)->OrderBefore(rank_.stream()), absl::OkStatus());
  }

  // Makes the call, waits for it to finish, and returns its status.
  absl::Status StatusOf(Submission submission) { return StatusOf(Make(std::move(submission))); }
  static absl::Status StatusOf(const absl::StatusOr<std::shared_ptr<Handle>>& handle) {
    return handle.ok() ? (*handle)->Wait() : handle.status();
  }

 private:
  DeviceRank& rank_;
  const ProcessSetId process_set_;
};

}  // namespace ronda::testing

#endif  // RONDA_TESTS_RUNTIME_ENGINE_LANE_CALLS_H_
