// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_CONTROL_MESSAGES_MESSAGE_PLANE_H_
#define RONDA_RUNTIME_CONTROL_MESSAGES_MESSAGE_PLANE_H_

#include <poll.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "runtime/base/clock.h"
#include "runtime/base/mutex.h"
#include "runtime/base/out_of_memory.h"
#include "runtime/base/wake_pipe.h"
#include "runtime/control/messages/message_control_plane.h"
#include "runtime/control/messages/node_links.h"
#include "runtime/control/messages/poll_limit.h"
#include "runtime/control/spin_time.h"
#include "runtime/monitor/peer_monitor.h"

namespace ronda {

// The control plane that ConnectMessageControlPlane returns. ConnectMessageControlPlane's comment describes its
// behaviour. message_control_plane.cc implements the start, the end and most functions; message_watch.cc implements the
// threads that look for messages.
//
// One lock guards the node and its links. Only one thread at a time, the watcher, polls the descriptors, and it does
// not hold the lock meanwhile. Other threads wake the watcher through a pipe.
class MessageControlPlane final : public ControlPlane {
 public:
  // If messages wake threads, `pipe` wakes the thread that sleeps in poll().
  MessageControlPlane(std::unique_ptr<NodeLinks> links, MessageControlPlaneOptions options,
                      std::optional<WakePipe> pipe);
  ~MessageControlPlane() override;

  absl::Status Connect();

  absl::Status SendToCoordinator(absl::string_view payload) override;
  absl::Status Broadcast(absl::string_view payload) override;
  absl::StatusOr<Inbox> Receive() override;
  void Wait(absl::Time deadline) override;
  void Wake() override;
  bool StartPolling() override;
  bool KeepPolling() override;
  void StopPolling() override;
  void ExpectPolling() override;
  void RequestUnlock(uint64_t schedule) override;
  void Fail(const absl::Status& failure) override;
  absl::Status failure() const override;
  void Depart() override;
  void AnnounceExit() override;

 private:
  // If messages do not wake threads, the shortest pause between two looks for messages.
  static constexpr absl::Duration kShortestPause = absl::Microseconds(20);

  // The thread that sleeps in poll() on the descriptors.
  enum class Watcher { kNobody, kWait, kRelay, kOther };
  struct Watch {
    Watcher by = Watcher::kNobody;
    bool is_woken = false;
  };

  // The state of the thread that is in Wait.
  struct Waiting {
    bool is_on = false;
    bool is_woken = false;
    bool is_pausing = false;       // it pauses, to leave the messages to a thread that polls
    bool expects_polling = false;  // in the next Wait
    uint64_t number = 0;           // of calls
    SpinTime spin;
  };

  // The state of the thread that has called StartPolling and has not yet called StopPolling.
  struct Polling {
    bool is_on = false;
    bool gave_up = false;          // it has looked too often in vain
    bool has_missed_wake = false;  // since its last look; the thread in Wait does not know
    bool has_missed_news = false;  // likewise
    PollLimit limit;
  };

  // The state of the control plane's own thread.
  struct Relaying {
    uint64_t looks_seen = 0;
    uint64_t waits_seen = 0;
    bool sleeps_long = false;  // it relies on the thread in Wait to look
    bool has_told = false;     // on_failure has been called
    absl::Duration interval = kShortestPause;
  };

  bool wakes() const { return pipe_.has_value(); }
  ControlNode& node() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return links_->node(); }
  absl::Status Attributed(const absl::Status& failure) const {
    return Attribute(failure, options_.peers[options_.rank]);
  }

  // Moves messages, acts on them, and sends the heartbeats that are due. Returns whether a message has moved. Never
  // throws: if memory runs out, the job fails.
  bool MoveLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Sends the frames that are due, and wakes the threads that wait for the node to change. Must be called after each
  // change of the node.
  void PublishLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Runs `call`. If `call` runs out of memory, this rank fails, because a frame that it needs may now be lost.
  template <typename Call>
  void GuardLocked(const Call& call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Runs `call`, which passes `payload` to the node. If the job has failed, returns the failure instead.
  template <typename Call>
  absl::Status Send(absl::string_view payload, const Call& call);
  // Makes `failure` the job's failure, unless rank 0 decides on another failure.
  void FailLocked(const absl::Status& failure) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Like FailLocked, but does not wait for rank 0 to decide, and attributes the failure to this rank.
  void FailAloneLocked(const absl::Status& failure) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void WakeWaitLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void WakeRelayLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void WakeWatcherLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Sleeps on the descriptors until messages can be moved, for at most `longest`, and then moves them.
  // REQUIRES: no other thread sleeps on the descriptors.
  void WatchLocked(Watcher watcher, absl::Duration longest) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Like WatchLocked, but moves no messages. REQUIRES: cannot_poll_ is false.
  void PollLocked(Watcher watcher, absl::Duration longest) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Fails this rank, because its threads can no longer sleep on the descriptors.
  void GiveUpPollingLocked(const absl::Status& failure) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Moves messages until `done` returns true, or until time `end`.
  template <typename Done>
  void MoveUntilLocked(absl::Duration end, const Done& done) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void LetOthersRunLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Wait calls WaitAtDescriptorsLocked if messages wake threads, and WaitAndLookLocked if they do not.
  void WaitAtDescriptorsLocked(absl::Time deadline) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool SpinLocked(absl::Time deadline) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void WaitAndLookLocked(absl::Time deadline) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // The main function of the control plane's own thread.
  void Run();
  void TellFailureLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Looks for messages, unless another thread does. Returns after at most `longest`.
  void RelayLocked(absl::Duration longest) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void RelayByLookingLocked(absl::Duration longest) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  absl::Status AwaitStart();
  absl::Status FailForAbsence();
  // Announces this rank's departure, and ends its links. Returns when every link has ended at both ends or has been
  // given up, or after a few seconds.
  void Close();
  // Must be called when the job has failed. If messages do not wake threads, notifies the neighbours of the failure,
  // and then never calls the library again.
  void FallSilent() const;
  absl::Status FailureAfterSilence() const;

  const MessageControlPlaneOptions options_;  // without the messages
  const ControlTree tree_;
  const std::optional<WakePipe> pipe_;
  const absl::Status out_of_memory_ = absl::ResourceExhaustedError("out of memory in the control plane");
  const absl::Status left_early_ = absl::AbortedError(kLeftEarly);
  // The error if `pipe_` is damaged. The program has then probably closed other descriptors of Ronda, too.
  const absl::Status lost_pipe_ = absl::FailedPreconditionError(
      "the program has closed descriptors that Ronda has opened: let it close only its own");
  std::atomic<bool> has_failed_{false};  // whether the node has a failure; to look without the lock

  mutable Mutex mu_;
  const std::unique_ptr<NodeLinks> links_ ABSL_PT_GUARDED_BY(mu_);
  CondVar woken_changed_;                        // for Wait
  CondVar relay_changed_;                        // for the control plane's thread
  CondVar state_changed_;                        // for threads that wait for an event of the job
  bool is_silent_ ABSL_GUARDED_BY(mu_) = false;  // no call is made to the library any more
  bool is_ending_ ABSL_GUARDED_BY(mu_) = false;
  bool cannot_poll_ ABSL_GUARDED_BY(mu_) = false;  // threads only look from time to time
  uint64_t looks_ ABSL_GUARDED_BY(mu_) = 0;        // calls of MoveLocked
  absl::Duration next_tick_ ABSL_GUARDED_BY(mu_) = MonotonicTime();
  absl::Duration last_movement_ ABSL_GUARDED_BY(mu_) = MonotonicTime();

  Watch watch_ ABSL_GUARDED_BY(mu_);
  Waiting waiting_ ABSL_GUARDED_BY(mu_);
  Polling polling_ ABSL_GUARDED_BY(mu_);
  Relaying relaying_ ABSL_GUARDED_BY(mu_);

  std::vector<pollfd> watched_;  // used by the watcher; has room for all descriptors, so that no memory is needed later

  std::thread relay_;
};

template <typename Call>
void MessageControlPlane::GuardLocked(const Call& call) {
  try {
    return call();
  } catch (const std::bad_alloc&) {
  }
  UntilMemoryIsFound([this]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    FailAloneLocked(out_of_memory_);
    PublishLocked();
  });
}

template <typename Done>
void MessageControlPlane::MoveUntilLocked(absl::Duration end, const Done& done) {
  for (absl::Duration now = MonotonicTime(); !done() && now < end; now = MonotonicTime()) {
    if (!wakes()) {
      if (!MoveLocked()) state_changed_.WaitFor(&mu_, std::min(end - now, kShortestPause));
    } else if (watch_.by == Watcher::kNobody) {
      WatchLocked(Watcher::kOther, end - now);
    } else {
      state_changed_.WaitFor(&mu_, end - now);
    }
  }
}

}  // namespace ronda

#endif  // RONDA_RUNTIME_CONTROL_MESSAGES_MESSAGE_PLANE_H_
