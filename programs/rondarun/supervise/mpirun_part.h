// SPDX-License-Identifier: Apache-2.0

// Treats mpirun as one part of a job. The output of mpirun is separated into the ranks' output, the marks that show the
// ranks' starts, and mpirun's own lines.
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

// Separates mpirun's output: pieces of the ranks' output, each after a mark "[1,RANK]<stdout>:", and mpirun's own text.
//
// mpirun puts a mark before every piece of output that it gets from a rank, and before every line in such a piece. A
// piece may end in the middle of a line. So a mark may come in the middle of a line. The text after it is output of the
// rank in the mark. At the beginning of a line, text without a mark is mpirun's own text. Open MPI prints such marks
// with --tag-output, Hydra with -prepend-pattern kHydraPattern. If a rank itself prints such a mark, the text after it
// is attributed to the wrong rank.
//
// Thread-compatible.
class TaggedOutput {
 public:
  static constexpr absl::string_view kHydraPattern = "[1,%r]<stdout>:";

  // Receives the next bytes that a rank has printed. If `rank` is nullopt, mpirun itself has printed them. `bytes` is
  // valid only during the call.
  using Emit = absl::FunctionRef<void(std::optional<RankId> rank, absl::string_view bytes)>;

  // If the number in a text is not below `rank_count`, the text is not a mark, because no rank has this number.
  explicit TaggedOutput(int rank_count) : rank_count_(rank_count) {}

  // Adds the next bytes that mpirun has printed.
  void Feed(absl::string_view bytes, Emit emit);

  // The output has ended. If the output ends with the beginning of a mark, the bytes of this beginning are text, and
  // not a mark.
  void Finish(Emit emit);

 private:
  void EmitText(absl::string_view text, Emit emit);

  const int rank_count_;
  std::string held_;              // the beginning of a possible mark
  std::optional<RankId> source_;  // of the next text
};

// Returns a command that runs `command` within a shell. The shell prints a start mark with its process id on stderr,
// and then replaces itself with the command. So the launcher sees the start of any program, even if the program prints
// nothing. Before `command`, the shell runs `preparation`, which is empty or ends with a separator.
std::vector<std::string> WithStartMark(const std::vector<std::string>& command, absl::string_view preparation = "");

// Removes the start mark from one stream of a rank. If the stream has a start mark, the mark is its first line.
//
// Thread-compatible.
class StartMarkReader {
 public:
  using Emit = absl::FunctionRef<void(absl::string_view bytes)>;

  // Adds the next bytes of the stream, and emits those that the rank itself has printed.
  void Feed(absl::string_view bytes, Emit emit);

  // The stream has ended. If the stream ends with the beginning of a mark, the bytes of this beginning are the rank's
  // own text.
  void Finish(Emit emit);

  // Returns the pid in the start mark; nullopt until the mark has been read.
  std::optional<pid_t> pid() const { return pid_; }

 private:
  std::string held_;  // the beginning of a possible mark
  std::optional<pid_t> pid_;
  enum class State { kFirstLine, kRest } state_ = State::kFirstLine;
};

// Finds in mpirun's own lines which rank failed, and how. MpirunReport understands the lines of Open MPI 4 and Hydra
// (MPICH), which report only the first failure.
//
// Thread-compatible.
class MpirunReport {
 public:
  // Adds the next line that mpirun has printed, on either of its streams.
  void Add(absl::string_view line);

  // Returns the first failure, or nullopt if mpirun has reported no failure. In the result, the rank's number is -1,
  // the pid is 0, or the host is empty if mpirun has not reported it.
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
  // Adds the next line that mpirun has printed, on either of its streams.
  void Add(absl::string_view line);

  // Returns the first error line of ssh, or an empty text if no such line has come.
  const std::string& words() const { return words_; }

 private:
  std::string previous_line_;
  std::string words_;
};

// mpirun, which has started all ranks of the job.
//
// mpirun itself ends the ranks on all hosts. Signals go only to mpirun, because mpirun needs the other processes of its
// process group to end the ranks. Thread-compatible.
class MpirunPart final : public JobPart {
 public:
  // `hosts` is the host of each rank. The ranks' command must be a result of WithStartMark.
  MpirunPart(ChildProcess::Options options, const std::vector<std::string>& hosts);

  // Returns all ranks until mpirun ends.
  std::vector<RankId> RunningRanks() const override;

  // Returns the ranks from which no output has come, not even their start mark (WithStartMark).
  std::vector<AwaitedRank> AwaitedRanks() const override;

 private:
  void OnStart() override {}
  void OnBytes(Stream stream, absl::string_view bytes) override;
  void OnBytesEnd(Stream stream) override;
  void OnEnd(const ChildProcess::End& end) override;
  void Pass(int signo) override;

  // The parsers for one stream of mpirun: for the ranks' output, and for mpirun's own lines.
  struct Source {
    TaggedOutput output;
    LineSplitter own_lines;
  };

  // What the launcher knows about one rank.
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
  // IsUnreached returns whether ranks have not started because ssh cannot reach their host. DescribeUnreached returns
  // the text about ranks whose host ssh cannot reach.
  bool IsUnreached() const;
  std::string DescribeUnreached() const;

  // Adds the host of the rank, and the pid in the rank's start mark, to `failure`.
  void Complete(RankEnd* failure) const;

  std::vector<Rank> ranks_;
  std::array<Source, kStreamCount> sources_;
  MpirunReport report_;
  SshReport ssh_;
  std::string first_line_;  // of mpirun's own: other lines are often consequences of it
};

}  // namespace ronda

#endif  // RONDA_PROGRAMS_RONDARUN_SUPERVISE_MPIRUN_PART_H_
