// SPDX-License-Identifier: Apache-2.0

// A file to which ranks append their counts when they leave the job.
#ifndef RONDA_RUNTIME_MONITOR_SUMMARY_FILE_H_
#define RONDA_RUNTIME_MONITOR_SUMMARY_FILE_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "runtime/base/unique_fd.h"
#include "runtime/monitor/rank_words.h"

namespace ronda {

// An in-memory file for `rondarun --summary`, whose descriptor all ranks inherit. A rank that leaves the job appends
// its counts (RankWords), so the launcher also gets the counts of ranks that it has never seen running.
//
// A rank finds the file by name among its own descriptors, like the ErrorFile. If the program that starts the ranks
// closes descriptors (mpirun), the ranks do not have the file.
//
// Thread-compatible.
class SummaryFile {
 public:
  static constexpr char kName[] = "ronda-summary";
  static constexpr size_t kMaxBytes = size_t{64} << 20;  // a rank appends nothing to a file of this size

  // Creates the file. If the process has no free descriptor, the job continues without it.
  SummaryFile();

  int fd() const { return fd_.get(); }  // -1: no file

  // Returns the RankWords of all ranks that have left the job, in the order in which they left. The caller must
  // validate them with CheckRankWords().
  std::vector<std::string> Read() const;

 private:
  UniqueFd fd_;
};

// Appends `words` to this process's inherited SummaryFile, if there is one.
void LeaveForSummary(const RankWords& words);

// Returns whether `path`, the path of a descriptor in /proc, leads to a memfd with the name `name`.
bool IsMemoryFile(const std::string& path, absl::string_view name);

// Returns all numeric names in a folder of /proc, or nothing if the folder cannot be read.
std::vector<int> NumbersIn(const std::string& folder);

}  // namespace ronda

#endif  // RONDA_RUNTIME_MONITOR_SUMMARY_FILE_H_
