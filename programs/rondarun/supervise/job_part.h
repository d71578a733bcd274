// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_PROGRAMS_RONDARUN_SUPERVISE_JOB_PART_H_
#define RONDA_PROGRAMS_RONDARUN_SUPERVISE_JOB_PART_H_

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "programs/options/launch_options.h"
#include "programs/rondarun/output/console.h"
#include "programs/rondarun/output/output_sinks.h"
#include "programs/rondarun/supervise/child_process.h"
#include "programs/rondarun/supervise/verdict.h"
#include "runtime/base/types.h"
#include "runtime/base/unique_fd.h"

namespace ronda {

// Receives the events of a job, which its processes and their supervisor report.
class JobListener {
 public:
  virtual ~JobListener() = default;

  virtual void OnRankStart(RankId rank, pid_t pid, const std::string& host) = 0;

  // OnOutput reports the next bytes that `rank` printed to `stream`; OnOutputEnd reports the end of `stream`.
  virtual void OnOutput(RankId rank, Stream stream, absl::string_view bytes) = 0;
  virtual void OnOutputEnd(RankId rank, Stream stream) = 0;

  // `end.round` is not set. `end.last_error` is set only if the rank itself wrote its error to an ErrorFile.
  virtual void OnRankEnd(RankEnd end) = 0;

  // Reports a line that a helper itself has printed. A helper is a program that starts ranks (mpirun, ssh).
  virtual void OnHelperLine(absl::string_view helper, absl::string_view line) = 0;

  // The job cannot continue, and no rank is the cause. `what` says what happened; the launcher exits with `exit_code`.
  virtual void OnJobFailure(absl::string_view what, int exit_code) = 0;

  // `rank` is reading from the terminal, or might be. If it is, the unfinished line that it has printed may be a
  // question.
  virtual void OnInputAwaited(RankId) {}

  // Returns the line on the rank's stderr that shows why the rank ended, or "" if this listener does not know the line.
  virtual std::string LastErrorOf(RankId) const { return ""; }

  // Returns how many bytes of the ranks' `stream` are still waiting to be written. If there are many, the supervisor
  // does not read the output of the processes.
  virtual size_t Pending(Stream stream) const = 0;

  // Say shows a text to the user; Explain shows it only if the user has given --verbose.
  virtual void Say(absl::string_view text) = 0;
  virtual void Explain(absl::string_view text) = 0;
};

// A process that the launcher starts, and what the launcher knows about its ranks. The process is itself a rank, or has
// started ranks.
//
// Each subclass interprets the output of one kind of process: a rank, mpirun (whose output contains that of all ranks),
// or an agent on another host. Thread-compatible. A Supervisor owns the JobPart, and polls the descriptors of the
// process.
class JobPart {
 public:
  explicit JobPart(ChildProcess::Options options) : options_(std::move(options)) {}
  virtual ~JobPart() = default;
  JobPart(const JobPart&) = delete;
  JobPart& operator=(const JobPart&) = delete;

  // Starts the process. From now on, `listener` receives all events. `listener` must outlive this object. Errors: those
  // of ProcessStarter::Start.
  absl::Status Start(const ProcessStarter& starter, JobListener* listener);

  bool running() const { return process_ != nullptr && !collected_; }

  // REQUIRES: Start() has succeeded.
  const ChildProcess& process() const { return *process_; }

  // Returns the queue for the input of the process, or nullptr if the launcher never writes to the process.
  OutputQueue* input() { return input_.has_value() ? &*input_ : nullptr; }

  // Reads once from the output of the process. Returns the number of bytes read, which is 0 if none are available.
  size_t Read(Stream stream, size_t at_most);

  // Handles the end of the process: reads the rest of its output, and reports its end to the listener.
  void Collect();

  // Sends `signo`, which asks the ranks to end.
  // REQUIRES: running().
  void Signal(int signo);

  // Stops the ranks (SIGTSTP), or lets the ranks continue (SIGCONT). REQUIRES: running().
  virtual void SetMotion(int signo) { Pass(signo); }

  // Returns whether the terminal may be lent to the process group.
  bool may_read_terminal() const { return options_.input == ChildProcess::Input::kTerminal; }

  // Returns whether the stdout and stderr of a rank may both arrive on the same stream of this process.
  virtual bool mixes_streams() const { return false; }

  // Returns whether the job lasts at least until this process has ended. When the job ends, the supervisor kills all
  // other parts.
  virtual bool carries_job() const { return true; }

  // Returns the ranks that are probably running now.
  virtual std::vector<RankId> RunningRanks() const = 0;

  // Returns the ranks that may not have started yet.
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

  // Reads the output that the process has already printed, without waiting for more.
  void Drain(Stream stream);
  void CloseOutput(Stream stream);

  const ChildProcess::Options options_;
  JobListener* listener_ = nullptr;
  std::unique_ptr<ChildProcess> process_;  // nullptr: not started
  std::optional<OutputQueue> input_;
  RankEnd::Cause cause_ = RankEnd::Cause::kItself;  // the cause of its end, if it ended now
  bool collected_ = false;
};

// An in-memory file that a rank inherits. If an error ends the rank, the rank writes the error to this file as one line
// of text, which the launcher reads when the rank has ended. Ronda's Python package does this
// (client/python/ronda/_last_error.py), because it knows which exception ends the process. From the output alone, the
// launcher can only guess (LastError).
//
// The rank finds the file by name among its own descriptors. No environment variable refers to the file, because
// processes that the rank starts would inherit the variable, but not the descriptor.
//
// Thread-compatible.
class ErrorFile {
 public:
  static constexpr char kName[] = "ronda-error";  // "/memfd:ronda-error (deleted)" in /proc
  static constexpr size_t kMaxBytes = 4096;       // the most that are read

  // If no descriptor is free, there is no file, and the job continues without it.
  ErrorFile();

  int fd() const { return fd_.get(); }  // -1: no file

  // Returns the first line of the file, without characters that control a terminal, or "" if the rank has not written a
  // line.
  std::string Read() const;

 private:
  UniqueFd fd_;
};

// A rank on this host.
class RankPart final : public JobPart {
 public:
  RankPart(RankId rank, std::string host, ChildProcess::Options options);

  std::vector<RankId> RunningRanks() const override;

  // Returns an empty list, because the rank starts together with this part.
  std::vector<AwaitedRank> AwaitedRanks() const override { return {}; }

 private:
  void OnStart() override;
  void OnBytes(Stream stream, absl::string_view bytes) override;
  void OnBytesEnd(Stream stream) override;
  void OnEnd(const ChildProcess::End& end) override;
  void Pass(int signo) override;

  // The process inherits `error_file`.
  RankPart(RankId rank, std::string host, ErrorFile error_file, ChildProcess::Options options);

  const RankId rank_;
  const std::string host_;
  const ErrorFile error_file_;
};

// A companion: a program that runs alongside the job on this host, such as ronda-monitor. If it fails, the job
// continues.
class CompanionPart final : public JobPart {
 public:
  // `name` is the name of the program, and the prefix of its lines.
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

#endif  // RONDA_PROGRAMS_RONDARUN_SUPERVISE_JOB_PART_H_
