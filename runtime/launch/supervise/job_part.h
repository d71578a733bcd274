#ifndef RONDA_RUNTIME_LAUNCH_SUPERVISE_JOB_PART_H_
#define RONDA_RUNTIME_LAUNCH_SUPERVISE_JOB_PART_H_

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "runtime/base/types.h"
#include "runtime/launch/options/launch_options.h"
#include "runtime/launch/output/console.h"
#include "runtime/launch/output/output_sinks.h"
#include "runtime/launch/supervise/child_process.h"
#include "runtime/launch/supervise/error_file.h"
#include "runtime/launch/supervise/verdict.h"

namespace ronda {

// Hears of the events of a job, from its processes and from their supervisor.
class JobListener {
 public:
  virtual ~JobListener() = default;

  virtual void OnRankStart(RankId rank, pid_t pid, const std::string& host) = 0;

  // The next bytes that `rank` printed, and that there are no more.
  virtual void OnOutput(RankId rank, Stream stream, absl::string_view bytes) = 0;
  virtual void OnOutputEnd(RankId rank, Stream stream) = 0;

  // `end.round` is not filled in, and `end.last_error` only if the rank itself has left it (ErrorFile).
  virtual void OnRankEnd(RankEnd end) = 0;

  // A line of a program that starts ranks (mpirun, ssh), not of a rank.
  virtual void OnHelperLine(absl::string_view helper, absl::string_view line) = 0;

  // The job cannot go on, and no rank is to blame: `what` describes the event, and the launcher ends with
  // `exit_code`.
  virtual void OnJobFailure(absl::string_view what, int exit_code) = 0;

  // `rank` reads from the terminal, or may do so: what it has printed of a line is perhaps a question.
  virtual void OnInputAwaited(RankId) {}

  // The last line of a rank on stderr, as far as it is known here.
  virtual std::string LastErrorOf(RankId) const { return ""; }

  // How many bytes of the ranks' `stream` still wait to be written. While they are many, processes are not read.
  virtual size_t Pending(Stream stream) const = 0;

  // For the user: always, or with --verbose only.
  virtual void Say(absl::string_view text) = 0;
  virtual void Explain(absl::string_view text) = 0;
};

// A process that the launcher starts, and its knowledge of the ranks that this process is or stands for.
//
// Subclasses interpret its output: that of a rank, of mpirun with all ranks in it, or of an agent on another host.
// Thread-compatible; belongs to a Supervisor, which polls its descriptors.
class JobPart {
 public:
  explicit JobPart(ChildProcess::Options options) : options_(std::move(options)) {}
  virtual ~JobPart() = default;
  JobPart(const JobPart&) = delete;
  JobPart& operator=(const JobPart&) = delete;

  // Starts the process. `listener` hears of all events from now on; it must outlive this.
  // Errors: as ChildProcess::Start.
  absl::Status Start(const ChildProcess::Context& context, JobListener* listener);

  bool running() const { return process_.has_value() && !collected_; }

  // REQUIRES: it was started.
  const ChildProcess& process() const { return *process_; }

  // The queue for the process' input; nullptr if nothing is ever written there.
  OutputQueue* input() { return input_.has_value() ? &*input_ : nullptr; }

  // Reads once from the output of the process. Returns the number of bytes; 0 if there is nothing now.
  size_t Read(Stream stream, size_t at_most);

  // The process has ended: reads the rest of its output, and tells the listener how it ended.
  void Collect(const Guard& guard);

  // Tells the ranks to end, by `signo`.
  // REQUIRES: running().
  void Signal(int signo);

  // Has the ranks stop (SIGTSTP) or go on (SIGCONT). REQUIRES: running().
  virtual void SetMotion(int signo) { Pass(signo); }

  // Whether the terminal may be lent to its group.
  bool may_read_terminal() const { return options_.input == ChildProcess::Input::kTerminal; }

  // Whether each of its streams can carry both of a rank's.
  virtual bool mixes_streams() const { return false; }

  // Whether the job runs as long as this does. Other parts are killed at the job's end.
  virtual bool carries_job() const { return true; }

  // Those that run, as far as is known.
  virtual std::vector<RankId> RunningRanks() const = 0;

  // Those that are not known to have been started.
  virtual std::vector<AwaitedRank> AwaitedRanks() const = 0;

 protected:
  JobListener& listener() { return *listener_; }
  RankEnd::Cause cause() const { return cause_; }

 private:
  virtual void OnStart() = 0;
  virtual void OnBytes(Stream stream, absl::string_view bytes) = 0;
  virtual void OnBytesEnd(Stream stream) = 0;
  virtual void OnEnd(const ChildProcess::End& end) = 0;
  virtual void Pass(int signo) = 0;

  // Reads the output of the process up to now, and no more.
  void Drain(Stream stream);
  void CloseOutput(Stream stream);

  const ChildProcess::Options options_;
  JobListener* listener_ = nullptr;
  std::optional<ChildProcess> process_;
  std::optional<OutputQueue> input_;
  RankEnd::Cause cause_ = RankEnd::Cause::kItself;  // of its end, should it end now
  bool collected_ = false;
};

// A rank on this host.
class RankPart final : public JobPart {
 public:
  RankPart(RankId rank, std::string host, ChildProcess::Options options);

  std::vector<RankId> RunningRanks() const override;

  // None: it starts with its part.
  std::vector<AwaitedRank> AwaitedRanks() const override { return {}; }

 private:
  void OnStart() override;
  void OnBytes(Stream stream, absl::string_view bytes) override;
  void OnBytesEnd(Stream stream) override;
  void OnEnd(const ChildProcess::End& end) override;
  void Pass(int signo) override;

  // Has the process inherit the file.
  RankPart(RankId rank, std::string host, ErrorFile error_file, ChildProcess::Options options);

  const RankId rank_;
  const std::string host_;
  const ErrorFile error_file_;
};

// A program beside the job, on this host: ronda-monitor. The job goes on without it.
class CompanionPart final : public JobPart {
 public:
  // `name` is that of the program, for its lines.
  CompanionPart(std::string name, ChildProcess::Options options);

  bool carries_job() const override { return false; }
  std::vector<RankId> RunningRanks() const override { return {}; }
  std::vector<AwaitedRank> AwaitedRanks() const override { return {}; }

 private:
  void OnStart() override {}
  void OnBytes(Stream stream, absl::string_view bytes) override;
  void OnBytesEnd(Stream stream) override;
  void OnEnd(const ChildProcess::End& end) override;
  void Pass(int signo) override;
  void Say(absl::string_view line);

  const std::string name_;
  std::array<LineSplitter, kStreamCount> lines_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_SUPERVISE_JOB_PART_H_
