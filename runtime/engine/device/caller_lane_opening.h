// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_ENGINE_DEVICE_CALLER_LANE_OPENING_H_
#define RONDA_RUNTIME_ENGINE_DEVICE_CALLER_LANE_OPENING_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "runtime/base/group.h"
#include "runtime/base/types.h"
#include "runtime/collectives/transport.h"
#include "runtime/engine/callback_thread.h"
#include "runtime/engine/device/caller_lane.h"
#include "runtime/engine/device/device_watch.h"
#include "runtime/engine/device/rank_device.h"
#include "runtime/engine/handle.h"
#include "runtime/engine/submission.h"

namespace ronda {

// A member's parameters for opening a lane of a process set. Through operations on host memory, the members exchange
// first the facts about their devices, and then the id of the transport.
struct CallerLaneOpening {
  ProcessSetId process_set = kGlobalProcessSet;
  uint64_t earlier_calls = 0;  // CallerLanes::EarlierCalls
  std::shared_ptr<const Group> members;
  std::shared_ptr<DeviceSupport> support;  // may be nullptr
  RankDevice* rank_device = nullptr;
  const void* buffer = nullptr;  // memory of the device that this rank uses; nullptr: any
  WaitLimits limits;
  Submitter submitter;
  std::shared_ptr<CallbackThread> callbacks;
  DeviceWatch::Options watch;  // as in CallerLane::Options
  // Runs an operation, and waits for its end.
  std::function<absl::StatusOr<std::shared_ptr<Handle>>(const Submission&)> run;
};

// Opens the lane. All members of the process set must call OpenCallerLane at the same point in the set's sequence of
// operations. Returns nullptr on all members if one of them has no usable device, or if their backend has no direct
// calls. In the first case, the first member logs the reason.
// Errors: the error of an operation if some members do not call OpenCallerLane; the errors of the transport and of
// CallerLane::Create, after which the job fails.
absl::StatusOr<std::unique_ptr<CallerLane>> OpenCallerLane(const CallerLaneOpening& opening);

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_DEVICE_CALLER_LANE_OPENING_H_
