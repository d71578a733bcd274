// SPDX-License-Identifier: Apache-2.0

#include "runtime/control/messages/message_control_plane.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/logging.h"
#include "runtime/base/status_macros.h"
#include "runtime/control/messages/message_plane.h"

namespace ronda {
namespace {

// The longest time that this rank waits for its neighbours to receive its message about a departure, an exit or a
// failure. A healthy neighbour receives the message immediately.
constexpr absl::Duration kDepartureTime = absl::Seconds(2);
constexpr absl::Duration kFinalMessageTimeout = absl::Seconds(1);

// When a job starts, the other ranks wait this much longer than rank 0, because rank 0 knows best which ranks are
// missing.
constexpr absl::Duration kStartGrace = absl::Seconds(5);

// The longest time that a rank waits for rank 0 to decide which failure was first. If rank 0 cannot answer, a
// connection or a rank is lost, and this rank usually notices that earlier.
constexpr absl::Duration kVerdictTime = absl::Seconds(5);

absl::Status CheckLength(absl::string_view payload) {
  if (payload.size() <= kMaxControlPayload) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a control message of ", payload.size(), " bytes; at most ", kMaxControlPayload, " can be sent"));
}

}  // namespace

MessageControlPlane::MessageControlPlane(std::unique_ptr<NodeLinks> links, MessageControlPlaneOptions options,
                                         std::optional<WakePipe> pipe)
    : options_(std::move(options)),
      tree_{.size = static_cast<int>(options_.peers.size()), .fan_out = options_.fan_out},
      pipe_(std::move(pipe)),
      links_(std::move(links)),
      polling_{.limit = PollLimit(options_.cores)},
      watched_(tree_.Neighbours(options_.rank).size() + 1) {}

MessageControlPlane::~MessageControlPlane() {
  Close();
  {
    MutexLock lock(&mu_);
    is_ending_ = true;
    WakeRelayLocked();
  }
  if (relay_.joinable()) relay_.join();
  MutexLock lock(&mu_);
  const bool is_done = !links_->IsUnderWay() && node().failure().ok();
  if (!is_done && options_.abandon_messages != nullptr) options_.abandon_messages();
}

absl::Status MessageControlPlane::Connect() {
  {
    MutexLock lock(&mu_);
    links_->Open();
  }
  // The thread `relay_` must not start before Open(): it would poll the descriptors of links that are not open.
  relay_ = std::thread([this] { Run(); });
  return options_.absence.ok() ? AwaitStart() : FailForAbsence();
}

// FailAloneLocked is called if a frame that this rank needs may be lost, or if this rank leaves the job while the ranks
// below it still need it.
void MessageControlPlane::FailAloneLocked(const absl::Status& failure) {
  const absl::Status attributed = Attributed(failure);
  node().Propose(attributed);
  node().Decide(attributed);
}

// Any thread that moves messages sends the heartbeats that are due. A separate thread for heartbeats would rarely get
// the lock while long messages are received.
bool MessageControlPlane::MoveLocked() {
  if (is_silent_) return false;
  ++looks_;
  const absl::Duration now = MonotonicTime();
  bool has_moved = false;
  GuardLocked([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    has_moved = links_->Move();
    const bool is_tick_due = now >= next_tick_;
    if (is_tick_due) {
      next_tick_ = now + options_.heartbeat;
      node().Tick(now);
    }
    if (has_moved || is_tick_due) PublishLocked();
  });
  if (has_moved) last_movement_ = now;
  return has_moved;
}

void MessageControlPlane::PublishLocked() {
  if (!is_silent_) links_->Flush();
  if (!node().failure().ok() && !has_failed_.exchange(true)) WakeRelayLocked();
  if (node().TakeNews()) {
    if (polling_.is_on) {
      polling_.has_missed_news = true;
    } else {
      WakeWaitLocked();
    }
  }
  state_changed_.NotifyAll();
  if (watch_.by != Watcher::kNobody && links_->HasUnlistedOutput()) WakeWatcherLocked();
}

template <typename Call>
absl::Status MessageControlPlane::Send(absl::string_view payload, const Call& call) {
  RONDA_RETURN_IF_ERROR(CheckLength(payload));
  {
    MutexLock lock(&mu_);
    last_movement_ = MonotonicTime();
    if (node().failure().ok()) {
      call();
      PublishLocked();
      return absl::OkStatus();
    }
  }
  return FailureAfterSilence();
}

absl::Status MessageControlPlane::SendToCoordinator(absl::string_view payload) {
  return Send(payload, [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { node().Send(std::string(payload)); });
}

absl::Status MessageControlPlane::Broadcast(absl::string_view payload) {
  RONDA_CHECK(options_.rank == kCoordinatorRank);
  return Send(payload, [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { node().Broadcast(payload); });
}

absl::StatusOr<ControlPlane::Inbox> MessageControlPlane::Receive() {
  {
    MutexLock lock(&mu_);
    if (!node().HasMessages()) MoveLocked();
    if (node().failure().ok()) {
      if (node().HasMessages()) polling_.limit.Reset();
      polling_.has_missed_news = false;
      return node().TakeInbox();
    }
  }
  return FailureAfterSilence();
}

void MessageControlPlane::RequestUnlock(uint64_t schedule) {
  MutexLock lock(&mu_);
  node().RequestUnlock(schedule);
  PublishLocked();
}

void MessageControlPlane::Fail(const absl::Status& failure) {
  {
    MutexLock lock(&mu_);
    FailLocked(Attributed(failure));
  }
  FallSilent();
}

void MessageControlPlane::FailLocked(const absl::Status& failure) {
  node().Propose(failure);
  PublishLocked();
  MoveUntilLocked(MonotonicTime() + kVerdictTime,
                  [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return !node().failure().ok(); });
  node().Decide(failure);
  PublishLocked();
}

absl::Status MessageControlPlane::failure() const {
  return has_failed_.load() ? FailureAfterSilence() : absl::OkStatus();
}

absl::Status MessageControlPlane::FailureAfterSilence() const {
  FallSilent();
  MutexLock lock(&mu_);
  return node().failure();
}

void MessageControlPlane::Depart() {
  {
    MutexLock lock(&mu_);
    node().Depart();
    PublishLocked();
  }
  if (options_.on_depart != nullptr) options_.on_depart();
}

void MessageControlPlane::AnnounceExit() {
  if (options_.on_exit != nullptr) options_.on_exit();
  if (!wakes()) return;  // announcing it takes calls of the library, but an MPI may be over by then
  MutexLock lock(&mu_);
  node().AnnounceExit();
  PublishLocked();
  MoveUntilLocked(MonotonicTime() + kDepartureTime,
                  [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return links_->HaveSentAll(); });
}

void MessageControlPlane::Close() {
  // If messages do not wake threads, every library call moves data, and the library must not be called after a failure.
  const absl::Duration time = failure().ok() || wakes() ? kDepartureTime : absl::ZeroDuration();
  MutexLock lock(&mu_);
  GuardLocked([this]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    links_->Close();
    if (!node().has_departed()) FailAloneLocked(left_early_);
    node().Depart();
    PublishLocked();
  });
  MoveUntilLocked(MonotonicTime() + time, [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return links_->HaveClosed(); });
}

// FallSilent is const because failure(), which calls it, is const. Clang's thread-safety analysis is off here, because
// it cannot tell that `self` is this object.
void MessageControlPlane::FallSilent() const ABSL_NO_THREAD_SAFETY_ANALYSIS {
  if (wakes()) return;
  MutexLock lock(&mu_);
  if (is_silent_) return;
  auto& self = const_cast<MessageControlPlane&>(*this);
  self.MoveUntilLocked(MonotonicTime() + kFinalMessageTimeout, [&self]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return self.is_silent_ || self.links_->HaveSentAll();
  });
  self.is_silent_ = true;
}

absl::Status MessageControlPlane::AwaitStart() {
  MutexLock lock(&mu_);
  const auto is_decided = [this]()
                              ABSL_NO_THREAD_SAFETY_ANALYSIS { return node().started() || !node().failure().ok(); };
  // A neighbour opens its link when it has made all of its connections, which may take the whole timeout. If a
  // connection is still missing then, the neighbour fails the job with an error that names the missing rank.
  const absl::Duration start_grace = wakes() ? kStartGrace : absl::ZeroDuration();
  const absl::Duration end = MonotonicTime() + options_.start_timeout + start_grace;
  MoveUntilLocked(end, is_decided);
  if (node().IsAttachedToParent()) MoveUntilLocked(end + kStartGrace, is_decided);
  if (node().started()) return absl::OkStatus();
  node().Decide(node().LateError(options_.start_timeout));
  PublishLocked();
  return node().failure();
}

absl::Status MessageControlPlane::FailForAbsence() {
  MutexLock lock(&mu_);
  // The parent may still be connecting to other ranks, so this rank waits for it. If the parent is one of the absent
  // neighbours, this rank does not wait.
  const bool has_parent =
      options_.rank != kCoordinatorRank &&
      std::find(options_.absent.begin(), options_.absent.end(), tree_.Parent(options_.rank)) == options_.absent.end();
  if (has_parent) {
    MoveUntilLocked(MonotonicTime() + kStartGrace, [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
      return node().IsAttachedToParent() || !node().failure().ok();
    });
  }
  FailLocked(options_.absence);
  return node().failure();
}

absl::StatusOr<std::unique_ptr<ControlPlane>> ConnectMessageControlPlane(MessageControlPlaneOptions options) {
  std::optional<WakePipe> pipe;
  if (options.messages->rest_ends_with_data()) {
    RONDA_ASSIGN_OR_RETURN(WakePipe created, WakePipe::Create());
    pipe.emplace(std::move(created));
  }
  NodeLinks::Options node = {
      .node = {.rank = options.rank,
               .peers = options.peers,
               .tree = {.size = static_cast<int>(options.peers.size()), .fan_out = options.fan_out},
               .heartbeat = options.heartbeat,
               .heartbeat_timeout = options.heartbeat_timeout,
               .flights = options.flights},
      .job_id = options.job_id,
      .absent = options.absent};
  auto links = std::make_unique<NodeLinks>(std::move(node), std::move(options.messages));
  auto plane = std::make_unique<MessageControlPlane>(std::move(links), std::move(options), std::move(pipe));
  RONDA_RETURN_IF_ERROR(plane->Connect());
  return plane;
}

}  // namespace ronda
