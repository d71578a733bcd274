// SPDX-License-Identifier: Apache-2.0

#include "runtime/collectives/messages/message_link.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "runtime/base/clock.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

// A transfer that both ranks start at about the same time completes within this many polls.
constexpr int kLooks = 200;
// The number of polls between checks of the clock and of the job's failure.
constexpr int kLooksPerRound = 32;
// How long a wait polls before it sleeps between polls: longer than the transfer of a chunk on one host. Each sleep is
// a small fraction of the time waited so far. If another thread wants the core, polling costs more than sleeping. So
// does yielding, because the yielding thread gets the core back only a scheduler tick later.
constexpr absl::Duration kLookOn = absl::Microseconds(200);
constexpr int kSleepShare = 8;
// How long a wait yields the core before it sleeps, if arriving data can wake the rank.
constexpr absl::Duration kYieldFor = absl::Milliseconds(2);
constexpr absl::Duration kLongestSleep = absl::Milliseconds(1);
// How long a rank whose connection breaks waits for the job's failure: a peer's connections break before the report of
// its death arrives.
constexpr absl::Duration kFailureSpreads = absl::Seconds(2);

// The extra time per step, because ranks do not start waiting at the same time.
constexpr absl::Duration kTimeoutPerStep = absl::Milliseconds(200);

int CountRanksOnHost(const std::vector<Peer>& peers, const Peer& self) {
  const auto shares_host = [&](const Peer& peer) { return peer.host == self.host; };
  return static_cast<int>(std::count_if(peers.begin(), peers.end(), shares_host));
}

bool HasCoreForEachRank(const MessageLink::Options& options) {
  const Peer& self = options.peers[static_cast<size_t>(options.messages->rank())];
  const int ranks = options.ranks_on_host ? *options.ranks_on_host : CountRanksOnHost(options.peers, self);
  return ranks <= sysconf(_SC_NPROCESSORS_ONLN);
}

}  // namespace

MessageLink::MessageLink(Options options) : options_(std::move(options)), keeps_core_(HasCoreForEachRank(options_)) {}

RunningCollective MessageLink::Running(const CallInfo& info, size_t bytes_total, int steps) const {
  WaitLimits limits = info.limits;
  limits.deadline += steps * kTimeoutPerStep;
  return {.self = options_.peers[static_cast<size_t>(rank())].rank,
          .op = info.op,
          .label = info.label,
          .limits = limits,
          .bytes_total = bytes_total};
}

absl::Status MessageLink::Send(const void* data, size_t bytes, RankId to, TransferSet& set) {
  if (bytes == 0) return absl::OkStatus();
  const absl::StatusOr<PointToPoint::Request> request = options_.messages->Send(data, bytes, to);
  if (!request.ok()) return Explain(request.status(), to);
  set.transfers_.push_back({.request = *request, .peer = to});
  return absl::OkStatus();
}

absl::Status MessageLink::Receive(void* data, size_t bytes, RankId from, TransferSet& set) {
  if (bytes == 0) return absl::OkStatus();
  const absl::StatusOr<PointToPoint::Request> request = options_.messages->Receive(data, bytes, from);
  if (!request.ok()) return Explain(request.status(), from);
  set.transfers_.push_back({.request = *request, .peer = from});
  return absl::OkStatus();
}

absl::Status MessageLink::Wait(TransferSet& set, const RunningCollective& running) {
  for (Transfer& transfer : set.transfers_) RONDA_RETURN_IF_ERROR(WaitFor(transfer, running));
  set.transfers_.clear();
  return absl::OkStatus();
}

absl::StatusOr<bool> MessageLink::IsComplete(Transfer& transfer) {
  absl::StatusOr<bool> is_complete = options_.messages->Test({&transfer.request, 1});
  if (!is_complete.ok()) return Explain(is_complete.status(), transfer.peer);
  return is_complete;
}

absl::Status MessageLink::WaitFor(Transfer& transfer, const RunningCollective& running) {
  const int looks = is_woken_by_data() ? 1 : kLooks;
  for (int i = 0; i < looks; ++i) {
    RONDA_ASSIGN_OR_RETURN(const bool is_complete, IsComplete(transfer));
    if (is_complete) return absl::OkStatus();
  }
  if (is_woken_by_data()) {
    RONDA_ASSIGN_OR_RETURN(const bool is_complete, YieldFor(transfer));
    if (is_complete) return absl::OkStatus();
  }
  return WaitLonger(transfer, running);
}

absl::StatusOr<bool> MessageLink::YieldFor(Transfer& transfer) {
  if (!yields_.MayBegin()) return false;
  const absl::Duration start = MonotonicTime();
  for (absl::Duration before = start; before - start < kYieldFor; before = MonotonicTime()) {
    sched_yield();
    const absl::Duration yielded = MonotonicTime() - before;
    RONDA_ASSIGN_OR_RETURN(const bool is_complete, IsComplete(transfer));
    if (!yields_.MayGoOn(yielded) || is_complete) return is_complete;
  }
  return false;
}

absl::Status MessageLink::WaitLonger(Transfer& transfer, const RunningCollective& running) {
  const absl::Duration start = MonotonicTime();
  WaitWatch watch(running, *options_.flights);
  for (;;) {
    Sleep(MonotonicTime() - start);
    for (int i = 0; i < kLooksPerRound; ++i) {
      RONDA_ASSIGN_OR_RETURN(const bool is_complete, IsComplete(transfer));
      if (is_complete) return absl::OkStatus();
      if (is_woken_by_data() || MonotonicTime() - start > kLookOn) break;
      if (!keeps_core_) sched_yield();
    }
    RONDA_RETURN_IF_ERROR(failure());
    RONDA_RETURN_IF_ERROR(watch.Check(options_.peers[static_cast<size_t>(transfer.peer)]));
    if (watch.has_warned() && running.late_call != nullptr) running.late_call->Make();
  }
}

void MessageLink::Sleep(absl::Duration waited) {
  if (is_woken_by_data()) return options_.messages->Rest(kLongestSleep);
  if (waited > kLookOn) options_.messages->Rest(std::min(waited / kSleepShare, kLongestSleep));
}

absl::Status MessageLink::Explain(const absl::Status& error, RankId peer) const {
  for (const absl::Duration start = MonotonicTime(); MonotonicTime() - start < kFailureSpreads;) {
    RONDA_RETURN_IF_ERROR(failure());
    absl::SleepFor(kLongestSleep);
  }
  return absl::Status(error.code(), absl::StrCat("messages with ", ToString(options_.peers[static_cast<size_t>(peer)]),
                                                 ": ", error.message()));
}

}  // namespace ronda
