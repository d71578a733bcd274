// SPDX-License-Identifier: Apache-2.0

#include "runtime/engine/device/caller_lane_opening.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "runtime/base/logging.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

// The first character of the text that a member sends to the others. The rest of the text describes the member's
// device, or says why it has none.
constexpr absl::string_view kCan = "+";
constexpr absl::string_view kCannot = "-";
// Separates the number of the member's earlier calls, what its process does after a failure, and the facts.
constexpr absl::string_view kEnd = ";";
constexpr absl::string_view kProcessEnds = "ends";

using AfterFailure = DeviceSupport::DirectRequest::AfterFailure;

// The resources that a member prepares before it knows whether the other members can open the lane.
struct Resources {
  std::shared_ptr<Device> device;
  std::unique_ptr<DeviceStream> stream;
  std::string facts;
};

absl::StatusOr<Resources> Prepare(const CallerLaneOpening& opening) {
  if (opening.support == nullptr) return absl::FailedPreconditionError("this job has no support for GPUs");
  Resources own;
  RONDA_ASSIGN_OR_RETURN(own.device, opening.rank_device->Of(opening.buffer));
  // The kernels are loaded now, while nothing on the device waits for other ranks.
  RONDA_RETURN_IF_ERROR(
      own.device->Call("loading the kernels", [](const ronda_cuda_plugin& cuda) { return cuda.prepare_device(); }));
  RONDA_ASSIGN_OR_RETURN(own.stream, DeviceStream::Create(own.device.get()));
  own.facts = opening.support->Facts(*own.device);
  return own;
}

// Runs an operation of the process set on bytes in host memory.
absl::StatusOr<std::shared_ptr<Handle>> Run(const CallerLaneOpening& opening, absl::string_view what, OpType op,
                                            size_t bytes, const void* input, void* output) {
  const Submission submission = {.request = {.name = absl::StrCat("ronda/lane/", what),
                                             .process_set = opening.process_set,
                                             .op = op,
                                             .dtype = DType::kUint8,
                                             .shape = {static_cast<int64_t>(bytes)},
                                             .root = op == OpType::kBroadcast ? (*opening.members)[0] : 0},
                                 .input = input,
                                 .output = output};
  RONDA_ASSIGN_OR_RETURN(std::shared_ptr<Handle> handle, opening.run(submission));
  RONDA_RETURN_IF_ERROR(handle->Wait());
  return handle;
}

// Returns the texts of all members, by the member's position in the set.
absl::StatusOr<std::vector<std::string>> GatherTexts(const CallerLaneOpening& opening, const std::string& own) {
  RONDA_ASSIGN_OR_RETURN(const std::shared_ptr<Handle> handle,
                         Run(opening, "facts", OpType::kAllgather, own.size(), own.data(), nullptr));
  const auto* at = static_cast<const char*>(handle->result().rows());
  std::vector<std::string> texts;
  for (const int64_t bytes : handle->result().first_dims) {
    texts.emplace_back(at, static_cast<size_t>(bytes));
    at += bytes;
  }
  return texts;
}

// Returns whether all members have a device. The first character of a text says whether its member has one; CanAll
// removes this character. If a member has no device, the first member of the set logs the reason.
bool CanAll(const CallerLaneOpening& opening, std::vector<std::string>& texts) {
  for (size_t i = 0; i < texts.size(); ++i) {
    const bool can = absl::StartsWith(texts[i], kCan);
    texts[i].erase(0, kCan.size());
    if (can) continue;
    const RankId first = (*opening.members)[0], culprit = (*opening.members)[static_cast<int>(i)];
    if (opening.submitter.rank == first) {  // one line is enough
      Log(LogLevel::kWarning, first,
          absl::StrCat("process set ", opening.process_set,
                       " has no lane, and its operations on GPUs go the usual way: rank ", culprit, ": ", texts[i]));
    }
    return false;
  }
  return true;
}

std::string TextOf(const CallerLaneOpening& opening, const absl::StatusOr<Resources>& own) {
  if (!own.ok()) return absl::StrCat(kCannot, own.status().message());
  return absl::StrCat(kCan, opening.earlier_calls, kEnd, opening.watch.ends_when_held ? kProcessEnds : "", kEnd,
                      own->facts);
}

// What follows from the texts of all members, and is the same on all of them.
struct Agreement {
  uint64_t earlier_calls = 0;                  // the greatest number
  AfterFailure process = AfterFailure::kEnds;  // only if all processes end
};

// Removes all but the facts from the texts.
Agreement TakeAgreement(std::vector<std::string>& texts) {
  Agreement agreement;
  for (std::string& text : texts) {
    std::vector<std::string> fields = absl::StrSplit(text, absl::MaxSplits(kEnd, 2));
    fields.resize(3);
    uint64_t calls = 0;
    if (absl::SimpleAtoi(fields[0], &calls)) agreement.earlier_calls = std::max(agreement.earlier_calls, calls);
    if (fields[1] != kProcessEnds) agreement.process = AfterFailure::kGoesOn;
    text = std::move(fields[2]);
  }
  return agreement;
}

absl::StatusOr<std::shared_ptr<LaneMemory>> MakeMemory(const CallerLaneOpening& opening,
                                                       const std::shared_ptr<Device>& device,
                                                       const DirectTransport& transport) {
  RONDA_ASSIGN_OR_RETURN(DirectMemory memory, transport.memory());
  return std::make_shared<LaneMemory>(
      LaneMemory::Options{.owner = absl::StrCat("lane ", opening.process_set),
                          .setting = "RONDA_LANE_MEMORY_MB on the first rank of its process set",
                          .device = device,
                          .memory = std::move(memory)});
}

// Connects the members through a transport, and returns the lane. REQUIRES: all members have a device. `facts` are the
// texts of all members.
absl::StatusOr<std::unique_ptr<CallerLane>> Connect(const CallerLaneOpening& opening, Resources own,
                                                    std::vector<std::string> facts) {
  const Agreement agreement = TakeAgreement(facts);
  const DeviceSupport::DirectRequest request = {
      .info = {.label = "the lane", .limits = opening.limits},
      .members = opening.members->ranks(),
      .self = *opening.members->PositionOf(opening.submitter.rank),
      .facts = std::move(facts),
      .device = own.device,
      .stream = own.stream->handle(),
      .share =  // called before ConnectDirectly() returns
      [&opening](const CallInfo&, void* data, size_t bytes) {
        return Run(opening, "id", OpType::kBroadcast, bytes, nullptr, data).status();
      },
      .job_failure = opening.watch.job_failure,
      .fail_job = opening.watch.fail_job,
      .process = agreement.process};
  RONDA_ASSIGN_OR_RETURN(std::unique_ptr<DirectTransport> transport, opening.support->ConnectDirectly(request));
  if (transport == nullptr) return nullptr;
  absl::StatusOr<std::shared_ptr<LaneMemory>> memory = MakeMemory(opening, own.device, *transport);
  return CallerLane::Create({.process_set = opening.process_set,
                             .earlier_calls = agreement.earlier_calls,
                             .members = opening.members,
                             .rank_device = opening.rank_device,
                             .device = std::move(own.device),
                             .stream = std::move(own.stream),
                             .memory = std::move(memory),
                             .transport = std::move(transport),
                             .limits = opening.limits,
                             .submitter = opening.submitter,
                             .callbacks = opening.callbacks,
                             .watch = opening.watch});
}

}  // namespace

absl::StatusOr<std::unique_ptr<CallerLane>> OpenCallerLane(const CallerLaneOpening& opening) {
  if (opening.members->size() == 1) return nullptr;
  absl::StatusOr<Resources> own = Prepare(opening);
  RONDA_ASSIGN_OR_RETURN(std::vector<std::string> facts, GatherTexts(opening, TextOf(opening, own)));
  if (!CanAll(opening, facts)) return nullptr;
  absl::StatusOr<std::unique_ptr<CallerLane>> lane = Connect(opening, *std::move(own), std::move(facts));
  // If this member has no lane, the job must fail, because other members may have the lane and would wait for this
  // member.
  if (!lane.ok()) opening.watch.fail_job(lane.status());
  return lane;
}

}  // namespace ronda
