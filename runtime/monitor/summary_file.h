// SPDX-License-Identifier: Apache-2.0

// The counts of ranks that have left a job.
#ifndef RONDA_RUNTIME_MONITOR_SUMMARY_FILE_H_
#define RONDA_RUNTIME_MONITOR_SUMMARY_FILE_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "runtime/base/unique_fd.h"
#include "runtime/monitor/rank_words.h"

namespace ronda {

// A file in memory for `rondarun --summary`, which all ranks inherit. A rank that leaves the job appends its words. So
// the launcher also has the counts of ranks that it has never looked at.
//
// A rank finds the file by its name among its descriptors, like the ErrorFile. Ranks whose starter closes descriptors
// (mpirun) do not have it.
//
// Thread-compatible.
class SummaryFile {
 public:
  static constexpr char kName[] = "ronda-summary";
  static constexpr size_t kMaxBytes = size_t{64} << 20;  // a rank appends nothing to a file of this size

  // Without a free descriptor there is no file, and the job goes on.
  SummaryFile();

  int fd() const { return fd_.get(); }  // -1: no file

  // Returns the words of the ranks that have left the job, in the order in which they left. The words are not checked;
  // see CheckRankWords.
  std::vector<std::string> Read() const;

 private:
  UniqueFd fd_;
};

// Appends the words of this process to the SummaryFile that it has inherited. Does nothing without such a file.
void LeaveForSummary(const RankWords& words);

// Whether `path`, a descriptor in /proc, is a file that memfd_create() has made with this name.
bool IsMemoryFile(const std::string& path, absl::string_view name);

// Returns the numbers among the names in a folder of /proc; none if the folder cannot be read.
std::vector<int> NumbersIn(const std::string& folder);

}  // namespace ronda

#endif  // RONDA_RUNTIME_MONITOR_SUMMARY_FILE_H_
