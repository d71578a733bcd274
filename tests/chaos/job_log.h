// SPDX-License-Identifier: Apache-2.0

// Parses the output of an elastic job while the job runs.
#ifndef RONDA_TESTS_CHAOS_JOB_LOG_H_
#define RONDA_TESTS_CHAOS_JOB_LOG_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace ronda::chaos {

// Parses the lines of `rondarun --verbose` and of its trainer, which come from one stream, in the order in which
// rondarun has written them. It understands these lines of a trainer:
//
//   4 ranks go on after step 17       (or: in epoch 3) the members of an epoch have met, and have the state
//   epoch 3 is done                   (or: epoch 3: accuracy 0.97) a pass over the data is complete
//   test accuracy 0.98
//
// Thread-compatible.
class JobLog {
 public:
  // The job begins with members 0 to `first_members` - 1.
  explicit JobLog(int first_members);

  // Parses the complete lines that are new in `text`. REQUIRES: `text` begins with the text of the previous call.
  void Read(absl::string_view text);

  const std::string& job_id() const { return job_id_; }
  // Returns the process id of each member that has been started.
  const std::map<int, pid_t>& pids() const { return pids_; }
  // Returns the members of the newest epoch in rank order. The oldest member is first.
  const std::vector<int>& members() const { return members_; }
  // Returns whether the members of the newest epoch have connected.
  bool have_met() const { return have_met_; }
  bool HasBeenPlaced(int member) const { return placed_.count(member) != 0; }

  int64_t epochs() const { return epochs_; }
  int64_t passes() const { return passes_; }
  double accuracy() const { return accuracy_; }
  // Returns, for each epoch in order, the step or pass after which it continued.
  const std::vector<int64_t>& beginnings() const { return beginnings_; }

  // Announces that a member is about to be killed. HasTrained() then returns false until an epoch without this member
  // has completed a step.
  void ExpectLossOf(int member);
  bool HasTrained() const { return progress_ == Progress::kTrains; }

 private:
  enum class Progress { kLosesMembers, kMeets, kHasMet, kTrains };

  void ReadLine(absl::string_view line);
  void OnEpoch(absl::string_view members);
  void OnMet(int64_t step);
  void OnPass(int64_t pass);
  void OnStep();

  size_t seen_ = 0;  // characters of the text
  std::string job_id_;
  std::map<int, pid_t> pids_;
  std::vector<int> members_;
  bool have_met_ = false;
  std::set<int> placed_;
  int64_t epochs_ = 1;
  int64_t passes_ = 0;
  double accuracy_ = 0;
  std::vector<int64_t> beginnings_;

  Progress progress_ = Progress::kMeets;
  std::set<int> lost_;     // since the job last trained
  int64_t met_after_ = 0;  // the step after which the first epoch without the lost members has continued
};

}  // namespace ronda::chaos

#endif  // RONDA_TESTS_CHAOS_JOB_LOG_H_
