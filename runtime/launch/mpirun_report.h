#ifndef RONDA_RUNTIME_LAUNCH_MPIRUN_REPORT_H_
#define RONDA_RUNTIME_LAUNCH_MPIRUN_REPORT_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "runtime/launch/verdict.h"

namespace ronda {

// Finds in what mpirun says of itself which rank failed, and how. Open MPI 4 and Hydra (MPICH) are understood; they say
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

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_MPIRUN_REPORT_H_
