// SPDX-License-Identifier: Apache-2.0

// The part of the C ABI for decisions between two steps. The ranks agree on whether to stop, and on whether to change
// the membership of their elastic job. After such a change, they choose the state with which they continue.
#pragma GCC visibility push(default)
#include "client/ronda.h"
#pragma GCC visibility pop

#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "client/c_api_support.h"
#include "client/elastic.h"
#include "client/stop.h"
#include "runtime/base/environment.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

using Request = StopAgreement::Request;

// Submits an operation for a caller that has released its session, if the job is still running.
absl::StatusOr<std::shared_ptr<Handle>> SubmitIfRunning(const Submission& submission) {
  const std::shared_ptr<Session> session = CurrentSession();
  if (session == nullptr) return absl::CancelledError(NotInitialized().text);
  return session->runtime().Submit(submission);
}

// Asks the question that all ranks ask in every step, and returns the ranks' common answer. `request` is this rank's
// own answer.
absl::StatusOr<Request> Ask(std::shared_ptr<Session> session,
                            std::shared_ptr<StopAgreement> (Session::*agreement)() const, Request request) {
  RONDA_ASSIGN_OR_RETURN(const uint64_t joins, session->CountJoins());
  const std::shared_ptr<StopAgreement> question = ((*session).*agreement)();
  // Without this reset(), Ask() would hold the session during Call(), and the session could not end.
  session.reset();
  return question->Call({.request = request, .joins = joins}, SubmitIfRunning);
}

Outcome ShouldStop(int* stop) {
  std::shared_ptr<Session> session = CurrentSession();
  if (session == nullptr) return NotInitialized();
  if (stop == nullptr) return NullArgument("ronda_should_stop", "stop");
  StopSignal::Arm();
  const absl::StatusOr<Request> answer =
      Ask(std::move(session), &Session::stop_agreement, StopSignal::received() ? Request::kStop : Request::kNone);
  if (!answer.ok()) return Failure(answer.status(), Answer::kSubmission);
  *stop = *answer == Request::kStop ? 1 : 0;
  if (*stop != 0) StopSignal::SetTold();
  return {};
}

Outcome NotInThreads(absl::string_view function) {
  return {RONDA_ERROR_INVALID_ARGUMENT,
          absl::StrCat(function,
                       ": this thread acts for a rank of ronda_run_threads(), and such a job is not elastic: "
                       "its ranks live and die together")};
}

Outcome Poll(ronda_elastic_change* change) {
  if (ronda_current() != 0) return NotInThreads("ronda_elastic_poll");
  std::shared_ptr<Session> session = CurrentSession();
  if (session == nullptr) return NotInitialized();
  if (change == nullptr) return NullArgument("ronda_elastic_poll", "change");
  StopSignal::Arm();
  ElasticMember& member = globals().member;
  const absl::StatusOr<bool> is_member = member.IsMember(ProcessEnvironment());
  if (!is_member.ok()) return Failure(is_member.status(), Answer::kStartup);
  using LauncherRequest = MemberChannel::Request;
  // Reads the signal before Look(), because a launcher that ends the job first notifies the member over the channel,
  // and then sends the signal.
  const bool has_signal = StopSignal::received();
  const absl::StatusOr<LauncherRequest> launcher_request = *is_member ? member.Look() : LauncherRequest::kNone;
  if (!launcher_request.ok()) return Failure(launcher_request.status(), Answer::kStartup);
  const bool is_asked = has_signal || *launcher_request != LauncherRequest::kNone;
  const absl::StatusOr<Request> answer =
      Ask(std::move(session), &Session::change_agreement, is_asked ? Request::kStop : Request::kNone);
  if (!answer.ok()) return Failure(answer.status(), Answer::kSubmission);
  if (*answer == Request::kNone) {
    *change = RONDA_ELASTIC_GO_ON;
    return {};
  }
  const bool leaves = !*is_member || *launcher_request == LauncherRequest::kEnd || has_signal;
  *change = leaves ? RONDA_ELASTIC_LEAVE : RONDA_ELASTIC_REFORM;
  if (leaves) StopSignal::SetTold();
  return leaves && *is_member ? Failure(member.Leave(), Answer::kStartup) : Outcome();
}

Outcome Sync(int64_t snapshot_step, ronda_elastic_source* source) {
  if (ronda_current() != 0) return NotInThreads("ronda_elastic_sync");
  std::shared_ptr<Session> session = CurrentSession();
  if (session == nullptr) return NotInitialized();
  if (source == nullptr) return NullArgument("ronda_elastic_sync", "source");
  StopSignal::Arm();  // a rank that synchronizes will call ronda_elastic_poll()
  StepMarks& marks = globals().marks;
  const RankId rank = session->topology().rank;
  const int size = session->topology().size;
  absl::StatusOr<StateFacts> facts = FactsOf(marks, snapshot_step, rank);
  if (!facts.ok()) return Failure(facts.status(), Answer::kSubmission);
  const Submission submission{.request = {.name = "ronda/elastic_sync",
                                          .op = OpType::kAllreduce,
                                          .dtype = DType::kInt64,
                                          .shape = {static_cast<int64_t>(facts->size())},
                                          .reduction = Reduction::kMax},
                              .input = facts->data(),
                              .output = facts->data()};
  const absl::StatusOr<std::shared_ptr<Handle>> handle = session->runtime().Submit(submission);
  if (!handle.ok()) return Failure(handle.status(), Answer::kSubmission);
  session.reset();
  if (const absl::Status status = (*handle)->Wait(); !status.ok()) return Failure(status, Answer::kCompletion);
  const absl::StatusOr<StateSource> decided = DecideSource(*facts, size);
  if (!decided.ok()) return Failure(decided.status(), Answer::kStartup);
  // If no rank has a state yet, rank 0's initial state becomes the first state.
  if (decided->rank == rank && !marks.has_state()) marks.Begin();
  const bool is_behind = decided->is_snapshot || marks.is_inconsistent() || marks.steps() != decided->step;
  marks.BringTo(is_behind ? std::optional(decided->step) : std::nullopt);
  const ronda_elastic_source known = {.struct_size = sizeof(ronda_elastic_source),
                                      .step = decided->step,
                                      .rank = decided->rank,
                                      .is_snapshot = decided->is_snapshot ? 1 : 0,
                                      .is_behind = is_behind ? 1 : 0,
                                      .any_behind = decided->any_behind ? 1 : 0};
  return WriteSized(known, source, "ronda_elastic_source");
}

}  // namespace
}  // namespace ronda

ronda_status ronda_should_stop(int* stop) {
  return ronda::Call([&] { return ronda::ShouldStop(stop); });
}

void ronda_elastic_begin_update(void) { ronda::globals().marks.BeginUpdate(); }
void ronda_elastic_end_update(void) { ronda::globals().marks.EndUpdate(); }

ronda_status ronda_elastic_sync(int64_t snapshot_step, ronda_elastic_source* source) {
  return ronda::Call([&] { return ronda::Sync(snapshot_step, source); });
}

ronda_status ronda_elastic_poll(ronda_elastic_change* change) {
  return ronda::Call([&] { return ronda::Poll(change); });
}
