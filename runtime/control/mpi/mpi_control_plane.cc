// SPDX-License-Identifier: Apache-2.0

#include "runtime/control/mpi/mpi_control_plane.h"

#include <sched.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "runtime/base/clock.h"
#include "runtime/base/logging.h"
#include "runtime/base/mutex.h"
#include "runtime/base/status_macros.h"
#include "runtime/control/mpi/message_streams.h"
#include "runtime/control/tree/control_core.h"

namespace ronda {
namespace {

// How long the neighbours have to receive the departure, or a failure. Healthy ones receive it within a few polls.
constexpr absl::Duration kDepartureTime = absl::Seconds(2);
constexpr absl::Duration kFinalMessageTimeout = absl::Seconds(1);

// About the time of an answer: a rank that has just sent something polls this long without a pause.
constexpr absl::Duration kLookOn = absl::Microseconds(100);
constexpr int kSleepShare = 8;
constexpr absl::Duration kShortestSleep = absl::Microseconds(20);
constexpr absl::Duration kLongestSleep = absl::Milliseconds(1);
// After this time Wait leaves polling to the thread that does nothing else.
constexpr absl::Duration kAttentive = absl::Milliseconds(20);

// Polls for messages while no other thread does. See the class comment of the control plane.
class Lookout {
 public:
  // `streams` outlives it.
  explicit Lookout(MessageStreams& streams) : streams_(streams), thread_([this] { Run(); }) {}
  ~Lookout() {
    {
      MutexLock lock(&mu_);
      stopped_ = true;
      stopped_changed_.NotifyAll();
    }
    thread_.join();
  }

 private:
  void Run() {
    absl::Duration interval = kShortestSleep;
    uint64_t polls = 0;
    for (;;) {
      const bool others_look = streams_.polls() != polls;
      if (!others_look && streams_.Poll() == MessageStreams::Movement::kSome) {
        interval = kShortestSleep;
      } else {
        interval = others_look ? kLongestSleep : std::min(2 * interval, kLongestSleep);
      }
      polls = streams_.polls();
      MutexLock lock(&mu_);
      if (!stopped_) stopped_changed_.WaitFor(&mu_, interval);
      if (stopped_) return;
    }
  }

  MessageStreams& streams_;
  Mutex mu_;
  CondVar stopped_changed_;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

class MpiControlPlane final : public ControlPlane {
 public:
  MpiControlPlane(ControlCore::Options core, MpiControlPlaneOptions options)
      : rank_(options.rank),
        tree_(core.job.tree),
        abandon_messages_(std::move(options.abandon_messages)),
        streams_(std::make_unique<MessageStreams>(std::move(options.messages))) {
    if (options.on_failure != nullptr) {
      core.on_failure = [this, tell = std::move(options.on_failure)](const absl::Status& failure) {
        FallSilent();
        tell(failure);
      };
    }
    core_ = std::make_shared<ControlCore>(std::move(core));
    // The first thread ends by itself if the system has no second thread to give.
    lookout_.emplace(*streams_);
    pulse_ = std::thread([core = core_] { core->Run(); });
  }

  ~MpiControlPlane() override {
    Close(failure().ok() ? kDepartureTime : absl::ZeroDuration());
    lookout_.reset();
    streams_->Stop();
    const bool is_done = streams_->Cut() == MessageStreams::Rest::kNothing;
    if ((!is_done || !core_->failure().ok()) && abandon_messages_ != nullptr) abandon_messages_();
    core_->AwaitStreams();
    core_->Stop();
    pulse_.join();
  }

  absl::Status Connect() {
    RONDA_RETURN_IF_ERROR(streams_->Accept(tree_.Children(rank_), core_));
    if (rank_ != kCoordinatorRank) RONDA_RETURN_IF_ERROR(core_->Attach(streams_->StreamTo(tree_.Parent(rank_))));
    return core_->AwaitStart();
  }

  absl::Status SendToCoordinator(absl::string_view payload) override {
    return Flush(core_->SendToCoordinator(payload));
  }
  absl::Status Broadcast(absl::string_view payload) override {
    RONDA_CHECK(rank_ == kCoordinatorRank);
    return Flush(core_->Broadcast(payload));
  }
  absl::StatusOr<Inbox> Receive() override {
    streams_->Poll();
    absl::StatusOr<Inbox> inbox = core_->Receive();
    if (!inbox.ok()) FallSilent();
    return inbox;
  }
  void Wait(absl::Time deadline) override;
  void Wake() override { core_->Wake(); }
  void RequestUnlock(uint64_t schedule) override {
    core_->RequestUnlock(schedule);
    streams_->Poll();
  }
  void Fail(const absl::Status& failure) override {
    core_->Fail(failure);
    FallSilent();
  }
  absl::Status failure() const override {
    absl::Status failure = core_->failure();
    if (!failure.ok()) FallSilent();
    return failure;
  }
  void Depart() override {
    core_->Depart();
    streams_->Poll();
  }

 private:
  // Most of these messages have probably been sent by now: then more can be sent without waiting for the next poll.
  absl::Status Flush(const absl::Status& sent) const {
    streams_->RecordMovement();
    streams_->Poll();
    if (!sent.ok()) FallSilent();
    return sent;
  }

  // Announces the departure, and stays until the neighbours have received it and announced theirs.
  void Close(absl::Duration timeout) {
    const absl::Duration end = MonotonicTime() + timeout;
    core_->Close(timeout);
    while (!streams_->AreClosed() && MonotonicTime() < end) {
      if (streams_->Poll() == MessageStreams::Movement::kNone) sched_yield();
    }
  }

  // The job has failed: notifies the neighbours, and makes no calls to the library afterwards.
  void FallSilent() const {
    const absl::Duration end = MonotonicTime() + kFinalMessageTimeout;
    while (!streams_->IsStopped() && !core_->HasSpoken() && MonotonicTime() < end) {
      if (streams_->Poll() == MessageStreams::Movement::kNone) sched_yield();
    }
    streams_->Stop();
  }

  const RankId rank_;
  const ControlTree tree_;
  const std::function<void()> abandon_messages_;
  const std::unique_ptr<MessageStreams> streams_;
  std::shared_ptr<ControlCore> core_;
  std::thread pulse_;
  std::optional<Lookout> lookout_;
};

void MpiControlPlane::Wait(absl::Time deadline) {
  for (;;) {
    streams_->Poll();
    const absl::Duration quiet = MonotonicTime() - streams_->last_movement();
    absl::Time until = deadline;
    if (quiet < kLookOn) {
      until = absl::InfinitePast();
    } else if (quiet < kAttentive) {
      until = std::min(deadline, SteadyNow() + std::clamp(quiet / kSleepShare, kShortestSleep, kLongestSleep));
    }
    if (core_->Wait(until) == ControlCore::Waited::kWoken || SteadyNow() >= deadline) return;
    if (quiet < kLookOn) sched_yield();
  }
}

ControlCore::Options CoreOptions(const MpiControlPlaneOptions& options) {
  const ControlTree tree = {.size = static_cast<int>(options.peers.size()), .fan_out = options.fan_out};
  return {.job = {.rank = options.rank, .peers = options.peers, .tree = tree, .job_id = options.job_id, .secret = ""},
          .node = {.rank = options.rank,
                   .peers = options.peers,
                   .tree = tree,
                   .heartbeat = options.heartbeat,
                   .heartbeat_timeout = options.heartbeat_timeout,
                   .flights = options.flights},
          .start_timeout = options.start_timeout,
          .parent_address = "its place in MPI",
          .on_failure = nullptr};
}

}  // namespace

absl::StatusOr<std::unique_ptr<ControlPlane>> ConnectMpiControlPlane(MpiControlPlaneOptions options) {
  ControlCore::Options core = CoreOptions(options);
  auto plane = std::make_unique<MpiControlPlane>(std::move(core), std::move(options));
  RONDA_RETURN_IF_ERROR(plane->Connect());
  return plane;
}

}  // namespace ronda
