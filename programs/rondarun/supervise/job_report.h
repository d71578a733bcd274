// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_PROGRAMS_RONDARUN_SUPERVISE_JOB_REPORT_H_
#define RONDA_PROGRAMS_RONDARUN_SUPERVISE_JOB_REPORT_H_

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "programs/rondarun/output/console.h"
#include "programs/rondarun/output/output_sinks.h"
#include "programs/rondarun/supervise/job_part.h"
#include "runtime/base/clock.h"

namespace ronda {

// Shows a job to the user. Shows the ranks' output on the launcher's streams and in files, and at the end the reason
// why the job ended.
//
// Thread-compatible. The output and the clock must outlive this object.
class JobReport final : public JobListener {
 public:
  enum class Verbosity { kNormal, kVerbose };

  struct Options {
    int rank_count = 0;             // with kMember: at the beginning
    Naming naming = Naming::kRank;  // kMember: a member's end is reported, but is no failure of the job
    Verbosity verbosity = Verbosity::kNormal;
    LaunchOptions::LinePrefix line_prefix = LaunchOptions::LinePrefix::kRank;
    std::vector<Stream> hidden_streams;
    OutputFiles files;
  };

  JobReport(Options options, StandardOutput* output, const Clock* clock);

  void OnRankStart(RankId rank, pid_t pid, const std::string& host) override;
  void OnOutput(RankId rank, Stream stream, absl::string_view bytes) override;
  void OnOutputEnd(RankId rank, Stream stream) override;
  void OnRankEnd(RankEnd end) override;
  void OnHelperLine(absl::string_view helper, absl::string_view line) override;
  void OnJobFailure(absl::string_view what, int exit_code) override;
  void OnInputAwaited(RankId rank) override { console_.ShowPrompt(rank); }
  std::string LastErrorOf(RankId rank) const override;
  size_t Pending(Stream stream) const override { return output_->queue(stream)->pending().size(); }
  void Say(absl::string_view text) override;
  void Explain(absl::string_view text) override;

  // Returns whether some of the ranks' output could not be saved.
  bool has_lost_output() const { return has_lost_output_; }
  // Returns whether the job ended because a rank failed.
  bool rank_failed() const { return !failure_.has_value() && FirstFailure(ends_) != nullptr; }

  // Describes the signal with which the user ended the job, with the launcher's exit code in that case.
  struct Interruption {
    std::string what;
    int exit_code = 0;
  };

  // Prints why the job ended, and returns the launcher's exit code.
  int Conclude(const std::optional<Interruption>& interruption);

  // Returns the text that Conclude has printed, which is empty if the job was successful.
  const std::string& conclusion() const { return conclusion_; }

 private:
  struct Failure {
    std::string what;
    int exit_code = 0;
  };

  struct HelperLine {
    std::string helper;
    std::string text;
  };

  int SayConclusion(std::string text, int exit_code);

  // Adds a member that was not in the job at the start.
  void AddMember(RankId member);
  absl::string_view Kind() const { return options_.naming == Naming::kRank ? "rank " : "member "; }

  Options options_;
  StandardOutput* const output_;
  const Clock* const clock_;
  Console console_;
  std::vector<absl::Time> started_;  // by rank, or by member
  std::vector<RankEnd> ends_;
  std::deque<HelperLine> helper_lines_;  // the last ones that have not been shown
  std::optional<Failure> failure_;       // the first failure that no rank has caused
  std::string conclusion_;
  bool has_lost_output_ = false;
};

}  // namespace ronda

#endif  // RONDA_PROGRAMS_RONDARUN_SUPERVISE_JOB_REPORT_H_
