// SPDX-License-Identifier: Apache-2.0

#include "tests/chaos/job_log.h"

#include <algorithm>
#include <regex>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace ronda::chaos {
namespace {

const std::regex& MetLine() {
  static const std::regex line("(\\d+) ranks? go on (?:after step|in epoch) (\\d+)");
  return line;
}

const std::regex& PassLine() {
  static const std::regex line("epoch (\\d+)(?: is done|: accuracy (\\d\\.\\d+))");
  return line;
}

const std::regex& AccuracyLine() {
  static const std::regex line("test accuracy (\\d\\.\\d+).*");
  return line;
}

const std::regex& PidLine() {
  static const std::regex line("member (\\d+) is pid (\\d+) on host .*");
  return line;
}

}  // namespace

JobLog::JobLog(int first_members) {
  for (int member = 0; member < first_members; ++member) {
    members_.push_back(member);
    placed_.insert(member);
  }
}

void JobLog::Read(absl::string_view text) {
  for (size_t end = text.find('\n', seen_); end != absl::string_view::npos; end = text.find('\n', seen_)) {
    ReadLine(text.substr(seen_, end - seen_));
    seen_ = end + 1;
  }
}

void JobLog::ExpectLossOf(int member) {
  lost_.insert(member);
  progress_ = Progress::kLosesMembers;
}

void JobLog::ReadLine(absl::string_view line) {
  std::smatch match;
  if (absl::ConsumePrefix(&line, "rondarun: ")) {
    const std::string said(line);
    if (absl::ConsumePrefix(&line, "job ")) {
      job_id_ = std::string(line.substr(0, line.find(':')));
    } else if (std::regex_match(said, match, PidLine())) {
      pids_[std::stoi(match[1])] = std::stoi(match[2]);
    } else if (const size_t at = line.find(" begins with member"); at != absl::string_view::npos) {
      OnEpoch(absl::StripPrefix(absl::StripPrefix(line.substr(at), " begins with member"), "s"));
    }
    return;
  }
  const size_t mark = line.find("]<stdout>: ");
  if (mark == absl::string_view::npos) return;
  const std::string said(line.substr(mark + 11));
  if (std::regex_match(said, match, MetLine())) {
    OnMet(std::stoll(match[2]));
  } else if (std::regex_match(said, match, PassLine())) {
    if (match[2].matched) accuracy_ = std::stod(match[2]);
    OnPass(std::stoll(match[1]));
  } else if (std::regex_match(said, match, AccuracyLine())) {
    accuracy_ = std::stod(match[1]);
  }
}

void JobLog::OnEpoch(absl::string_view members) {
  ++epochs_;
  have_met_ = false;
  members_.clear();
  for (const absl::string_view word : absl::StrSplit(members, ", ")) {
    int member = -1;
    if (!absl::SimpleAtoi(word, &member)) return;
    members_.push_back(member);
    placed_.insert(member);
  }
  const auto is_lost = [this](int member) { return lost_.count(member) != 0; };
  if (progress_ == Progress::kLosesMembers && std::none_of(members_.begin(), members_.end(), is_lost)) {
    progress_ = Progress::kMeets;
  }
}

// After the loss of a member, the launcher begins a new epoch. The line of the new epoch follows all lines that were
// printed before the loss.
void JobLog::OnMet(int64_t step) {
  have_met_ = true;
  beginnings_.push_back(step);
  if (progress_ == Progress::kMeets) {
    met_after_ = step;
    progress_ = Progress::kHasMet;
    // If no member has been lost, the line of an epoch counts as a completed step.
    if (lost_.empty()) OnStep();
  } else if (progress_ == Progress::kHasMet && step > met_after_) {
    OnStep();
  }
}

void JobLog::OnPass(int64_t pass) {
  passes_ = std::max(passes_, pass);
  if (progress_ == Progress::kHasMet) OnStep();
}

void JobLog::OnStep() {
  progress_ = Progress::kTrains;
  lost_.clear();
}

}  // namespace ronda::chaos
