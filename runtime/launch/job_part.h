#ifndef RONDA_RUNTIME_LAUNCH_JOB_PART_H_
#define RONDA_RUNTIME_LAUNCH_JOB_PART_H_

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "runtime/base/types.h"
#include "runtime/launch/child_process.h"
#include "runtime/launch/job_listener.h"
#include "runtime/launch/late_start.h"
#include "runtime/launch/output_queue.h"
#include "runtime/launch/stream.h"

namespace ronda {

// A process that the launcher starts, and what is known through it of the ranks that it is or stands for.
//
// Subclasses know what its output means: a rank's, mpirun's with the output of all ranks in it, an agent's on another
// host. Thread-compatible; belongs to a Supervisor, which polls its descriptors.
class JobPart {
 public:
  explicit JobPart(ChildProcess::Options options) : options_(std::move(options)) {}
  virtual ~JobPart() = default;
  JobPart(const JobPart&) = delete;
  JobPart& operator=(const JobPart&) = delete;

  // Starts the process. `listener` hears all that becomes known from now on; it must outlive this.
  // Errors: as ChildProcess::Start.
  absl::Status Start(const ChildProcess::Context& context, JobListener* listener);

  bool running() const { return process_.has_value() && !collected_; }

  // REQUIRES: it was started.
  const ChildProcess& process() const { return *process_; }

  // What is to be written to the process' input; nullptr if nothing ever is.
  OutputQueue* input() { return input_.has_value() ? &*input_ : nullptr; }

  // Reads once what the process has printed. Returns the number of bytes; 0 if there is nothing now.
  size_t Read(Stream stream, size_t at_most);

  // The process has ended: takes what it has left, and tells the listener how it ended.
  void Collect(const Guard& guard);

  // Tells the ranks to end, by `signo`.
  // REQUIRES: running().
  void Signal(int signo);

  // Whether each of its streams can carry both of a rank's.
  virtual bool mixes_streams() const { return false; }

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

  // Reads what the process has printed up to now, and no more.
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

  const RankId rank_;
  const std::string host_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_JOB_PART_H_
