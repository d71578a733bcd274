// SPDX-License-Identifier: Apache-2.0

#include "runtime/control/inprocess/in_process_job.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/clock.h"
#include "runtime/base/logging.h"
#include "runtime/base/status_macros.h"
#include "runtime/monitor/peer_monitor.h"

namespace ronda {

InProcessJob::InProcessJob(Options options)
    : options_(std::move(options)), flights_(std::make_shared<FlightBoard>(options_.size)), members_(options_.size) {}

absl::Status InProcessJob::SendToCoordinator(RankId rank, absl::string_view payload) {
  MutexLock lock(&mu_);
  RONDA_RETURN_IF_ERROR(failure_);
  Member& coordinator = members_[kCoordinatorRank];
  coordinator.inbox.to_coordinator.push_back({.from = rank, .payload = std::string(payload)});
  WakeLocked(coordinator);
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
  ControlPlane::Inbox inbox = std::exchange(members_[rank].inbox, ControlPlane::Inbox{});
  inbox.unlock_requested = unlock_requested_;
  return inbox;
}

void InProcessJob::Wait(RankId rank, absl::Time deadline) {
  MutexLock lock(&mu_);
  Member& member = members_[rank];
  while (!member.woken) {
    const absl::Duration left = deadline - SteadyNow();
    if (left <= absl::ZeroDuration()) break;
    member.has_woken.WaitFor(&mu_, left);
  }
  member.woken = false;
}

void InProcessJob::Wake(RankId rank) {
  MutexLock lock(&mu_);
  WakeLocked(members_[rank]);
}

void InProcessJob::RequestUnlock(uint64_t schedule) {
  MutexLock lock(&mu_);
  unlock_requested_ = std::max(unlock_requested_, schedule);
  WakeAllLocked();
}

void InProcessJob::Fail(RankId rank, const absl::Status& failure) {
  MutexLock lock(&mu_);
  if (!failure_.ok()) return;
  failure_ = Attribute(failure, PeerOf(rank));
  WakeAllLocked();
  meetings_changed_.NotifyAll();
}

absl::Status InProcessJob::failure() const {
  MutexLock lock(&mu_);
  return failure_;
}

void InProcessJob::Depart(RankId rank) {
  MutexLock lock(&mu_);
  members_[rank].departed = true;
  meetings_changed_.NotifyAll();
}

void InProcessJob::Leave(RankId rank) {
  bool is_early = false;
  {
    MutexLock lock(&mu_);
    is_early = !members_[rank].departed && failure_.ok();
  }
  if (is_early) Fail(rank, absl::AbortedError(kLeftEarly));
}

absl::Status InProcessJob::Meet(const Post& post, Work work) {
  Meeting* meeting;
  {
    MutexLock lock(&mu_);
    RONDA_ASSIGN_OR_RETURN(meeting, GatherLocked(post));
  }
  absl::Status status = work(meeting->arguments);
  // Neither a failure nor a deadline may end this wait, because the other members may still be using the data that this
  // rank's post points to. The wait is short, because the other members only compute.
  MutexLock lock(&mu_);
  if (--meeting->working == 0) meetings_changed_.NotifyAll();
  while (meeting->working > 0) meetings_changed_.Wait(&mu_);
  if (--meeting->present == 0) meetings_.erase(post.meeting);
  return status;
}

InProcessJob::Meeting& InProcessJob::MeetingOfLocked(const Post& post) {
  const auto [it, is_new] = meetings_.try_emplace(post.meeting);
  Meeting& meeting = it->second;
  if (!is_new) return meeting;
  meeting.ranks = post.group == nullptr ? Group::All(size()).ranks() : post.group->ranks();
  meeting.posts.resize(meeting.ranks.size());
  meeting.missing = meeting.working = meeting.present = static_cast<int>(meeting.ranks.size());
  return meeting;
}

absl::StatusOr<InProcessJob::Meeting*> InProcessJob::GatherLocked(const Post& post) {
  RONDA_RETURN_IF_ERROR(failure_);
  RONDA_RETURN_IF_ERROR(meeting_error_);
  Meeting& meeting = MeetingOfLocked(post);
  const auto self = std::lower_bound(meeting.ranks.begin(), meeting.ranks.end(), post.running.self);
  const Post*& own = meeting.posts[self - meeting.ranks.begin()];
  own = &post;
  if (--meeting.missing == 0) {
    for (const Post* member : meeting.posts) meeting.arguments.push_back(member->arguments);
    meetings_changed_.NotifyAll();
    return &meeting;
  }
  if (absl::Status status = WaitForOthersLocked(meeting, post); !status.ok()) {
    own = nullptr;
    ++meeting.missing;
    // This rank is about to leave the meeting. The error makes the other members leave, too: otherwise they would
    // report this rank as late.
    if (failure_.ok() && meeting_error_.ok()) meeting_error_ = status;
    meetings_changed_.NotifyAll();
    return status;
  }
  return &meeting;
}

absl::Status InProcessJob::WaitForOthersLocked(const Meeting& meeting, const Post& post) {
  WaitWatch watch(post.running, *flights_);
  while (meeting.missing > 0) {
    RONDA_RETURN_IF_ERROR(failure_);
    RONDA_RETURN_IF_ERROR(meeting_error_);
    const auto missing = std::find(meeting.posts.begin(), meeting.posts.end(), nullptr);
    const RankId late = meeting.ranks[missing - meeting.posts.begin()];
    if (members_[late].departed) {
      return absl::AbortedError(absl::StrCat("the job was left by ", DescribeWait(PeerOf(late), post.running)));
    }
    RONDA_RETURN_IF_ERROR(watch.Check(PeerOf(late)));
    if (watch.has_warned() && post.running.late_call != nullptr) MakeLateCallLocked(*post.running.late_call);
    if (meeting.missing == 0) break;
    meetings_changed_.WaitFor(&mu_, watch.UntilNextCheck());
  }
  return absl::OkStatus();
}

// Releases mu_ during the call, because the call may use this job.
void InProcessJob::MakeLateCallLocked(LateCall& call) {
  mu_.Unlock();
  call.Make();
  mu_.Lock();
}

void InProcessJob::WakeLocked(Member& member) {
  member.woken = true;
  member.has_woken.NotifyAll();
}

void InProcessJob::WakeAllLocked() {
  for (Member& member : members_) WakeLocked(member);
}

Peer InProcessJob::PeerOf(RankId rank) const { return {.rank = rank, .host = options_.hostname, .pid = getpid()}; }

absl::Status InProcessControlPlane::Broadcast(absl::string_view payload) {
  RONDA_CHECK(rank_ == kCoordinatorRank);
  return job_->Broadcast(payload);
}

}  // namespace ronda
