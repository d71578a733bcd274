#ifndef RONDA_RUNTIME_LAUNCH_SUPERVISOR_H_
#define RONDA_RUNTIME_LAUNCH_SUPERVISOR_H_

#include <sys/resource.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "runtime/base/clock.h"
#include "runtime/base/types.h"
#include "runtime/launch/arguments.h"
#include "runtime/launch/console.h"
#include "runtime/launch/guard.h"
#include "runtime/launch/launch_plan.h"
#include "runtime/launch/output_files.h"
#include "runtime/launch/poll_set.h"
#include "runtime/launch/rank_process.h"
#include "runtime/launch/shutdown_schedule.h"
#include "runtime/launch/signal_inbox.h"
#include "runtime/launch/standard_output.h"
#include "runtime/launch/stream.h"
#include "runtime/launch/verdict.h"

namespace ronda {

// Runs the processes of a job: starts them as planned, brings their output out, passes signals on, ends all when one
// fails, and says at the end what happened.
//
// One thread, one loop around poll(). What to decide is decided elsewhere (ShutdownSchedule, FirstFailure, Console).
// Nothing it starts outlives it, however it ends (Guard).
//
// Thread-compatible; to be used once, by a single-threaded process whose descriptors 0, 1 and 2 are open.
class Supervisor {
 public:
  enum class Verbosity { kNormal, kVerbose };

  struct Options {
    std::vector<std::string> command;
    LaunchPlan plan;
    std::string job_id;
    std::string hostname;
    ShutdownSchedule::Options shutdown;
    Verbosity verbosity = Verbosity::kNormal;
    LaunchOptions::LinePrefix line_prefix = LaunchOptions::LinePrefix::kRank;
    std::string output_directory;  // empty: no files
  };

  // `output` and `clock` must outlive the supervisor.
  // Errors: the system's, if signals, the guard or the output files cannot be set up.
  static absl::StatusOr<std::unique_ptr<Supervisor>> Create(Options options, StandardOutput* output,
                                                            const Clock* clock);

  // Removes what the job has left in /dev/shm.
  ~Supervisor();

  // Runs the job to its end. Returns the launcher's exit code; its last line on stderr says why, unless it is 0.
  int Run();

 private:
  // What the operating system lends to the launcher.
  struct Resources {
    rlimit file_limit;  // that the launcher was started with, and the ranks get
    OutputFiles files;
    std::unique_ptr<Guard> guard;
    SignalInbox signals;
  };

  struct Rank {
    RankProcess process;
    absl::Time started;
    RankEnd::Cause cause = RankEnd::Cause::kItself;  // of its end, should it end now
    bool running = true;
  };

  Supervisor(Options options, StandardOutput* output, const Clock* clock, Resources resources);

  absl::Status StartRanks();
  absl::Status StartRank(const RankPlan& plan);

  // One round of the loop: waits until something happens, and reacts to it.
  void Step();
  void AddRank(RankId id, PollSet* poll);
  void AddQueues(PollSet* poll);

  // Reads once. Returns the number of bytes read; 0 if there is nothing now.
  size_t ReadOutput(RankId id, Stream stream, size_t at_most);

  // Reads what the rank has printed up to now, and no more.
  void DrainOutput(RankId id, Stream stream);
  void CloseOutput(RankId id, Stream stream);
  void CollectRank(RankId id);
  void HandleSignals();
  void ActOnTime();

  // The launcher got the signal `cause`: passes `signo` on to the ranks.
  void EndJob(int cause, int signo);
  void SignalRanks(int signo);

  void WriteQueues();
  void WriteQueue(Stream stream);

  // Says why the job ended, and returns the launcher's exit code.
  int Conclude(const absl::Status& started);

  // Writes what is pending to the end, or until the user has enough of waiting for a reader that does not read.
  void Flush();

  // Says `text` if the user wants to know everything.
  void Explain(absl::string_view text);

  std::vector<RankId> Running() const;
  Rank& rank(RankId id) { return ranks_[static_cast<size_t>(id)]; }

  const Options options_;
  StandardOutput* const output_;
  const Clock* const clock_;
  Resources resources_;
  Console console_;
  ShutdownSchedule schedule_;

  std::vector<Rank> ranks_;  // by rank; those started so far
  std::vector<RankEnd> ends_;
  int round_ = 0;
  std::optional<int> ended_by_;  // the signal to the launcher that ended the job
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_SUPERVISOR_H_
