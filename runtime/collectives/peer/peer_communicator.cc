// SPDX-License-Identifier: Apache-2.0

#include "runtime/collectives/peer/peer_communicator.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "runtime/base/clock.h"
#include "runtime/base/status_macros.h"
#include "runtime/collectives/packing/packing.h"

namespace ronda {
namespace {

constexpr absl::Duration kPollInterval = absl::Microseconds(100);
// How long the destructor waits for the device if nothing has failed.
constexpr absl::Duration kEndDeadline = absl::Minutes(1);

// Keeps a flag set while a thread is in a call.
class InCall {
 public:
  explicit InCall(std::atomic<bool>* flag) : flag_(*flag) { flag_.store(true); }
  ~InCall() { flag_.store(false); }
  InCall(const InCall&) = delete;
  InCall& operator=(const InCall&) = delete;

 private:
  std::atomic<bool>& flag_;
};

bool AreEmpty(absl::Span<const size_t> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](size_t each) { return each == 0; });
}

}  // namespace

absl::StatusOr<std::unique_ptr<PeerCommunicator>> PeerCommunicator::Create(Options options) {
  options.slot_bytes =
      std::max(options.slot_bytes, static_cast<size_t>(options.size) * PeerGroup::kMinSlotBytesPerRank);
  std::unique_ptr<PeerCommunicator> communicator(new PeerCommunicator(std::move(options)));
  const CallInfo info = {.label = "the connection of the ranks' GPUs"};
  const Members all(info, communicator->rank(), communicator->size());
  RONDA_RETURN_IF_ERROR(communicator->For(info, all).status());
  return communicator;
}

// The stream must stop using the memory before the data members' destructors free it.
PeerCommunicator::~PeerCommunicator() {
  if (!AwaitStream().ok()) Abort();
}

absl::Status PeerCommunicator::AwaitStream() {
  const absl::Duration begin = MonotonicTime();
  std::unique_ptr<DeviceEvent> end;
  while (true) {
    RONDA_ASSIGN_OR_RETURN(const bool has_finished, HasFinished(&end));
    if (has_finished) return absl::OkStatus();
    RONDA_RETURN_IF_ERROR(failure());
    RONDA_RETURN_IF_ERROR(options_.job_failure());
    if (MonotonicTime() - begin > kEndDeadline) {
      return absl::DeadlineExceededError("the device has not come to an end");
    }
    absl::SleepFor(kPollInterval);
  }
}

absl::StatusOr<bool> PeerCommunicator::HasFinished(std::unique_ptr<DeviceEvent>* end) {
  if (*end == nullptr) {
    RONDA_ASSIGN_OR_RETURN(std::unique_ptr<DeviceEvent> event, options_.device->NewEvent());
    RONDA_RETURN_IF_ERROR(event->Record(options_.stream));
    *end = std::move(event);
  }
  return (*end)->done();
}

absl::Status PeerCommunicator::failure() const {
  const MutexLock lock(&mu_);
  return failure_;
}

absl::Status PeerCommunicator::Fail(absl::Status failure) const {
  const MutexLock lock(&mu_);
  if (failure_.ok()) failure_ = std::move(failure);
  return failure_;
}

std::vector<PeerGroup*> PeerCommunicator::Groups() const {
  const MutexLock lock(&mu_);
  std::vector<PeerGroup*> groups;
  for (const std::unique_ptr<Entry>& entry : entries_) {
    if (entry->group != nullptr) groups.push_back(entry->group.get());
  }
  return groups;
}

void PeerCommunicator::Abort() {
  if (options_.device->is_held()) return;
  static_cast<void>(Fail(absl::CancelledError("the job's work on the device has been ended")));
  for (PeerGroup* group : Groups()) group->Abort();
  const absl::Duration begin = MonotonicTime();
  std::unique_ptr<DeviceEvent> end;
  // A call that started before the failure was recorded may still enqueue work on the stream.
  while (!options_.device->is_abandoned()) {
    for (PeerGroup* group : Groups()) group->EndWaits();
    if (!is_in_call_.load()) {
      const absl::StatusOr<bool> has_finished = HasFinished(&end);
      if (has_finished.ok() && *has_finished) return;
      // After an error, the device does nothing more for this process.
      if (!has_finished.ok()) options_.device->Abandon(has_finished.status().message());
    }
    if (MonotonicTime() - begin > options_.device->timeout()) {
      options_.device->Abandon(absl::StrCat("the job has failed, and what the device was given does not end within ",
                                            absl::FormatDuration(options_.device->timeout())));
    }
    absl::SleepFor(kPollInterval);
  }
}

absl::Status PeerCommunicator::AsMember(const CallInfo& info, Collective collective) {
  const InCall in_call(&is_in_call_);
  RONDA_RETURN_IF_ERROR(failure());
  const Members members(info, options_.rank, options_.size);
  absl::StatusOr<Entry*> entry = For(info, members);
  if (!entry.ok()) return Fail(entry.status());
  if (!members.IncludeSelf()) return absl::OkStatus();
  const absl::Status status = collective(**entry);
  return status.ok() ? status : Fail(status);
}

absl::StatusOr<PeerCommunicator::Entry*> PeerCommunicator::For(const CallInfo& info, const Members& members) {
  const auto has_members = [&](const std::unique_ptr<Entry>& entry) {
    if (static_cast<int>(entry->ranks.size()) != members.size()) return false;
    for (int i = 0; i < members.size(); ++i) {
      if (entry->ranks[static_cast<size_t>(i)] != members[i]) return false;
    }
    return true;
  };
  {
    const MutexLock lock(&mu_);
    const auto found = std::find_if(entries_.begin(), entries_.end(), has_members);
    if (found != entries_.end()) return found->get();
  }
  return Connect(info, members);
}

absl::StatusOr<PeerCommunicator::Entry*> PeerCommunicator::Connect(const CallInfo& info, const Members& members) {
  const std::vector<PeerGroup*> groups = Groups();  // the first one has all ranks
  auto entry = std::make_unique<Entry>();
  for (int i = 0; i < members.size(); ++i) entry->ranks.push_back(members[i]);
  RONDA_ASSIGN_OR_RETURN(entry->group, PeerGroup::Connect({.rank = options_.rank,
                                                           .size = options_.size,
                                                           .device = options_.device,
                                                           .stream = options_.stream,
                                                           .host = options_.host,
                                                           .slot_bytes = options_.slot_bytes,
                                                           .meets_on_host = !groups.empty() && groups[0]->MeetsOnHost(),
                                                           .job_failure = options_.job_failure},
                                                          info));
  if (entry->group != nullptr) {
    if (scratch_.data() == nullptr) {  // in the first group, which has all ranks
      RONDA_ASSIGN_OR_RETURN(scratch_, options_.device->Allocate(RONDA_CUDA_DEVICE_MEMORY, options_.one_shot_bytes,
                                                                 "the results of small reductions"));
    }
    entry->reduce = std::make_unique<PeerReduce>(PeerReduce::Options{.device = options_.device,
                                                                     .stream = options_.stream,
                                                                     .marks = options_.marks,
                                                                     .scratch = scratch_.data(),
                                                                     .one_shot_bytes = options_.one_shot_bytes},
                                                 entry->group.get());
    entry->exchange = std::make_unique<PeerExchange>(
        PeerExchange::Options{.device = options_.device, .stream = options_.stream, .marks = options_.marks},
        entry->group.get());
  }
  const MutexLock lock(&mu_);
  // Adds the group even if it came too late for the failure, because Abort() ends the waits of all groups in entries_.
  entries_.push_back(std::move(entry));
  if (failure_.ok()) return entries_.back().get();
  if (entries_.back()->group != nullptr) entries_.back()->group->Abort();
  return failure_;
}

absl::Status PeerCommunicator::Reduce(const ReduceCall& call) {
  if (IsEmpty(call)) return failure();
  return AsMember(call.info, [&](Entry& entry) { return entry.reduce->Run(call); });
}

absl::Status PeerCommunicator::Broadcast(const BroadcastCall& call) {
  if (call.bytes == 0) return failure();
  return AsMember(call.info, [&](Entry& entry) { return entry.exchange->Broadcast(call); });
}

absl::Status PeerCommunicator::Allgather(const AllgatherCall& call) {
  if (AreEmpty(call.bytes_per_rank)) return failure();
  return AsMember(call.info, [&](Entry& entry) { return entry.exchange->Allgather(call); });
}

absl::Status PeerCommunicator::Alltoall(const AlltoallCall& call) {
  if (AreEmpty(call.bytes)) return failure();
  return AsMember(call.info, [&](Entry& entry) { return entry.exchange->Alltoall(call); });
}

absl::Status PeerCommunicator::Barrier(const CallInfo& info) {
  return AsMember(info, [&](Entry& entry) { return entry.group->Meet(info); });
}

}  // namespace ronda
