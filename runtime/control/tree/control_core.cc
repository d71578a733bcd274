// SPDX-License-Identifier: Apache-2.0

#include "runtime/control/tree/control_core.h"

#include <algorithm>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/clock.h"
#include "runtime/base/logging.h"
#include "runtime/base/out_of_memory.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

// The longest frame of an unauthenticated caller, and how long it has to prove that it belongs to the job.
constexpr size_t kMaxGreetingBytes = 4096;
constexpr absl::Duration kGreetingTime = absl::Seconds(10);

// Streams in addition to those of the children: of unauthenticated callers, and streams that are being closed.
constexpr size_t kSpareStreams = 64;

// The other ranks wait this much longer than rank 0 for the start, because rank 0 knows best which ranks are missing.
constexpr absl::Duration kStartGrace = absl::Seconds(5);

// The longest wait of a rank for rank 0's decision on which failure was first. If the answer cannot come, that is also
// a failure, and it is usually noticed earlier.
constexpr absl::Duration kVerdictTime = absl::Seconds(5);

constexpr size_t kNamedRanks = 8;

absl::Status CheckLength(absl::string_view payload) {
  if (payload.size() <= kMaxControlPayload) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a control message of ", payload.size(), " bytes; at most ", kMaxControlPayload, " can be sent"));
}

}  // namespace

ControlCore::ControlCore(Options options) : options_(std::move(options)), node_(options_.node) {}

absl::StatusOr<ControlCore::StreamState> ControlCore::NewStream(End end) const {
  RONDA_ASSIGN_OR_RETURN(ControlHandshake handshake, ControlHandshake::Create(&options_.job));
  StreamState state{.end = end,
                    .handshake = std::move(handshake),
                    .assembler = FrameAssembler(kMaxGreetingBytes),
                    .begun = MonotonicTime()};
  if (end == End::kParents) {
    state.greetings.Push(std::make_shared<const std::string>(Encode(state.handshake.Challenge())));
  }
  return state;
}

void ControlCore::Guard(absl::FunctionRef<void()> call) {
  try {
    call();
  } catch (const std::bad_alloc&) {
    RunOutOfMemory();
  }
}

void ControlCore::RunOutOfMemory() {
  UntilMemoryIsFound([this] {
    {
      MutexLock lock(&mu_);
      FailAloneLocked(out_of_memory_);
    }
    Publish();
  });
}

// For two cases: a frame may be lost that this rank cannot go on without, or this rank is about to leave the ranks
// below it alone.
void ControlCore::FailAloneLocked(const absl::Status& failure) {
  const absl::Status attributed = Attribute(failure, options_.job.peers[options_.job.rank]);
  node_.Propose(attributed);
  node_.Decide(attributed);
}

absl::Status ControlCore::Attach(ControlStream* stream) {
  absl::StatusOr<StreamState> state = NewStream(End::kChilds);
  if (!state.ok()) {
    stream->End(state.status());
    return state.status();
  }
  {
    MutexLock lock(&mu_);
    streams_.emplace(stream, *std::move(state));
  }
  stream->Open(shared_from_this());
  return absl::OkStatus();
}

absl::Status ControlCore::CheckRoomLocked() const {
  if (closing_) return absl::UnavailableError("this rank has left");
  if (streams_.size() < options_.job.tree.fan_out + kSpareStreams) return absl::OkStatus();
  return absl::ResourceExhaustedError("this rank takes no more streams");
}

absl::Status ControlCore::Accept(ControlStream* stream) {
  RONDA_ASSIGN_OR_RETURN(StreamState state, NewStream(End::kParents));
  MutexLock lock(&mu_);
  RONDA_RETURN_IF_ERROR(CheckRoomLocked());
  streams_.emplace(stream, std::move(state));
  return absl::OkStatus();
}

void ControlCore::OnAccepted(ControlStream* stream) {
  absl::Status accepted = out_of_memory_;
  Guard([&] { accepted = Accept(stream); });
  Guard([&] {
    if (!accepted.ok()) return stream->End(accepted);
    stream->Open(shared_from_this());
    Publish();
  });
}

void ControlCore::OnPiece(ControlStream* stream, absl::string_view piece) {
  Guard([&] { ReceivePiece(stream, piece); });
}

void ControlCore::ReceivePiece(ControlStream* stream, absl::string_view piece) {
  bool is_new_child = false;
  {
    MutexLock lock(&mu_);
    StreamState& state = streams_.at(stream);
    const bool was_neighbour = state.neighbour.has_value();
    if (was_neighbour && !node_.IsTrusted(*state.neighbour)) return;
    state.assembler.Append(piece);
    std::string frame;
    absl::StatusOr<bool> more = state.assembler.Next(&frame);
    for (; more.ok() && *more && !state.ending; more = state.assembler.Next(&frame)) {
      ReceiveFrameLocked(state, std::move(frame));
    }
    if (!more.ok()) RefuseLocked(state, more.status());
    is_new_child = state.end == End::kParents && !was_neighbour && state.neighbour.has_value();
  }
  if (is_new_child) stream->Authenticated();
  Publish();
}

void ControlCore::ReceiveFrameLocked(StreamState& state, std::string frame) {
  if (state.neighbour.has_value()) return node_.Receive(*state.neighbour, std::move(frame), MonotonicTime());
  if (const absl::Status greeted = GreetLocked(state, frame); !greeted.ok()) RefuseLocked(state, greeted);
}

void ControlCore::RefuseLocked(StreamState& state, const absl::Status& why) {
  if (state.neighbour.has_value()) return node_.Distrust(*state.neighbour, why);
  state.ending = true;
  state.end_status = why;
  if (state.end == End::kChilds) {
    refused_by_parent_ = why;
  } else {
    refusals_.push_back(absl::StrCat("refused: ", why.message()));
  }
}

absl::Status ControlCore::GreetLocked(StreamState& state, absl::string_view frame) {
  RONDA_ASSIGN_OR_RETURN(const ControlFrame greeting, DecodeControlFrame(frame, options_.job.tree.size));
  const bool is_child = state.end == End::kChilds;
  if (const auto* const hello = std::get_if<HelloFrame>(&greeting); hello != nullptr && !is_child) {
    return WelcomeLocked(state, *hello);
  }
  if (const auto* const challenge = std::get_if<ChallengeFrame>(&greeting); challenge != nullptr && is_child) {
    RONDA_ASSIGN_OR_RETURN(HelloFrame hello, state.handshake.Answer(*challenge));
    state.greetings.Push(std::make_shared<const std::string>(Encode(hello)));
    return absl::OkStatus();
  }
  if (const auto* const welcome = std::get_if<WelcomeFrame>(&greeting); welcome != nullptr && is_child) {
    RONDA_RETURN_IF_ERROR(state.handshake.CheckWelcome(*welcome));
    BecomeNeighbourLocked(state, options_.job.tree.Parent(options_.job.rank));
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      "control: an unauthenticated caller has begun with something else than a handshake");
}

absl::Status ControlCore::WelcomeLocked(StreamState& state, const HelloFrame& hello) {
  RONDA_ASSIGN_OR_RETURN(WelcomeFrame welcome, state.handshake.Welcome(hello));
  if (node_.IsAttached(hello.rank)) {
    return absl::AlreadyExistsError(
        absl::StrCat(ToString(options_.job.peers[hello.rank]), " has connected already, and so has another process"));
  }
  state.greetings.Push(std::make_shared<const std::string>(Encode(welcome)));
  BecomeNeighbourLocked(state, hello.rank);
  return absl::OkStatus();
}

void ControlCore::BecomeNeighbourLocked(StreamState& state, RankId neighbour) {
  state.assembler.set_max_frame_bytes(kMaxControlFrame);
  node_.Attach(neighbour, MonotonicTime());
  state.neighbour = neighbour;  // the node knows it by now: without memory the code does not get here
}

void ControlCore::OnReadsEnd(ControlStream* stream) {
  Guard([&] {
    {
      MutexLock lock(&mu_);
      StreamState& state = streams_.at(stream);
      state.ending = true;
      if (state.neighbour.has_value()) node_.Lose(*state.neighbour);
    }
    Publish();
  });
}

void ControlCore::OnWritten(ControlStream* stream) {
  {
    MutexLock lock(&mu_);
    streams_.at(stream).writing = false;
  }
  Guard([&] { Publish(); });
}

absl::Status ControlCore::RefusalOf(const absl::Status& end_status) const {
  if (!end_status.ok() && !absl::IsUnavailable(end_status)) return end_status;
  const Peer& parent = options_.job.peers[options_.job.tree.Parent(options_.job.rank)];
  return absl::UnavailableError(absl::StrCat(ToString(parent), " at ", options_.parent_address,
                                             " went away before all ranks had connected (", end_status.message(), ")"));
}

// The stream is removed in any case, because the end of the control plane waits for that.
void ControlCore::OnClosed(ControlStream* stream, const absl::Status& status) {
  Guard([&] {
    MutexLock lock(&mu_);
    const StreamState& state = streams_.at(stream);
    const bool is_refused = state.end == End::kChilds && !state.neighbour.has_value() && refused_by_parent_.ok();
    if (is_refused) refused_by_parent_ = RefusalOf(status);
  });
  {
    MutexLock lock(&mu_);
    streams_.erase(stream);
  }
  Guard([&] { Publish(); });
}

// The child ends a stream first: when this rank leaves, or when its parent has announced its departure.
bool ControlCore::IsToEndLocked(const StreamState& state) const {
  if (state.ending || state.end == End::kParents) return state.ending;
  return closing_ || (state.neighbour.has_value() && node_.HasDeparted(*state.neighbour));
}

std::vector<ControlCore::Action> ControlCore::ActionsLocked() {
  std::vector<Action> actions;
  actions.reserve(streams_.size());  // before pieces are taken: without memory they would be lost
  for (auto& [stream, state] : streams_) {
    if (state.writing || state.ended) continue;
    std::string piece = state.greetings.PopPiece();
    if (piece.empty() && state.neighbour.has_value()) piece = node_.PopPiece(*state.neighbour);
    if (piece.empty()) {
      if (!IsToEndLocked(state)) continue;
      state.ended = true;
    } else {
      state.writing = true;
    }
    actions.push_back({.stream = stream, .piece = std::move(piece), .end_status = state.end_status});
  }
  return actions;
}

void ControlCore::WakeLocked() {
  woken_ = true;
  woken_changed_.NotifyAll();
}

void ControlCore::Publish() {
  std::vector<Action> actions;
  std::vector<std::string> refusals;
  {
    MutexLock lock(&mu_);
    refusals.swap(refusals_);
    if (!refusals.empty()) last_refusal_ = refusals.back();
    if (!node_.failure().ok() && !has_failed_.exchange(true)) pulse_changed_.NotifyAll();
    if (node_.TakeNews()) WakeLocked();
    state_changed_.NotifyAll();
    actions = ActionsLocked();
  }
  for (const std::string& refusal : refusals) Log(LogLevel::kWarning, options_.job.rank, refusal);
  // Each of these streams stays alive: it closes only after End, and no other thread calls End while the stream is
  // marked as writing.
  for (Action& action : actions) {
    if (action.piece.empty()) {
      action.stream->End(action.end_status);
    } else {
      action.stream->Write(std::move(action.piece));
    }
  }
}

absl::Status ControlCore::LateErrorLocked() const {
  if (options_.job.rank == kCoordinatorRank) return MissingErrorLocked();
  const std::string time = absl::FormatDuration(options_.start_timeout);
  const std::string self = ToString(options_.job.peers[options_.job.rank]);
  const RankId parent = options_.job.tree.Parent(options_.job.rank);
  if (node_.IsAttached(parent)) {
    return absl::DeadlineExceededError(
        absl::StrCat(self, " did not hear from rank 0 within ", time, " that all ranks have connected"));
  }
  return absl::DeadlineExceededError(absl::StrCat(self, " found no ", ToString(options_.job.peers[parent]), " at ",
                                                  options_.parent_address, " within ", time,
                                                  ": is a firewall in between, or another network to be used?"));
}

absl::Status ControlCore::MissingErrorLocked() const {
  const std::vector<RankId> missing = node_.Missing();
  std::vector<std::string> names;
  for (const RankId rank : missing) {
    if (names.size() < kNamedRanks) names.push_back(ToString(options_.job.peers[rank]));
  }
  if (missing.size() > names.size()) names.push_back(absl::StrCat(missing.size() - names.size(), " more"));
  std::string text = absl::StrCat("no control connection within ", absl::FormatDuration(options_.start_timeout),
                                  " from ", absl::StrJoin(names, ", "));
  if (!last_refusal_.empty()) absl::StrAppend(&text, "; ", last_refusal_);
  return absl::DeadlineExceededError(text);
}

absl::Status ControlCore::AwaitStart() {
  const bool is_root = options_.job.rank == kCoordinatorRank;
  const absl::Duration begun = MonotonicTime();
  absl::Status failure;
  {
    MutexLock lock(&mu_);
    for (;;) {
      if (node_.started()) return absl::OkStatus();
      if (!node_.failure().ok()) return node_.failure();
      failure = refused_by_parent_;
      if (!failure.ok()) break;
      const bool has_parent = !is_root && node_.IsAttached(options_.job.tree.Parent(options_.job.rank));
      const absl::Duration timeout = options_.start_timeout + (has_parent ? kStartGrace : absl::ZeroDuration());
      const absl::Duration left = begun + timeout - MonotonicTime();
      if (left <= absl::ZeroDuration()) {
        failure = LateErrorLocked();
        break;
      }
      state_changed_.WaitFor(&mu_, left);
    }
    node_.Decide(failure);
  }
  Publish();
  return failure;
}

void ControlCore::Tick(absl::Duration now) {
  {
    MutexLock lock(&mu_);
    node_.Tick(now);
    for (auto& [stream, state] : streams_) {
      const bool is_late = now - state.begun > kGreetingTime;
      if (state.neighbour.has_value() || state.ending || state.end == End::kChilds || !is_late) continue;
      RefuseLocked(state, absl::DeadlineExceededError("control: an unauthenticated caller has not identified itself"));
    }
  }
  Publish();
}

void ControlCore::Run() {
  bool has_called = false;
  absl::Duration next_tick = MonotonicTime();
  for (;;) {
    absl::Status to_call;
    {
      MutexLock lock(&mu_);
      const auto is_to_call = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
        return !has_called && node_.started() && !node_.failure().ok() && options_.on_failure != nullptr;
      };
      while (!stopped_ && !is_to_call() && MonotonicTime() < next_tick) {
        pulse_changed_.WaitFor(&mu_, next_tick - MonotonicTime());
      }
      if (stopped_) return;
      if (is_to_call()) to_call = node_.failure();
    }
    if (const absl::Duration now = MonotonicTime(); now >= next_tick) {
      Guard([&] { Tick(now); });
      next_tick = now + options_.node.heartbeat;
    }
    if (to_call.ok()) continue;
    has_called = true;
    options_.on_failure(to_call);
  }
}

void ControlCore::Stop() {
  MutexLock lock(&mu_);
  stopped_ = true;
  pulse_changed_.NotifyAll();
}

bool ControlCore::IsWorthWaitingForLocked(const StreamState& state) const {
  return state.neighbour.has_value() && node_.IsTrusted(*state.neighbour);
}

void ControlCore::Close(absl::Duration timeout) {
  Guard([&] {
    {
      MutexLock lock(&mu_);
      closing_ = true;
      if (!node_.has_departed()) FailAloneLocked(left_early_);
      node_.Depart();
    }
    Publish();
  });
  const absl::Duration end = MonotonicTime() + timeout;
  MutexLock lock(&mu_);
  const auto is_worth_waiting = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return std::any_of(streams_.begin(), streams_.end(), [&](const auto& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      return IsWorthWaitingForLocked(entry.second);
    });
  };
  while (is_worth_waiting() && MonotonicTime() < end) state_changed_.WaitFor(&mu_, end - MonotonicTime());
}

void ControlCore::AwaitStreams() {
  MutexLock lock(&mu_);
  while (!streams_.empty()) state_changed_.Wait(&mu_);
}

bool ControlCore::HasSpoken() const {
  if (!has_failed_.load()) return false;
  MutexLock lock(&mu_);
  return HasSaidAllLocked();
}

bool ControlCore::HasSaidAllLocked() const {
  return std::none_of(streams_.begin(), streams_.end(), [&](const auto& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const StreamState& state = entry.second;
    return IsWorthWaitingForLocked(state) && (state.writing || node_.HasToSay(*state.neighbour));
  });
}

absl::Status ControlCore::SendToCoordinator(absl::string_view payload) {
  RONDA_RETURN_IF_ERROR(CheckLength(payload));
  {
    MutexLock lock(&mu_);
    RONDA_RETURN_IF_ERROR(node_.failure());
    node_.Send(std::string(payload));
  }
  Publish();
  return absl::OkStatus();
}

absl::Status ControlCore::Broadcast(absl::string_view payload) {
  RONDA_RETURN_IF_ERROR(CheckLength(payload));
  {
    MutexLock lock(&mu_);
    RONDA_RETURN_IF_ERROR(node_.failure());
    node_.Broadcast(payload);
  }
  Publish();
  return absl::OkStatus();
}

absl::StatusOr<ControlPlane::Inbox> ControlCore::Receive() {
  MutexLock lock(&mu_);
  RONDA_RETURN_IF_ERROR(node_.failure());
  return node_.TakeInbox();
}

ControlCore::Waited ControlCore::Wait(absl::Time deadline) {
  MutexLock lock(&mu_);
  while (!woken_) {
    const absl::Duration left = deadline - SteadyNow();
    if (left <= absl::ZeroDuration()) break;
    woken_changed_.WaitFor(&mu_, left);
  }
  return std::exchange(woken_, false) ? Waited::kWoken : Waited::kUntilDeadline;
}

void ControlCore::Wake() {
  MutexLock lock(&mu_);
  WakeLocked();
}

void ControlCore::RequestUnlock(uint64_t schedule) {
  {
    MutexLock lock(&mu_);
    node_.RequestUnlock(schedule);
  }
  Publish();
}

void ControlCore::Fail(const absl::Status& failure) {
  const absl::Status attributed = Attribute(failure, options_.job.peers[options_.job.rank]);
  {
    MutexLock lock(&mu_);
    node_.Propose(attributed);
  }
  Publish();
  const absl::Duration end = MonotonicTime() + kVerdictTime;
  {
    MutexLock lock(&mu_);
    while (node_.failure().ok() && MonotonicTime() < end) state_changed_.WaitFor(&mu_, end - MonotonicTime());
    node_.Decide(attributed);
  }
  Publish();
}

absl::Status ControlCore::failure() const {
  if (!has_failed_.load()) return absl::OkStatus();
  MutexLock lock(&mu_);
  return node_.failure();
}

void ControlCore::Depart() {
  {
    MutexLock lock(&mu_);
    node_.Depart();
  }
  Publish();
}

void ControlCore::AnnounceExit(absl::Duration timeout) {
  {
    MutexLock lock(&mu_);
    node_.AnnounceExit();
  }
  Publish();
  const absl::Duration end = MonotonicTime() + timeout;
  MutexLock lock(&mu_);
  while (!HasSaidAllLocked() && MonotonicTime() < end) state_changed_.WaitFor(&mu_, end - MonotonicTime());
}

}  // namespace ronda
