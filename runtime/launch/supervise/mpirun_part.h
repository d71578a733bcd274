// mpirun as a part of a job: its output is taken apart into that of the ranks, marks of their start, and its own lines.
#ifndef RONDA_RUNTIME_LAUNCH_SUPERVISE_MPIRUN_PART_H_
#define RONDA_RUNTIME_LAUNCH_SUPERVISE_MPIRUN_PART_H_

#include <sys/types.h>

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "runtime/base/types.h"
#include "runtime/launch/output/console.h"
#include "runtime/launch/supervise/job_part.h"
#include "runtime/launch/supervise/verdict.h"

namespace ronda {

// Takes the output of mpirun apart: pieces of its ranks' output with a mark "[1,RANK]<stdout>:" in front of each, and
// text of its own.
//
// mpirun marks every piece that it gets from a rank, and every line in it; a piece need not end with a line. So a mark
// may stand within a line, and the text behind it continues that rank's output. After the end of a line,
// text without a mark is mpirun's own. Open MPI prints such marks with --tag-output, Hydra with
// -prepend-pattern kHydraPattern. A rank that prints such marks itself is misunderstood.
//
// Thread-compatible.
class TaggedOutput {
 public:
  static constexpr absl::string_view kHydraPattern = "[1,%r]<stdout>:";

  // Gets the next bytes of a rank, or of mpirun itself (nullopt); valid during the call only.
  using Emit = absl::FunctionRef<void(std::optional<RankId> rank, absl::string_view bytes)>;

  // Ranks from `rank_count` on are no ranks, and their marks no marks.
  explicit TaggedOutput(int rank_count) : rank_count_(rank_count) {}

  // Takes the next bytes that mpirun has printed.
  void Feed(absl::string_view bytes, Emit emit);

  // There are no more: the beginning of a mark is text.
  void Finish(Emit emit);

 private:
  void EmitText(absl::string_view text, Emit emit);

  const int rank_count_;
  std::string held_;              // the beginning of a possible mark
  std::optional<RankId> source_;  // of the next text
};

// `command`, led by a shell that prints a mark on stderr, with its process id, and then becomes the command. So any
// program can be seen to start, also one that prints nothing. Between the two the shell runs `preparation`, which is
// empty or ends with a separator.
std::vector<std::string> WithStartMark(const std::vector<std::string>& command, absl::string_view preparation = "");

// Takes the mark out of one stream of a rank, whose first line it is if it is there at all.
//
// Thread-compatible.
class StartMarkReader {
 public:
  using Emit = absl::FunctionRef<void(absl::string_view bytes)>;

  // Takes the next bytes, and emits those that are the rank's own.
  void Feed(absl::string_view bytes, Emit emit);

  // There are no more: the beginning of a mark is the rank's own.
  void Finish(Emit emit);

  // Once the mark was there.
  std::optional<pid_t> pid() const { return pid_; }

 private:
  std::string held_;  // the beginning of a possible mark
  std::optional<pid_t> pid_;
  enum class State { kFirstLine, kRest } state_ = State::kFirstLine;
};

// Finds in mpirun's own lines which rank failed, and how. Open MPI 4 and Hydra (MPICH) are understood; they say
// it of the first one only.
//
// Thread-compatible.
class MpirunReport {
 public:
  // Takes the next line that mpirun has printed, on either stream.
  void Add(absl::string_view line);

  // The first failure. Its rank is -1, its pid 0 and its host empty as long as mpirun has not said them; nullopt if it
  // has not said that a rank failed.
  std::optional<RankEnd> failure() const;

 private:
  // "mpirun noticed that process rank 1 with PID 71 on node b exited on signal 9 (Killed)."
  void ReadNotice(absl::string_view line);
  // "Process name: [[14672,1],1]", and further down "Exit code:    3"
  void ReadProcessName(absl::string_view line);
  // "=   PID 71 RUNNING AT b", then "=   EXIT CODE: 9", and "... EXIT STRING: Killed (signal 9)"
  void ReadTermination(absl::string_view line);
  // "[mpiexec@a] Exit codes: [a] 0,256 [b] 9"
  void ReadExitCodes(absl::string_view line);

  std::optional<RankEnd> found_;     // of the first form that has said something
  std::optional<RankEnd> numbered_;  // the first rank among Hydra's exit codes that is not 0
};

// Finds in mpirun's own lines the words with which ssh ends when it does not get to a host.
//
// Thread-compatible.
class SshReport {
 public:
  // Takes the next line that mpirun has printed, on either stream.
  void Add(absl::string_view line);

  // The first such words; empty as long as there are none.
  const std::string& words() const { return words_; }

 private:
  std::string previous_line_;
  std::string words_;
};

// mpirun, with all ranks of the job behind it.
//
// It ends the ranks itself, also on other hosts: signals go to it alone, as its group holds the processes that it needs
// for that. Thread-compatible.
class MpirunPart final : public JobPart {
 public:
  // `hosts`: by rank. The command of the ranks is one WithStartMark.
  MpirunPart(ChildProcess::Options options, const std::vector<std::string>& hosts);

  // All, until mpirun ends.
  std::vector<RankId> RunningRanks() const override;

  // Those of which nothing has been heard, not even their mark (WithStartMark).
  std::vector<AwaitedRank> AwaitedRanks() const override;

 private:
  void OnStart() override {}
  void OnBytes(Stream stream, absl::string_view bytes) override;
  void OnBytesEnd(Stream stream) override;
  void OnEnd(const ChildProcess::End& end) override;
  void Pass(int signo) override;

  // The output of mpirun on one stream, with its own lines.
  struct Source {
    TaggedOutput output;
    LineSplitter own_lines;
  };

  // A rank, as far as it is known.
  struct Rank {
    std::string host;
    std::array<StartMarkReader, kStreamCount> marks;
    enum class State { kAwaited, kStarted } state = State::kAwaited;
    pid_t pid = 0;  // 0: not known
  };

  Source& source(Stream stream) { return sources_[static_cast<size_t>(stream)]; }
  void Dispatch(Stream stream, std::optional<RankId> rank, absl::string_view bytes);
  void TakeOutput(RankId rank, Stream stream, absl::string_view bytes);
  void TakeLine(absl::string_view line);
  // Whether ranks have not started because ssh does not get to their host, and what to say then.
  bool IsUnreached() const;
  std::string DescribeUnreached() const;

  // Adds to `failure` the host and the pid that the mark of the rank has told.
  void Complete(RankEnd* failure) const;

  std::vector<Rank> ranks_;
  std::array<Source, kStreamCount> sources_;
  MpirunReport report_;
  SshReport ssh_;
  std::string first_line_;  // of mpirun's own: the others often follow from it
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_SUPERVISE_MPIRUN_PART_H_
