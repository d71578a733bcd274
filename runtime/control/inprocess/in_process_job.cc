#include "runtime/control/inprocess/in_process_job.h"

#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "runtime/base/status_macros.h"

namespace ronda {

InProcessJob::InProcessJob(Options options)
    : options_(std::move(options)), flights_(std::make_shared<FlightBoard>(options_.size)), members_(options_.size) {}

absl::Status InProcessJob::SendToCoordinator(RankId rank, absl::string_view payload) {
  MutexLock lock(&mu_);
  RONDA_RETURN_IF_ERROR(failure_);
  Member& coordinator = members_[kCoordinatorRank];
  coordinator.inbox.to_coordinator.push_back({.from = rank, .payload = std::string(payload)});
  coordinator.woken = true;
  changed_.NotifyAll();
  return absl::OkStatus();
}

absl::Status InProcessJob::Broadcast(absl::string_view payload) {
  MutexLock lock(&mu_);
  RONDA_RETURN_IF_ERROR(failure_);
  for (Member& member : members_) member.inbox.broadcasts.emplace_back(payload);
  WakeAllLocked();
  return absl::OkStatus();
}

absl::StatusOr<ControlPlane::Inbox> InProcessJob::Receive(RankId rank) {
  MutexLock lock(&mu_);
  RONDA_RETURN_IF_ERROR(failure_);
  return std::exchange(members_[rank].inbox, ControlPlane::Inbox{});
}

void InProcessJob::Wait(RankId rank, absl::Time deadline) {
  MutexLock lock(&mu_);
  while (!members_[rank].woken) {
    const absl::Duration left = deadline - absl::Now();
    if (left <= absl::ZeroDuration()) break;
    changed_.WaitFor(&mu_, left);
  }
  members_[rank].woken = false;
}

void InProcessJob::Wake(RankId rank) {
  MutexLock lock(&mu_);
  members_[rank].woken = true;
  changed_.NotifyAll();
}

void InProcessJob::Fail(RankId rank, const absl::Status& failure) {
  MutexLock lock(&mu_);
  if (!failure_.ok()) return;
  failure_ = Attribute(failure, PeerOf(rank));
  WakeAllLocked();
}

absl::Status InProcessJob::failure() const {
  MutexLock lock(&mu_);
  return failure_;
}

void InProcessJob::Depart(RankId rank) {
  MutexLock lock(&mu_);
  members_[rank].departed = true;
  changed_.NotifyAll();
}

absl::Status InProcessJob::Meet(const Post& post, Work work) {
  std::vector<const void*> arguments;
  {
    MutexLock lock(&mu_);
    RONDA_ASSIGN_OR_RETURN(arguments, GatherLocked(post));
  }
  absl::Status status = work(arguments);
  // From here on neither a failure nor a deadline ends the wait: the others may be using what this rank's post points
  // to, and all they do is compute.
  MutexLock lock(&mu_);
  const uint64_t meeting = opened_;
  if (--working_ == 0) {
    ++closed_;
    changed_.NotifyAll();
  }
  while (closed_ < meeting) changed_.Wait(&mu_);
  return status;
}

absl::StatusOr<std::vector<const void*>> InProcessJob::GatherLocked(const Post& post) {
  RONDA_RETURN_IF_ERROR(failure_);
  RONDA_RETURN_IF_ERROR(meeting_error_);
  members_[post.rank].post = &post;
  if (LateRankLocked() < 0) {
    arguments_.clear();
    for (Member& member : members_) arguments_.push_back(std::exchange(member.post, nullptr)->arguments);
    working_ = size();
    ++opened_;
    changed_.NotifyAll();
    return arguments_;
  }
  const absl::Time deadline = absl::Now() + options_.collective_timeout;
  while (members_[post.rank].post != nullptr) {
    if (absl::Status status = CheckWaitLocked(post, deadline); !status.ok()) {
      members_[post.rank].post = nullptr;
      // Who comes or wakes later shall not take this rank, which is about to go, for the late one.
      if (failure_.ok()) meeting_error_ = status;
      changed_.NotifyAll();
      return status;
    }
    changed_.WaitFor(&mu_, deadline - absl::Now());
  }
  return arguments_;
}

absl::Status InProcessJob::CheckWaitLocked(const Post& post, absl::Time deadline) const {
  RONDA_RETURN_IF_ERROR(failure_);
  RONDA_RETURN_IF_ERROR(meeting_error_);
  const RankId late = LateRankLocked();
  if (members_[late].departed) {
    return absl::AbortedError(absl::StrCat(ToString(PeerOf(late)), " left the job before ", Name(post.op), " '",
                                           post.label, "', which rank ", post.rank, " is in"));
  }
  if (absl::Now() < deadline) return absl::OkStatus();
  return absl::DeadlineExceededError(absl::StrCat("waited ", absl::FormatDuration(options_.collective_timeout), " for ",
                                                  ToString(PeerOf(late)), " in ", Name(post.op), " '", post.label,
                                                  "', 0 bytes done"));
}

RankId InProcessJob::LateRankLocked() const {
  for (RankId rank = 0; rank < size(); ++rank) {
    if (members_[rank].post == nullptr) return rank;
  }
  return -1;
}

void InProcessJob::WakeAllLocked() {
  for (Member& member : members_) member.woken = true;
  changed_.NotifyAll();
}

Peer InProcessJob::PeerOf(RankId rank) const { return {.rank = rank, .host = options_.hostname, .pid = getpid()}; }

}  // namespace ronda
