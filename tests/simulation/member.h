// SPDX-License-Identifier: Apache-2.0

// Simulates a member of an elastic job, whose training loop uses production code.
#ifndef RONDA_TESTS_SIMULATION_MEMBER_H_
#define RONDA_TESTS_SIMULATION_MEMBER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/elastic.h"
#include "client/stop.h"
#include "runtime/base/unique_fd.h"
#include "runtime/elastic/member_channel.h"
#include "runtime/engine/runtime.h"
#include "tests/simulation/job.h"
#include "tests/simulation/training.h"

namespace ronda::simulation {

// Joins an epoch, takes the newest state, trains, and joins the next epoch after a failure or a change, like the
// programs in docs/elastic.md. Most of its code is production code: the runtime, with its control plane and collectives
// over messages, and the code that agrees on changes, chooses the state, and talks to the launcher.
//
// Checks that each operation completes once and in time, with the right values or an error.
class Member {
 public:
  Member(Job& job, int id, UniqueFd socket) : job_(job), id_(id), channel_(std::move(socket)) {}

  // Returns the member's exit code.
  int Run();

 private:
  // Why the member leaves an epoch without a failure.
  enum class Left { kDone, kReform, kLeaves };

  absl::StatusOr<Transport> Connect(const EpochPlace& place);
  absl::StatusOr<Left> RunEpoch(const EpochPlace& place);
  absl::StatusOr<Left> Train();
  absl::Status TakeNewestState();
  absl::Status MakeStep();
  absl::Status SubmitAll(const std::vector<std::unique_ptr<Part>>& parts);
  absl::Status Await(const std::vector<std::unique_ptr<Part>>& parts);
  absl::Status ContradictSometimes();
  absl::Status OmitSometimes();
  absl::StatusOr<std::shared_ptr<Handle>> Submit(const Submission& submission);
  absl::Status WaitFor(const Handle& handle);
  absl::StatusOr<Left> LookForChange();
  void Compute();
  void CheckCallbacks();

  // A callback that was registered on a handle, and how many times it was called.
  struct Callback {
    std::string tensor;
    int calls = 0;
  };

  Job& job_;
  const int id_;
  MemberChannel channel_;
  StepMarks marks_;
  uint64_t state_ = 0;
  int64_t epoch_ = -1;
  // The following variables belong to the current epoch.
  std::unique_ptr<Runtime> runtime_;
  std::unique_ptr<StopAgreement> agreement_;
  std::vector<std::shared_ptr<Handle>> handles_;
  std::vector<std::unique_ptr<Callback>> callbacks_;
};

}  // namespace ronda::simulation

#endif  // RONDA_TESTS_SIMULATION_MEMBER_H_
