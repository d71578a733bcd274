#include "runtime/launch/supervisor.h"

#include <sys/ioctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/status_macros.h"
#include "runtime/launch/shared_memory_leftovers.h"

namespace ronda {
namespace {

constexpr Stream kStreams[] = {Stream::kStdout, Stream::kStderr};

// While so much waits to be written, ranks are not read: they wait in turn, and memory stays bounded.
constexpr size_t kMaxPending = size_t{256} << 10;

// Read at once from a rank, so that none can keep the others waiting.
constexpr size_t kReadSize = size_t{64} << 10;

// "rank 2", "ranks 0, 1 and 3", "ranks 0, 1, 2, 3 and 12 more"
std::string NameRanks(const std::vector<RankId>& ranks) {
  constexpr size_t kNamed = 8;
  if (ranks.size() == 1) return absl::StrCat("rank ", ranks.front());
  const size_t named = ranks.size() > kNamed ? kNamed : ranks.size() - 1;
  const std::string first = absl::StrJoin(ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(named), ", ");
  if (ranks.size() > kNamed) return absl::StrCat("ranks ", first, " and ", ranks.size() - named, " more");
  return absl::StrCat("ranks ", first, " and ", ranks.back());
}

// The launcher holds five descriptors a rank. Returns the limit before, which is the ranks' own.
rlimit RaiseFileLimit() {
  rlimit before = {};
  getrlimit(RLIMIT_NOFILE, &before);
  const rlimit raised = {.rlim_cur = before.rlim_max, .rlim_max = before.rlim_max};
  setrlimit(RLIMIT_NOFILE, &raised);
  return before;
}

Console::Options ConsoleOptions(const Supervisor::Options& options, const StandardOutput& output) {
  return {.rank_count = static_cast<int>(options.plan.ranks.size()),
          .line_prefix = options.line_prefix,
          .media = {output.medium(Stream::kStdout), output.medium(Stream::kStderr)}};
}

// As shells have it.
int ExitCodeOf(const absl::Status& start_error) {
  if (absl::IsNotFound(start_error)) return 127;
  return absl::IsPermissionDenied(start_error) ? 126 : 1;
}

std::string WhatHappened(int cause) {
  if (cause == SIGPIPE) return "nobody reads the standard output any more";
  return absl::StrCat("received ", SignalName(cause));
}

absl::string_view AtOnceHint(int cause) { return cause == SIGINT ? ", at once with another Ctrl+C" : ""; }

}  // namespace

absl::StatusOr<std::unique_ptr<Supervisor>> Supervisor::Create(Options options, StandardOutput* output,
                                                               const Clock* clock) {
  const rlimit file_limit = RaiseFileLimit();
  OutputFiles files;
  if (!options.output_directory.empty()) {
    RONDA_ASSIGN_OR_RETURN(files,
                           OutputFiles::Create(options.output_directory, static_cast<int>(options.plan.ranks.size())));
  }
  RONDA_ASSIGN_OR_RETURN(std::unique_ptr<Guard> guard, Guard::Start(options.job_id));
  RONDA_ASSIGN_OR_RETURN(SignalInbox signals, SignalInbox::Create());
  return absl::WrapUnique(new Supervisor(
      std::move(options), output, clock,
      {.file_limit = file_limit, .files = std::move(files), .guard = std::move(guard), .signals = std::move(signals)}));
}

Supervisor::Supervisor(Options options, StandardOutput* output, const Clock* clock, Resources resources)
    : options_(std::move(options)),
      output_(output),
      clock_(clock),
      resources_(std::move(resources)),
      console_(ConsoleOptions(options_, *output), output->queue(Stream::kStdout), output->queue(Stream::kStderr),
               clock),
      schedule_(options_.shutdown) {}

Supervisor::~Supervisor() { RemoveSharedMemoryLeftovers(options_.job_id); }

int Supervisor::Run() {
  const absl::Status started = StartRanks();
  if (!started.ok()) SignalRanks(schedule_.OnAbandon());
  while (!Running().empty()) Step();
  const int exit_code = Conclude(started);
  Flush();
  return exit_code;
}

absl::Status Supervisor::StartRanks() {
  const size_t count = options_.plan.ranks.size();
  Explain(absl::StrCat("job ", options_.job_id, ": ", count, count == 1 ? " rank" : " ranks", " of ",
                       absl::StrJoin(options_.command, " ")));
  if (options_.plan.sets_omp_threads) Explain("OMP_NUM_THREADS is not set: the ranks get OMP_NUM_THREADS=1");
  for (const RankPlan& plan : options_.plan.ranks) RONDA_RETURN_IF_ERROR(StartRank(plan));
  return absl::OkStatus();
}

absl::Status Supervisor::StartRank(const RankPlan& plan) {
  const Topology& place = plan.topology;
  const bool reads_input = place.rank == kCoordinatorRank;
  RONDA_ASSIGN_OR_RETURN(RankProcess process, RankProcess::Start({.command = options_.command,
                                                                  .environment = plan.environment,
                                                                  .input = reads_input ? RankProcess::Input::kInherited
                                                                                       : RankProcess::Input::kNone,
                                                                  .file_limit = resources_.file_limit},
                                                                 resources_.signals, *resources_.guard));
  Explain(absl::StrCat("rank ", place.rank, " is pid ", process.pid(), ", local rank ", place.local_rank, " of ",
                       place.local_size, " on host ", options_.hostname));
  ranks_.push_back({.process = std::move(process), .started = clock_->Now()});
  return absl::OkStatus();
}

void Supervisor::Step() {
  ++round_;
  PollSet poll;
  poll.Add(resources_.signals.fd(), POLLIN, [this] { HandleSignals(); });
  for (const RankId id : Running()) AddRank(id, &poll);
  AddQueues(&poll);
  poll.Wait(schedule_.deadline() - clock_->Now());
  ActOnTime();
  WriteQueues();
}

void Supervisor::AddRank(RankId id, PollSet* poll) {
  const RankProcess& process = rank(id).process;
  for (const Stream stream : kStreams) {
    if (process.output(stream) < 0 || output_->queue(stream)->pending().size() >= kMaxPending) continue;
    poll->Add(process.output(stream), POLLIN, [this, id, stream] { ReadOutput(id, stream, kReadSize); });
  }
  poll->Add(process.pidfd(), POLLIN, [this, id] { CollectRank(id); });
}

void Supervisor::AddQueues(PollSet* poll) {
  for (const Stream stream : kStreams) {
    const OutputQueue& queue = *output_->queue(stream);
    // Only to wake up: the queues are written after every wait.
    if (!queue.pending().empty()) poll->Add(queue.fd(), POLLOUT, [] {});
  }
}

size_t Supervisor::ReadOutput(RankId id, Stream stream, size_t at_most) {
  std::array<char, kReadSize> buffer;
  const ssize_t count = read(rank(id).process.output(stream), buffer.data(), std::min(at_most, buffer.size()));
  if (count == 0) CloseOutput(id, stream);
  if (count <= 0) return 0;
  const absl::string_view bytes(buffer.data(), static_cast<size_t>(count));
  const absl::Status saved = resources_.files.Write(id, stream, bytes);
  if (!saved.ok()) console_.Say(saved.message());
  console_.Feed(id, stream, bytes);
  return bytes.size();
}

void Supervisor::DrainOutput(RankId id, Stream stream) {
  const int fd = rank(id).process.output(stream);
  int available = 0;
  if (fd < 0 || ioctl(fd, FIONREAD, &available) != 0) return;
  // Not to the end of the pipe: a process that has left the rank's group may hold it open for ever.
  size_t left = static_cast<size_t>(available);
  while (left > 0) {
    const size_t count = ReadOutput(id, stream, left);
    if (count == 0) return;
    left -= count;
  }
}

void Supervisor::CloseOutput(RankId id, Stream stream) {
  rank(id).process.CloseOutput(stream);
  console_.Finish(id, stream);
}

void Supervisor::CollectRank(RankId id) {
  const RankProcess::End process_end = rank(id).process.Collect(*resources_.guard);
  rank(id).running = false;
  for (const Stream stream : kStreams) {
    DrainOutput(id, stream);
    CloseOutput(id, stream);
  }
  ends_.push_back({.rank = id,
                   .pid = rank(id).process.pid(),
                   .exit_code = process_end.exit_code,
                   .signal = process_end.signal,
                   .round = round_,
                   .cause = rank(id).cause,
                   .last_error = std::string(console_.last_error(id))});
  const absl::Time now = clock_->Now();
  const absl::Duration lived = absl::Trunc(now - rank(id).started, absl::Milliseconds(1));
  Explain(absl::StrCat("rank ", id, " (pid ", rank(id).process.pid(), ") ", DescribeEnd(ends_.back()), " after ",
                       absl::ToDoubleSeconds(lived), " s"));
  if (ends_.back().failed()) schedule_.OnFailure(now);
}

void Supervisor::HandleSignals() {
  while (const std::optional<int> signo = resources_.signals.Next()) EndJob(*signo, *signo);
}

void Supervisor::ActOnTime() {
  const std::optional<int> signo = schedule_.Due(clock_->Now());
  const std::vector<RankId> running = Running();
  if (!signo.has_value() || running.empty()) return;
  if (*signo == SIGKILL) {
    console_.Say(absl::StrCat(NameRanks(running), " did not end within ", absl::FormatDuration(options_.shutdown.grace),
                              "; killing (SIGKILL)"));
  } else {
    console_.Say(absl::StrCat("a rank has failed; telling ", NameRanks(running), " to end (", SignalName(*signo), ")"));
  }
  SignalRanks(*signo);
}

void Supervisor::EndJob(int cause, int signo) {
  if (schedule_.phase() == ShutdownSchedule::Phase::kRunning) ended_by_ = cause;
  const std::optional<int> to_send = schedule_.OnUserSignal(signo, clock_->Now());
  const std::vector<RankId> running = Running();
  if (!to_send.has_value() || running.empty()) return;
  if (*to_send == SIGKILL) {
    console_.Say(absl::StrCat("killing ", NameRanks(running)));
  } else {
    console_.Say(absl::StrCat(WhatHappened(cause), "; telling ", NameRanks(running), " to end (killed in ",
                              absl::FormatDuration(options_.shutdown.grace), AtOnceHint(cause), ")"));
  }
  SignalRanks(*to_send);
}

void Supervisor::SignalRanks(int signo) {
  for (const RankId id : Running()) {
    rank(id).process.Signal(signo);
    rank(id).cause = RankEnd::Cause::kLauncher;
  }
}

void Supervisor::WriteQueues() {
  for (const Stream stream : kStreams) WriteQueue(stream);
}

void Supervisor::WriteQueue(Stream stream) {
  const absl::Status written = output_->queue(stream)->Write();
  if (written.ok() || stream == Stream::kStderr) return;
  if (absl::IsUnavailable(written)) {
    EndJob(SIGPIPE, SIGTERM);
  } else {
    console_.Say(absl::StrCat("cannot write to the standard output: ", written.message()));
  }
}

int Supervisor::Conclude(const absl::Status& started) {
  if (!started.ok()) {
    console_.Say(started.message());
    return ExitCodeOf(started);
  }
  if (const RankEnd* const failure = FirstFailure(ends_)) {
    console_.Say(DescribeFailure(*failure, options_.hostname));
    return ronda::ExitCodeOf(*failure);
  }
  if (ended_by_.has_value()) {
    console_.Say(absl::StrCat("the job was ended: ", WhatHappened(*ended_by_)));
    return 128 + *ended_by_;
  }
  return 0;
}

void Supervisor::Flush() {
  bool enough = false;
  while (!output_->empty() && !enough) {
    PollSet poll;
    poll.Add(resources_.signals.fd(), POLLIN, [&] { enough = true; });
    AddQueues(&poll);
    poll.Wait(absl::InfiniteDuration());
    WriteQueues();
  }
}

void Supervisor::Explain(absl::string_view text) {
  if (options_.verbosity == Verbosity::kVerbose) console_.Say(text);
}

std::vector<RankId> Supervisor::Running() const {
  std::vector<RankId> running;
  for (size_t id = 0; id < ranks_.size(); ++id) {
    if (ranks_[id].running) running.push_back(static_cast<RankId>(id));
  }
  return running;
}

}  // namespace ronda
