// SPDX-License-Identifier: Apache-2.0

#include "runtime/collectives/staged/staging.h"

#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "runtime/base/clock.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

// How long a wait spins before it sleeps. A copy of a few kilobytes takes only microseconds; longer waits are, for
// example, for one of the trainer's kernels.
constexpr absl::Duration kSpin = absl::Microseconds(50);
constexpr absl::Duration kPollInterval = absl::Microseconds(50);

}  // namespace

absl::StatusOr<std::unique_ptr<Staging>> Staging::Create(Options options) {
  std::unique_ptr<Staging> staging(new Staging(std::move(options)));
  Device& device = *staging->options_.device;
  for (Slot& slot : staging->slots_) {
    RONDA_ASSIGN_OR_RETURN(slot.memory, device.Allocate(RONDA_CUDA_PINNED_HOST_MEMORY, staging->slot_bytes(),
                                                        "tensors on their way through the host"));
    RONDA_ASSIGN_OR_RETURN(slot.event, device.NewEvent());
    RONDA_RETURN_IF_ERROR(slot.event->Record(staging->options_.stream));
  }
  return staging;
}

Staging::~Staging() {
  if (options_.device->is_abandoned()) return;
  for (Slot& slot : slots_) {
    if (slot.event != nullptr && !Await(slot, {}).ok()) slot.memory.Abandon();
  }
}

absl::Status Staging::Run(const CallInfo& info, StagedCall& call) {
  if (call.rounds() > 0) RONDA_RETURN_IF_ERROR(CopyOut(0, call));
  for (size_t round = 0; round < call.rounds(); ++round) {
    if (round + 1 < call.rounds()) RONDA_RETURN_IF_ERROR(CopyOut(round + 1, call));
    RONDA_RETURN_IF_ERROR(Await(SlotOf(round), info));
    // Timelines show the exchange as a transfer, because the stream waits until it is over.
    RONDA_RETURN_IF_ERROR(
        Marked(options_.marks, StreamPhase::kTransfer, call.Exchange(round, SlotOf(round).memory.data())));
    RONDA_RETURN_IF_ERROR(CopyBack(round, call));
  }
  return absl::OkStatus();
}

absl::Status Staging::RunOutside(StagedCall& call) {
  for (size_t round = 0; round < call.rounds(); ++round) RONDA_RETURN_IF_ERROR(call.Exchange(round, nullptr));
  return absl::OkStatus();
}

// The copies may overwrite the slot, because the stream executes them after the last copies from the slot back to the
// device.
absl::Status Staging::CopyOut(size_t round, StagedCall& call) {
  const Slot& slot = SlotOf(round);
  RONDA_RETURN_IF_ERROR(Marked(options_.marks, StreamPhase::kPack, call.CopyOut(round, slot.memory.data())));
  return slot.event->Record(options_.stream);
}

absl::Status Staging::CopyBack(size_t round, StagedCall& call) {
  const Slot& slot = SlotOf(round);
  RONDA_RETURN_IF_ERROR(Marked(options_.marks, StreamPhase::kUnpack, call.CopyBack(round, slot.memory.data())));
  return slot.event->Record(options_.stream);
}

absl::Status Staging::Await(const Slot& slot, const CallInfo& info) const {
  const absl::Duration start = MonotonicTime();
  while (true) {
    RONDA_ASSIGN_OR_RETURN(const bool is_done, slot.event->done());
    if (is_done) return absl::OkStatus();
    const absl::Duration waited = MonotonicTime() - start;
    if (waited < kSpin) {
      std::this_thread::yield();
      continue;
    }
    RONDA_RETURN_IF_ERROR(options_.job_failure());
    if (waited > info.limits.deadline) {
      return absl::DeadlineExceededError(absl::StrCat(options_.device->name(), " has not come to ", Name(info.op), " '",
                                                      info.label, "' after ", absl::FormatDuration(waited),
                                                      ": earlier work on its stream is not done"));
    }
    absl::SleepFor(kPollInterval);
  }
}

}  // namespace ronda
