// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_CONTROL_TREE_CONTROL_CORE_H_
#define RONDA_RUNTIME_CONTROL_TREE_CONTROL_CORE_H_

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "runtime/base/mutex.h"
#include "runtime/control/control_plane.h"
#include "runtime/control/tree/control_handshake.h"
#include "runtime/control/tree/control_node.h"
#include "runtime/control/tree/frame_stream.h"
#include "runtime/monitor/peer_monitor.h"

namespace ronda {

// The node of the tree, under one lock, for the threads of a rank and for its streams. It authenticates callers, which
// then become neighbours, moves bytes between streams and node, and wakes waiting threads.
//
// Thread-safe. Shared with the streams, which may outlive the control plane by a moment.
class ControlCore final : public std::enable_shared_from_this<ControlCore> {
 public:
  struct Options {
    ControlJob job;
    ControlNode::Options node;
    absl::Duration start_timeout;
    std::string parent_address;  // for messages
    // Called once, from Run, with the first failure after the start; may be nullptr.
    std::function<void(const absl::Status&)> on_failure;
  };

  explicit ControlCore(Options options);

  // Opens the stream to this rank's parent.
  // Errors: INTERNAL if the system gives no random bytes.
  absl::Status Attach(ControlStream* stream);

  // Blocks until all ranks of the job have connected.
  // Errors: DEADLINE_EXCEEDED that names the ranks that have not; the parent's reason to refuse this rank; the job's
  // failure.
  absl::Status AwaitStart();

  // Sends signs of life, checks those of the neighbours and calls on_failure, until Stop.
  void Run();
  void Stop();

  // Fails the job if this rank has not departed, and announces its departure. Waits until the neighbours have received
  // that, for `timeout` at most, and not for neighbours that cannot receive it. After this call no stream is accepted.
  void Close(absl::Duration timeout);
  // Waits until all streams have closed. REQUIRES: Close, and they have been cut off.
  void AwaitStreams();

  // Whether the job has failed and all neighbours that can be notified of it have been notified.
  bool HasSpoken() const;

  // This rank has no memory for something that it had to do: the job fails. Throws nothing.
  void RunOutOfMemory();

  // ControlPlane's operations.
  absl::Status SendToCoordinator(absl::string_view payload);
  absl::Status Broadcast(absl::string_view payload);
  absl::StatusOr<ControlPlane::Inbox> Receive();
  enum class Waited { kWoken, kUntilDeadline };
  Waited Wait(absl::Time deadline);
  void Wake();
  void RequestUnlock(uint64_t schedule);
  void Fail(const absl::Status& failure);
  absl::Status failure() const;
  void Depart();
  // Waits until the announcement has been sent to the neighbours that can receive it, for `timeout` at most.
  void AnnounceExit(absl::Duration timeout);

  // Streams make these calls, from their own threads: one call at a time for reads, and one for writes. The calls throw
  // nothing: see RunOutOfMemory.
  // A caller has connected: this object opens or ends `stream`, now or later.
  void OnAccepted(ControlStream* stream);
  void OnPiece(ControlStream* stream, absl::string_view piece);
  // Nothing more will come.
  void OnReadsEnd(ControlStream* stream);
  // The piece of the last Write has been sent, or never will be; the stream accepts the next.
  void OnWritten(ControlStream* stream);
  // The last call; the stream is about to delete itself. At the child's end `status` is the parent's reason for the
  // end; at the parent's end it is OK.
  void OnClosed(ControlStream* stream, const absl::Status& status);

 private:
  enum class End { kParents, kChilds };
  struct StreamState {
    End end;  // which end this is
    ControlHandshake handshake;
    FrameAssembler assembler;
    FrameQueue greetings = {};             // frames of the handshake; sent before the node's frames
    std::optional<RankId> neighbour = {};  // the rank at the other end, once it has proved that
    absl::Duration begun = {};
    bool writing = false;          // a piece is under way
    bool ending = false;           // the stream ends once nothing is left to write
    bool ended = false;            // End has been called
    absl::Status end_status = {};  // the reason that is passed to End
  };
  using Streams = std::map<ControlStream*, StreamState>;
  // A call to a stream that is made without the lock.
  struct Action {
    ControlStream* stream;
    std::string piece;  // to write; empty: end
    absl::Status end_status;
  };

  // Runs `call`, which may run out of memory.
  void Guard(absl::FunctionRef<void()> call);
  // As Fail, but does not wait for rank 0's decision on which failure was first.
  void FailAloneLocked(const absl::Status& failure) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Accepts the stream. Errors: why it does not.
  absl::Status Accept(ControlStream* stream);
  void ReceivePiece(ControlStream* stream, absl::string_view piece);
  absl::StatusOr<StreamState> NewStream(End end) const;
  // Why no further stream is accepted.
  absl::Status CheckRoomLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void RefuseLocked(StreamState& state, const absl::Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ReceiveFrameLocked(StreamState& state, std::string frame) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status GreetLocked(StreamState& state, absl::string_view frame) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status WelcomeLocked(StreamState& state, const HelloFrame& hello) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void BecomeNeighbourLocked(StreamState& state, RankId neighbour) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Translates the end of the stream to the parent, for a rank that has not become its child.
  absl::Status RefusalOf(const absl::Status& end_status) const;
  bool IsToEndLocked(const StreamState& state) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool IsWorthWaitingForLocked(const StreamState& state) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Whether everything has been sent to the neighbours that can receive it.
  bool HasSaidAllLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::vector<Action> ActionsLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void WakeLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Why the job has not started in time.
  absl::Status LateErrorLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status MissingErrorLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Tick(absl::Duration now);

  // Wakes the threads that wait for changes, and makes the streams send the frames that are due. Call after each
  // possible change of the node or of a stream.
  void Publish() ABSL_LOCKS_EXCLUDED(mu_);

  const Options options_;
  const absl::Status out_of_memory_ = absl::ResourceExhaustedError("out of memory in the control plane");
  const absl::Status left_early_ = absl::AbortedError(kLeftEarly);
  std::atomic<bool> has_failed_{false};  // whether the node has a failure; to look without the lock

  mutable Mutex mu_;
  CondVar woken_changed_;  // for Wait
  CondVar pulse_changed_;  // Run
  CondVar state_changed_;  // for the start, for rank 0's answer, and for the end of streams
  ControlNode node_ ABSL_GUARDED_BY(mu_);
  Streams streams_ ABSL_GUARDED_BY(mu_);
  absl::Status refused_by_parent_ ABSL_GUARDED_BY(mu_);     // the stream to the parent ended before it was a neighbour
  std::vector<std::string> refusals_ ABSL_GUARDED_BY(mu_);  // of unauthenticated callers, not logged yet
  std::string last_refusal_ ABSL_GUARDED_BY(mu_);           // the last one that was logged; empty: none
  bool woken_ ABSL_GUARDED_BY(mu_) = false;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  bool closing_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_CONTROL_TREE_CONTROL_CORE_H_
