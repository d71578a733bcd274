// SPDX-License-Identifier: Apache-2.0

#include "programs/rondarun/supervise/supervisor.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "programs/rondarun/supervise/guard.h"
#include "programs/rondarun/supervise/verdict.h"
#include "runtime/base/peer.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

constexpr Stream kStreams[] = {Stream::kStdout, Stream::kStderr};

// A program may print a line in several pieces. A line that remains unfinished for this long is taken for a question.
constexpr absl::Duration kPromptDelay = absl::Milliseconds(50);

// If this many bytes are waiting to be written, the supervisor does not read the output of the parts. The parts then
// have to wait, so the launcher's memory remains bounded.
constexpr size_t kMaxPending = size_t{256} << 10;

// One read from a part takes at most this many bytes, so that no part delays the others.
constexpr size_t kReadSize = size_t{64} << 10;

// After a search for processes that ended parts have left behind, the supervisor waits this many times the duration of
// the search before it searches again. So if a thousand ranks end one after the other, it does not search /proc a
// thousand times.
constexpr int kRestAfterSearch = 4;

absl::string_view AtOnceHint(int cause) { return cause == SIGINT ? ", at once with another Ctrl+C" : ""; }

}  // namespace

std::string DescribeInterruption(int signo) {
  if (signo == SIGPIPE) return "the standard output has no reader any more";
  return absl::StrCat("received ", SignalName(signo));
}

absl::StatusOr<std::unique_ptr<Supervisor>> Supervisor::Create(Options options, const Surroundings& surroundings) {
  RONDA_ASSIGN_OR_RETURN(std::unique_ptr<Guard> guard, Guard::Start(options.job_id));
  return absl::WrapUnique(new Supervisor(std::move(options), surroundings, std::move(guard)));
}

Supervisor::Supervisor(Options options, const Surroundings& surroundings, std::unique_ptr<Guard> guard)
    : options_(std::move(options)),
      surroundings_(surroundings),
      guard_(std::move(guard)),
      processes_({.file_limit = options_.file_limit, .signals = surroundings_.signals, .guard = guard_.get()}),
      schedule_(options_.shutdown) {}

Supervisor::~Supervisor() { RemoveSharedMemoryLeftovers(options_.job_id); }

void Supervisor::Watch(int fd, std::function<void()> on_ready) {
  watched_ = Watched{.fd = fd, .on_ready = std::move(on_ready)};
}

void Supervisor::Repeat(std::function<absl::Duration()> on_time) {
  repeated_ = Repeated{.on_time = std::move(on_time), .next = now()};
}

void Supervisor::MakeElastic(const MakeMembers& make_members) {
  members_ = make_members({.start = [this](std::unique_ptr<JobPart> part) { return StartMember(std::move(part)); },
                           .reads_terminal = [this](pid_t pid, int signo) { return ReadsTerminal(pid, signo); },
                           .end = [this](int exit_code, const std::string& why) { EndElasticJob(exit_code, why); },
                           .listener = this,
                           .clock = surroundings_.clock});
}

void Supervisor::Run(std::vector<std::unique_ptr<JobPart>> parts) {
  parts_ = std::move(parts);
  start_deadline_ = now() + options_.start_timeout;
  StartParts();
  if (members_ != nullptr && schedule_.phase() == ShutdownSchedule::Phase::kRunning) members_->Begin();
  while (MustGoOn()) {
    if (const absl::Status waited = Step(); !waited.ok()) {
      OnJobFailure(waited.message(), 1);
      break;
    }
  }
  KillLeftBehind();
  EndCompanions();
}

absl::Status Supervisor::StartMember(std::unique_ptr<JobPart> part) {
  parts_.push_back(std::move(part));
  return parts_.back()->Start(processes_, this);
}

void Supervisor::EndElasticJob(int exit_code, const std::string& why) {
  if (exit_code == 0) return;
  surroundings_.report->OnJobFailure(why, exit_code);
  if (!IsRunning() || schedule_.phase() != ShutdownSchedule::Phase::kRunning) return;
  Say(absl::StrCat("the job cannot go on; telling ", NameRunning(), " to end (killed in ",
                   absl::FormatDuration(options_.shutdown.grace), ")"));
  SignalParts(schedule_.OnGiveUp(now()));
}

void Supervisor::StartParts() {
  for (const auto& part : parts_) {
    const absl::Status started = part->Start(processes_, this);
    if (started.ok()) continue;
    if (!part->carries_job()) {
      Say(absl::StrCat(started.message(), "; the job goes on without it"));
      continue;
    }
    OnJobFailure(started.message(), ExitCodeOf(started));
    return;
  }
}

void Supervisor::EndCompanions() {
  for (const auto& part : parts_) {
    if (!part->running()) continue;
    part->Signal(SIGKILL);
    part->Collect();
  }
}

absl::Status Supervisor::Step() {
  ++round_;
  // Any number of members may come and go in an elastic job, so remove the parts that have ended.
  if (members_ != nullptr) std::erase_if(parts_, [](const auto& part) { return !part->running(); });
  PollSet poll;
  poll.Add(surroundings_.signals->fd(), POLLIN, [this] { HandleSignals(); });
  if (watched_.has_value()) poll.Add(watched_->fd, POLLIN, [this] { watched_->on_ready(); });
  for (const auto& part : parts_) {
    if (part->running()) AddPart(part.get(), &poll);
  }
  // The parts are added before the members, so that the ends of processes are handled first. So a member that asked to
  // join and then died does not join.
  if (members_ != nullptr) members_->AddTo(&poll);
  AddQueues(&poll);
  const absl::Time next = repeated_.has_value() ? repeated_->next : absl::InfiniteFuture();
  const absl::Time elastic = members_ != nullptr ? members_->deadline() : absl::InfiniteFuture();
  const absl::Time search = ended_.empty() ? absl::InfiniteFuture() : next_search_;
  RONDA_RETURN_IF_ERROR(
      poll.Wait(std::min({schedule_.deadline(), start_deadline_, next, elastic, prompt_due_, search}) - now()));
  // Before a member is replaced, kill the processes that it has left behind, so that they cannot disturb the new
  // member.
  if (members_ != nullptr || now() >= next_search_) KillLeftBehind();
  ActOnTime();
  WriteQueues();
  return absl::OkStatus();
}

void Supervisor::KillLeftBehind() {
  if (ended_.empty()) return;
  const absl::Time begin = now();
  // KillMarked examines every process on the host, so pass all marks in one call.
  KillMarked(std::exchange(ended_, {}));
  next_search_ = now() + kRestAfterSearch * (now() - begin);
}

void Supervisor::AddPart(JobPart* part, PollSet* poll) {
  for (const Stream stream : kStreams) {
    const int fd = part->process().output(stream);
    if (fd < 0 || MustWait(*part, stream)) continue;
    poll->Add(fd, POLLIN, [part, stream] { part->Read(stream, kReadSize); });
  }
  poll->Add(part->process().pidfd(), POLLIN, [this, part] {
    part->Collect();
    if (part->process().pid() == terminal_.borrower()) terminal_.Reclaim();
    ended_.push_back(part->process().mark());
  });
}

// Returns whether `stream` must not be read now, because too much earlier output is still waiting to be written.
bool Supervisor::MustWait(const JobPart& part, Stream stream) const {
  if (!part.mixes_streams()) return Pending(stream) >= kMaxPending;
  return std::max(Pending(Stream::kStdout), Pending(Stream::kStderr)) >= kMaxPending;
}

void Supervisor::AddQueues(PollSet* poll) {
  std::vector<const OutputQueue*> queues;
  for (const Stream stream : kStreams) queues.push_back(surroundings_.output->queue(stream));
  for (const auto& part : parts_) {
    if (part->running() && part->input() != nullptr) queues.push_back(part->input());
  }
  for (const OutputQueue* queue : queues) {
    // The action is empty, because the loop writes all queues after every wait.
    if (!queue->pending().empty()) poll->Add(queue->fd(), POLLOUT, [] {});
  }
}

void Supervisor::OnRankStart(RankId rank, pid_t pid, const std::string& host) {
  surroundings_.report->OnRankStart(rank, pid, host);
  if (members_ != nullptr) members_->OnStart(rank, pid);
}

void Supervisor::OnOutput(RankId rank, Stream stream, absl::string_view bytes) {
  if (terminal_.borrower() != 0 && rank == reader_) prompt_due_ = now() + kPromptDelay;
  surroundings_.report->OnOutput(rank, stream, bytes);
}

void Supervisor::OnOutputEnd(RankId rank, Stream stream) { surroundings_.report->OnOutputEnd(rank, stream); }

void Supervisor::OnRankEnd(RankEnd end) {
  end.round = round_;
  if (end.last_error.empty()) end.last_error = surroundings_.report->LastErrorOf(end.rank);
  const bool is_here = options_.ranks == Ranks::kAreHere || end.host == HostName();
  if (is_here) end.oom_kills = CountOomKills() - oom_kills_before_;
  const bool failed = end.failed();
  surroundings_.report->OnRankEnd(end);
  if (members_ != nullptr) {
    // Ctrl+C has reached only the rank that has borrowed the terminal, but the user wants to end the whole job.
    const bool by_itself = end.cause == RankEnd::Cause::kItself;
    if (by_itself && end.signal == SIGINT && end.pid == terminal_.borrower()) EndJob(SIGINT, SIGINT);
    return members_->OnEnd(end);
  }
  if (failed && options_.on_failure == OnFailure::kEndJob) schedule_.OnFailure(now());
}

void Supervisor::OnHelperLine(absl::string_view helper, absl::string_view line) {
  surroundings_.report->OnHelperLine(helper, line);
}

void Supervisor::OnJobFailure(absl::string_view what, int exit_code) {
  surroundings_.report->OnJobFailure(what, exit_code);
  SignalParts(schedule_.OnAbandon());
}

void Supervisor::Say(absl::string_view text) { surroundings_.report->Say(text); }

void Supervisor::Explain(absl::string_view text) { surroundings_.report->Explain(text); }

void Supervisor::HandleSignals() {
  while (const std::optional<int> signo = surroundings_.signals->Next()) {
    if (*signo == SIGTSTP) {
      Suspend(SIGTSTP);
    } else if (*signo != SIGCHLD) {
      EndJob(*signo, *signo);
    } else if (members_ != nullptr) {
      members_->OnChildSignal();
    } else {
      LookAtReader();
    }
  }
}

void Supervisor::LookAtReader() {
  const auto reader = std::find_if(parts_.begin(), parts_.end(),
                                   [](const auto& part) { return part->running() && part->may_read_terminal(); });
  if (reader == parts_.end()) return;
  const pid_t pid = (*reader)->process().pid();
  ReadsTerminal(pid, StopSignalOf(pid));
}

bool Supervisor::ReadsTerminal(pid_t pid, int signo) {
  const auto reader = std::find_if(parts_.begin(), parts_.end(), [&](const auto& part) {
    return part->running() && part->may_read_terminal() && part->process().pid() == pid;
  });
  const bool reads = signo == SIGTTIN;
  const bool is_by_key = signo == SIGTSTP && terminal_.borrower() == pid;  // the key has reached the borrower alone
  if (reader == parts_.end() || (!reads && !is_by_key)) return false;
  if (reads && terminal_.IsOurs()) {
    LendTerminal(**reader);
  } else {
    Suspend(signo);  // like any job in the background that reads the terminal
  }
  return true;
}

void Supervisor::LendTerminal(const JobPart& reader) {
  const pid_t group = reader.process().pid();
  terminal_.LendTo(group);
  kill(-group, SIGCONT);
  reader_ = reader.RunningRanks().front();
  prompt_due_ = now();
}

void Supervisor::Suspend(int signo) {
  const bool was_lent = terminal_.borrower() != 0;
  terminal_.Reclaim();
  SetMotion(SIGTSTP);
  WriteQueues();
  StopOwnGroup(signo);
  for (const auto& part : parts_) {
    const bool may_read = was_lent && part->running() && part->may_read_terminal();
    if (may_read && terminal_.IsOurs()) terminal_.LendTo(part->process().pid());
  }
  SetMotion(SIGCONT);
}

void Supervisor::SetMotion(int signo) {
  for (const auto& part : parts_) {
    if (part->running()) part->SetMotion(signo);
  }
}

void Supervisor::Obey(int signo) {
  if (signo == SIGTSTP || signo == SIGCONT) {
    SetMotion(signo);
  } else {
    SignalParts(signo);
  }
}

void Supervisor::CheckStart() {
  if (now() < start_deadline_) return;
  start_deadline_ = absl::InfiniteFuture();
  std::vector<AwaitedRank> awaited;
  for (const auto& part : parts_) {
    const std::vector<AwaitedRank> more = part->running() ? part->AwaitedRanks() : std::vector<AwaitedRank>();
    awaited.insert(awaited.end(), more.begin(), more.end());
  }
  // If the job is already ending, a late start is not the reason.
  if (awaited.empty() || schedule_.phase() != ShutdownSchedule::Phase::kRunning) return;
  surroundings_.report->OnJobFailure(DescribeLateStart(awaited, options_.start_timeout), 1);
  Say(absl::StrCat("not all ranks have started; ending the job (killed in ",
                   absl::FormatDuration(options_.shutdown.grace), ")"));
  SignalParts(schedule_.OnGiveUp(now()));
}

void Supervisor::ActOnTime() {
  CheckStart();
  if (now() >= prompt_due_) {
    prompt_due_ = absl::InfiniteFuture();
    surroundings_.report->OnInputAwaited(reader_);
  }
  if (members_ != nullptr) members_->OnTime();
  if (repeated_.has_value() && now() >= repeated_->next) repeated_->next = now() + repeated_->on_time();
  const std::optional<int> signo = schedule_.Due(now());
  if (!signo.has_value() || !IsRunning()) return;
  const std::string ranks = NameRunning();
  if (*signo == SIGKILL) {
    Say(absl::StrCat(ranks, " did not end within ", absl::FormatDuration(options_.shutdown.grace),
                     "; killing (SIGKILL)"));
  } else {
    Say(absl::StrCat("a rank has failed; telling ", ranks, " to end (", SignalName(*signo), ")"));
  }
  SignalParts(*signo);
}

void Supervisor::EndJob(int cause, int signo) {
  if (schedule_.phase() == ShutdownSchedule::Phase::kRunning) ended_by_ = cause;
  if (members_ != nullptr) members_->Stop(absl::StrCat("the job is ended: rondarun ", DescribeInterruption(cause)));
  const std::optional<int> to_send = schedule_.OnUserSignal(signo, now());
  if (!to_send.has_value() || !IsRunning()) return;
  const std::string ranks = NameRunning();
  if (*to_send == SIGKILL) {
    Say(absl::StrCat("killing ", ranks));
  } else {
    Say(absl::StrCat(DescribeInterruption(cause), "; telling ", ranks, " to end (killed in ",
                     absl::FormatDuration(options_.shutdown.grace), AtOnceHint(cause), ")"));
  }
  SignalParts(*to_send);
}

void Supervisor::SignalParts(int signo) {
  for (const auto& part : parts_) {
    if (part->running()) part->Signal(signo);
  }
}

void Supervisor::WriteQueues() {
  for (const Stream stream : kStreams) WriteQueue(stream);
  for (const auto& part : parts_) {
    // A part that no longer reads its input will soon end, and its exit will show the reason.
    if (part->running() && part->input() != nullptr) (void)part->input()->Write();
  }
}

void Supervisor::WriteQueue(Stream stream) {
  const absl::Status written = surroundings_.output->queue(stream)->Write();
  if (written.ok() || stream == Stream::kStderr) return;
  if (absl::IsUnavailable(written)) {
    EndJob(SIGPIPE, SIGTERM);
  } else {
    has_lost_output_ = true;
    Say(absl::StrCat("cannot write to the standard output: ", written.message()));
  }
}

void Supervisor::Flush() {
  bool enough = false;
  while (!surroundings_.output->empty() && !enough) {
    PollSet poll;
    poll.Add(surroundings_.signals->fd(), POLLIN, [&] {
      while (const std::optional<int> signo = surroundings_.signals->Next()) {
        if (*signo == SIGCHLD) continue;
        if (*signo == SIGTSTP) {
          Suspend(SIGTSTP);
          continue;
        }
        enough = true;
        raise(*signo);  // the signal may also be meant for the job's next attempt
        return;
      }
    });
    AddQueues(&poll);
    enough |= !poll.Wait(absl::InfiniteDuration()).ok();
    WriteQueues();
  }
}

bool Supervisor::IsRunning() const {
  return std::any_of(parts_.begin(), parts_.end(),
                     [](const auto& part) { return part->running() && part->carries_job(); });
}

std::string Supervisor::NameRunning() const {
  std::vector<RankId> ranks;
  for (const auto& part : parts_) {
    const std::vector<RankId> more = part->RunningRanks();
    ranks.insert(ranks.end(), more.begin(), more.end());
  }
  std::sort(ranks.begin(), ranks.end());
  // A helper such as mpirun may hang after all its ranks have ended.
  if (ranks.empty()) return "what is left of the job";
  return members_ == nullptr ? NameRanks(ranks) : absl::StrReplaceAll(NameRanks(ranks), {{"rank", "member"}});
}

}  // namespace ronda
