// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_PROGRAMS_RONDARUN_SUPERVISE_SUPERVISOR_H_
#define RONDA_PROGRAMS_RONDARUN_SUPERVISE_SUPERVISOR_H_

#include <sys/resource.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "programs/options/launch_options.h"
#include "programs/rondarun/output/output_sinks.h"
#include "programs/rondarun/supervise/child_process.h"
#include "programs/rondarun/supervise/guard.h"
#include "programs/rondarun/supervise/job_part.h"
#include "programs/rondarun/supervise/members.h"
#include "programs/rondarun/supervise/poll_set.h"
#include "programs/rondarun/supervise/shutdown_schedule.h"
#include "programs/rondarun/supervise/terminal.h"
#include "runtime/base/clock.h"
#include "runtime/base/types.h"

namespace ronda {

// Runs the processes of a job. Starts the parts of the job, forwards their output and signals, and ends all parts when
// one of them fails.
//
// Runs a single-threaded loop around poll(). ShutdownSchedule decides which signals are sent, and the JobListener
// decides what the user sees. No process that the Supervisor starts outlives it, even if the Supervisor's own process
// is killed (Guard).
//
// Thread-compatible. A Supervisor can run only one job. The process of the Supervisor must be single-threaded, and the
// descriptors 0, 1 and 2 must be open.
class Supervisor final : private JobListener {
 public:
  // What happens when a rank fails. kEndJob: the supervisor ends the other ranks. kGoOn: the owner decides.
  enum class OnFailure { kEndJob, kGoOn };
  // Whether ranks may be on other hosts. The ranks of an agent are always on its own host, even if the launcher knows
  // this host by another name.
  enum class Ranks { kMayBeElsewhere, kAreHere };

  struct Options {
    std::string job_id;  // its leftovers in shared memory are removed; empty: unknown
    ShutdownSchedule::Options shutdown;
    OnFailure on_failure = OnFailure::kEndJob;
    Ranks ranks = Ranks::kMayBeElsewhere;
    absl::Duration start_timeout = absl::InfiniteDuration();  // the job ends if a rank has not started by then
    rlimit file_limit = {};                                   // of open descriptors, for the parts
  };

  // Objects that the Supervisor uses but does not own. They must outlive the Supervisor.
  struct Surroundings {
    JobListener* report = nullptr;
    StandardOutput* output = nullptr;
    SignalInbox* signals = nullptr;
    const Clock* clock = nullptr;
  };

  // Errors: system errors, if the guard cannot be started.
  static absl::StatusOr<std::unique_ptr<Supervisor>> Create(Options options, const Surroundings& surroundings);

  // Removes the shared memory that the job has left behind.
  ~Supervisor() override;

  // Makes Run() call `on_ready` whenever `fd` is readable. Only one descriptor can be watched at a time.
  void Watch(int fd, std::function<void()> on_ready);
  void StopWatching() { watched_.reset(); }

  // Makes Run() call `on_time` at the start, and then repeatedly: each call returns the time until the next one. Only
  // one function can be repeated at a time.
  void Repeat(std::function<absl::Duration()> on_time);

  // Makes Run() also supervise the members of an elastic job. `surroundings.signals` must include SIGCHLD.
  using MakeMembers = std::function<std::unique_ptr<SupervisedMembers>(MemberSupervision supervision)>;
  void MakeElastic(const MakeMembers& make_members);

  // Starts `parts`, and runs until all parts whose carries_job() is true have ended. Reports important events to the
  // user.
  void Run(std::vector<std::unique_ptr<JobPart>> parts);

  // Sends `signo` to all parts, to end them.
  void SignalParts(int signo);

  // Handles a signal that the launcher sent to an agent: SIGTSTP stops the parts, SIGCONT lets them continue, and every
  // other signal ends them.
  void Obey(int signo);

  // Writes the output that is still waiting to be written. If nobody reads the output, a signal from the user ends the
  // wait.
  void Flush();

  // Returns the signal to the launcher that ended the job, if any. SIGPIPE means that nobody reads the launcher's
  // output any more.
  std::optional<int> ended_by() const { return ended_by_; }
  // Returns whether some of the ranks' output could not be written.
  bool has_lost_output() const { return has_lost_output_; }

 private:
  Supervisor(Options options, const Surroundings& surroundings, std::unique_ptr<Guard> guard);

  void OnRankStart(RankId rank, pid_t pid, const std::string& host) override;
  void OnOutput(RankId rank, Stream stream, absl::string_view bytes) override;
  void OnOutputEnd(RankId rank, Stream stream) override;
  void OnRankEnd(RankEnd end) override;
  void OnHelperLine(absl::string_view helper, absl::string_view line) override;
  void OnJobFailure(absl::string_view what, int exit_code) override;
  size_t Pending(Stream stream) const override { return surroundings_.report->Pending(stream); }
  void Say(absl::string_view text) override;
  void Explain(absl::string_view text) override;

  void StartParts();
  absl::Status StartMember(std::unique_ptr<JobPart> part);
  void EndElasticJob(int exit_code, const std::string& why);
  void EndCompanions();

  // Runs the loop once: waits for events and handles them. Errors: those of PollSet::Wait.
  absl::Status Step();
  void AddPart(JobPart* part, PollSet* poll);
  void AddQueues(PollSet* poll);
  bool MustWait(const JobPart& part, Stream stream) const;
  void HandleSignals();
  void CheckStart();
  void ActOnTime();

  // Kills the processes that ended parts have left behind.
  void KillLeftBehind();

  // Checks whether the part that may read the terminal has been stopped, because it read the terminal or because of the
  // stop key. If so, lends the terminal to the part, or suspends the job.
  void LookAtReader();
  // Like MemberSupervision::reads_terminal, but for any part.
  bool ReadsTerminal(pid_t pid, int signo);
  void LendTerminal(const JobPart& reader);
  // Stops the parts and, with `signo`, this process's own group, until the user lets both continue.
  void Suspend(int signo);
  void SetMotion(int signo);

  // Passes `signo` on to the parts, because the launcher received the signal `cause`.
  void EndJob(int cause, int signo);
  void WriteQueues();
  void WriteQueue(Stream stream);

  bool IsRunning() const;
  bool MustGoOn() const { return IsRunning() || (members_ != nullptr && !members_->is_over()); }
  std::string NameRunning() const;  // the ranks that run
  absl::Time now() const { return surroundings_.clock->Now(); }

  struct Watched {
    int fd;
    std::function<void()> on_ready;
  };
  struct Repeated {
    std::function<absl::Duration()> on_time;
    absl::Time next;
  };

  const Options options_;
  const Surroundings surroundings_;
  const std::unique_ptr<Guard> guard_;
  const SystemProcesses processes_;
  const OomKills oom_kills_before_ = CountOomKills();
  std::vector<std::string> ended_;  // marks of the parts that have ended since the last search for their processes
  absl::Time next_search_ = absl::InfinitePast();
  ShutdownSchedule schedule_;

  std::vector<std::unique_ptr<JobPart>> parts_;
  std::unique_ptr<SupervisedMembers> members_;  // nullptr: the job keeps its ranks
  std::optional<Watched> watched_;
  std::optional<Repeated> repeated_;
  absl::Time start_deadline_ = absl::InfiniteFuture();
  Terminal terminal_;
  RankId reader_ = 0;                               // reads the terminal, while it is lent
  absl::Time prompt_due_ = absl::InfiniteFuture();  // what the borrower of the terminal prints may be a question then
  int round_ = 0;
  std::optional<int> ended_by_;
  bool has_lost_output_ = false;
};

// Returns a text such as "received SIGTERM". `signo` is a signal that ended_by() has returned.
std::string DescribeInterruption(int signo);

}  // namespace ronda

#endif  // RONDA_PROGRAMS_RONDARUN_SUPERVISE_SUPERVISOR_H_
