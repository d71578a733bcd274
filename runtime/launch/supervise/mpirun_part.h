#ifndef RONDA_RUNTIME_LAUNCH_SUPERVISE_MPIRUN_PART_H_
#define RONDA_RUNTIME_LAUNCH_SUPERVISE_MPIRUN_PART_H_

#include <array>
#include <string>
#include <vector>

#include "runtime/launch/output/console.h"
#include "runtime/launch/supervise/job_part.h"
#include "runtime/launch/supervise/mpirun_output.h"

namespace ronda {

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

  // Those of which nothing has been heard, not even their mark (start_mark.h).
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

  // Fills in of the failed rank what its mark has told.
  void Complete(RankEnd* failure) const;

  std::vector<Rank> ranks_;
  std::array<Source, kStreamCount> sources_;
  MpirunReport report_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_SUPERVISE_MPIRUN_PART_H_
