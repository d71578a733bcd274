// SPDX-License-Identifier: Apache-2.0

#include "tests/simulation/virtual_supervisor.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include "runtime/base/clock.h"
#include "runtime/base/logging.h"
#include "tests/simulation/virtual_processes.h"

namespace ronda::simulation {
namespace {

// The longest time between two rounds of the event loop.
constexpr absl::Duration kPeriod = absl::Seconds(1);
constexpr size_t kReadSize = size_t{64} << 10;

}  // namespace

void VirtualSupervisor::MakeElastic(const MakeMembers& make_members) {
  members_ = make_members({.start = [this](std::unique_ptr<JobPart> part) { return StartMember(std::move(part)); },
                           .reads_terminal = [](pid_t, int) { return false; },
                           .end = [this](int exit_code, const std::string& why) { End(exit_code, why); },
                           .listener = this,
                           .clock = Clock::Real()});
}

void VirtualSupervisor::Watch(int fd, std::function<void()> on_ready) {
  watched_ = Watched{.fd = fd, .on_ready = std::move(on_ready)};
}

absl::Status VirtualSupervisor::StartMember(std::unique_ptr<JobPart> part) {
  parts_.push_back(std::move(part));
  return parts_.back()->Start(VirtualProcesses::Get(), this);
}

void VirtualSupervisor::End(int exit_code, const std::string& why) {
  if (exit_code == 0) return;
  report_.OnJobFailure(why, exit_code);
  if (IsRunning() && schedule_.phase() == ShutdownSchedule::Phase::kRunning) {
    SignalParts(schedule_.OnGiveUp(SteadyNow()));
  }
}

void VirtualSupervisor::Run(const std::function<void()>& on_round) {
  members_->Begin();
  while (IsRunning() || !members_->is_over()) {
    on_round();
    Step();
  }
  for (const auto& part : parts_) {
    if (!part->running()) continue;
    part->Signal(SIGKILL);
    part->Collect();
  }
}

void VirtualSupervisor::Step() {
  std::erase_if(parts_, [](const auto& part) { return !part->running(); });
  PollSet poll;
  if (watched_.has_value()) poll.Add(watched_->fd, POLLIN, [this] { watched_->on_ready(); });
  for (const auto& part : parts_) AddPart(part.get(), &poll);
  members_->AddTo(&poll);
  if (output_ != nullptr && !output_->pending().empty()) poll.Add(output_->fd(), POLLOUT, [] {});
  const absl::Time next = std::min(members_->deadline(), schedule_.deadline());
  RONDA_CHECK(poll.Wait(std::min(next - SteadyNow(), kPeriod)).ok());
  if (VirtualProcesses::Get().TakeChildSignal()) members_->OnChildSignal();
  members_->OnTime();
  if (const std::optional<int> signo = schedule_.Due(SteadyNow()); signo.has_value()) SignalParts(*signo);
  WriteQueues();
}

void VirtualSupervisor::AddPart(JobPart* part, PollSet* poll) {
  for (const Stream stream : {Stream::kStdout, Stream::kStderr}) {
    const int fd = part->process().output(stream);
    if (fd >= 0) poll->Add(fd, POLLIN, [part, stream] { part->Read(stream, kReadSize); });
  }
  if (part->input() != nullptr && !part->input()->pending().empty()) poll->Add(part->input()->fd(), POLLOUT, [] {});
  poll->Add(part->process().pidfd(), POLLIN, [part] { part->Collect(); });
}

void VirtualSupervisor::WriteQueues() {
  // Ignores that the reader of `output` has gone, because that is reported separately.
  if (output_ != nullptr) output_->Write().IgnoreError();
  for (const auto& part : parts_) {
    if (part->running() && part->input() != nullptr) part->input()->Write().IgnoreError();
  }
}

void VirtualSupervisor::SignalParts(int signo) {
  for (const auto& part : parts_) {
    if (part->running()) part->Signal(signo);
  }
}

bool VirtualSupervisor::IsRunning() const {
  return std::any_of(parts_.begin(), parts_.end(),
                     [](const auto& part) { return part->running() && part->carries_job(); });
}

void VirtualSupervisor::OnRankStart(RankId rank, pid_t pid, const std::string& host) {
  report_.OnRankStart(rank, pid, host);
  members_->OnStart(rank, pid);
}

void VirtualSupervisor::OnOutput(RankId rank, Stream stream, absl::string_view bytes) {
  report_.OnOutput(rank, stream, bytes);
}

void VirtualSupervisor::OnOutputEnd(RankId rank, Stream stream) { report_.OnOutputEnd(rank, stream); }

void VirtualSupervisor::OnRankEnd(RankEnd end) {
  report_.OnRankEnd(end);
  members_->OnEnd(end);
}

void VirtualSupervisor::OnHelperLine(absl::string_view helper, absl::string_view line) {
  report_.OnHelperLine(helper, line);
}

void VirtualSupervisor::OnJobFailure(absl::string_view what, int exit_code) {
  report_.OnJobFailure(what, exit_code);
  SignalParts(schedule_.OnAbandon());
}

}  // namespace ronda::simulation
