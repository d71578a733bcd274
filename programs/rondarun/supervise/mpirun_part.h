// SPDX-License-Identifier: Apache-2.0

// Treats mpirun as one part of a job. Its output is separated into the ranks' output, the marks that show that ranks
// have started, and mpirun's own lines.
#ifndef RONDA_PROGRAMS_RONDARUN_SUPERVISE_MPIRUN_PART_H_
#define RONDA_PROGRAMS_RONDARUN_SUPERVISE_MPIRUN_PART_H_

#include <sys/types.h>

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "programs/rondarun/output/console.h"
#include "programs/rondarun/supervise/job_part.h"
#include "programs/rondarun/supervise/verdict.h"
#include "runtime/base/types.h"

namespace ronda {

// Separates mpirun's output into pieces of the ranks' output, each after a mark "[1,RANK]<stdout>:", and mpirun's own
// text.
//
// mpirun prints a mark before every piece of output that it receives from a rank, and before every line in the piece. A
// piece may end in the middle of a line, so a mark may also appear there. The text that follows a mark is output of the
// rank in the mark. At the start of a line, text without a mark is mpirun's own. Open MPI prints such marks with
// --tag-output, and Hydra with -prepend-pattern kHydraPattern. If a rank itself prints such a mark, the text that
// follows is attributed to the wrong rank.
//
// Thread-compatible.
class TaggedOutput {
 public:
  static constexpr absl::string_view kHydraPattern = "[1,%r]<stdout>:";

  // Receives the next bytes that a rank has printed or, if `rank` is nullopt, mpirun itself. `bytes` is valid only
  // during the call.
  using Emit = absl::FunctionRef<void(std::optional<RankId> rank, absl::string_view bytes)>;

  // A text with a rank number of `rank_count` or more is not a mark, because there is no such rank.
  explicit TaggedOutput(int rank_count) : rank_count_(rank_count) {}

  // Adds the next bytes that mpirun has printed.
  void Feed(absl::string_view bytes, Emit emit);

  // Must be called when the output has ended. If the output ends with an incomplete mark, the bytes of this mark are
  // text after all.
  void Finish(Emit emit);

 private:
  void EmitText(absl::string_view text, Emit emit);

  const int rank_count_;
  std::string held_;              // the beginning of a possible mark
  std::optional<RankId> source_;  // of the next text
};

// Returns a command that runs `command` through a shell. The shell prints a start mark with its process id to stderr,
// and then replaces itself with the command. So the launcher sees that a program starts, even if the program prints
// nothing. Before `command`, the shell runs `preparation`, which is empty or ends with a separator.
std::vector<std::string> WithStartMark(const std::vector<std::string>& command, absl::string_view preparation = "");

// Removes the start mark from one stream of a rank. The mark is the first line of the stream, if the stream has one.
//
// Thread-compatible.
class StartMarkReader {
 public:
  using Emit = absl::FunctionRef<void(absl::string_view bytes)>;

  // Adds the next bytes of the stream, and emits those that the rank itself has printed.
  void Feed(absl::string_view bytes, Emit emit);

  // Must be called when the stream has ended. If the stream ends with an incomplete mark, the bytes of this mark are
  // the rank's own text after all.
  void Finish(Emit emit);

  // Returns the pid in the start mark, or nullopt until the mark has been read.
  std::optional<pid_t> pid() const { return pid_; }

 private:
  std::string held_;  // the beginning of a possible mark
  std::optional<pid_t> pid_;
  enum class State { kFirstLine, kRest } state_ = State::kFirstLine;
};

// Finds out which rank failed, and how, from the lines that mpirun itself prints. Understands the lines of Open MPI 4
// and Hydra (MPICH), which report only the first failure.
//
// Thread-compatible.
class MpirunReport {
 public:
  // Adds the next line that mpirun has printed to either of its streams.
  void Add(absl::string_view line);

  // Returns the first failure, or nullopt if mpirun has reported none. In the result, the rank is -1, the pid is 0, and
  // the host is empty, unless mpirun has reported them.
  std::optional<RankEnd> failure() const;

 private:
  // Reads "mpirun noticed that process rank 1 with PID 71 on node b exited on signal 9 (Killed)."
  void ReadNotice(absl::string_view line);
  // Reads "Process name: [[14672,1],1]", and in a later line "Exit code:    3".
  void ReadProcessName(absl::string_view line);
  // Reads "=   PID 71 RUNNING AT b", then "=   EXIT CODE: 9", and "... EXIT STRING: Killed (signal 9)".
  void ReadTermination(absl::string_view line);
  // Reads "[mpiexec@a] Exit codes: [a] 0,256 [b] 9".
  void ReadExitCodes(absl::string_view line);

  std::optional<RankEnd> found_;     // from the first of these forms that had a fact
  std::optional<RankEnd> numbered_;  // the first rank among Hydra's exit codes that is not 0
};

// Finds, among the lines that mpirun prints, the error line of an ssh process that cannot reach a host.
//
// Thread-compatible.
class SshReport {
 public:
  // Adds the next line that mpirun has printed to either of its streams.
  void Add(absl::string_view line);

  // Returns the first error line of ssh, or "" if there has been none.
  const std::string& words() const { return words_; }

 private:
  std::string previous_line_;
  std::string words_;
};

// mpirun, which has started all ranks of the job.
//
// mpirun itself ends the ranks on all hosts. Signals go only to mpirun itself, because it needs the other processes in
// its group to end the ranks. Thread-compatible.
class MpirunPart final : public JobPart {
 public:
  // `hosts` contains the host of each rank. The ranks' command must be the result of WithStartMark.
  MpirunPart(ChildProcess::Options options, const std::vector<std::string>& hosts);

  // Returns all ranks until mpirun has ended.
  std::vector<RankId> RunningRanks() const override;

  // Returns the ranks from which nothing has arrived, not even the start mark (WithStartMark).
  std::vector<AwaitedRank> AwaitedRanks() const override;

 private:
  void OnStart() override {}
  void OnBytes(Stream stream, absl::string_view bytes) override;
  void OnBytesEnd(Stream stream) override;
  void OnEnd(const ChildProcess::End& end) override;
  void Pass(int signo) override;

  // The parsers for one of mpirun's streams: for the ranks' output, and for mpirun's own lines.
  struct Source {
    TaggedOutput output;
    LineSplitter own_lines;
  };

  // What the launcher knows about a rank.
  struct Rank {
    std::string host;
    std::array<StartMarkReader, kStreamCount> marks;
    enum class State { kAwaited, kStarted } state = State::kAwaited;
    pid_t pid = 0;  // 0: not known
  };

  Source& source(Stream stream) { return sources_[static_cast<size_t>(stream)]; }
  void Dispatch(Stream stream, std::optional<RankId> rank, absl::string_view bytes);
  void ReceiveOutput(RankId rank, Stream stream, absl::string_view bytes);
  void ReceiveLine(absl::string_view line);
  // IsUnreached returns whether there are ranks that have not started because ssh cannot reach their host;
  // DescribeUnreached returns the text about them.
  bool IsUnreached() const;
  std::string DescribeUnreached() const;

  // Completes `failure` with the host of the rank, and the pid from its start mark.
  void Complete(RankEnd* failure) const;

  std::vector<Rank> ranks_;
  std::array<Source, kStreamCount> sources_;
  MpirunReport report_;
  SshReport ssh_;
  std::string first_line_;  // of mpirun's own: other lines are often consequences of it
};

}  // namespace ronda

#endif  // RONDA_PROGRAMS_RONDARUN_SUPERVISE_MPIRUN_PART_H_
