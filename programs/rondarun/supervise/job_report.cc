// SPDX-License-Identifier: Apache-2.0

#include "programs/rondarun/supervise/job_report.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace ronda {
namespace {

// At most this number of lines from helpers are kept, because more would hide the important ones.
constexpr size_t kMaxHelperLines = 60;

Console::Options ConsoleOptions(const JobReport::Options& options, const StandardOutput& output) {
  return {.rank_count = options.rank_count,
          .line_prefix = options.line_prefix,
          .media = {output.medium(Stream::kStdout), output.medium(Stream::kStderr)},
          .hidden = options.hidden_streams};
}

}  // namespace

JobReport::JobReport(Options options, StandardOutput* output, const Clock* clock)
    : options_(std::move(options)),
      output_(output),
      clock_(clock),
      console_(ConsoleOptions(options_, *output), output->queue(Stream::kStdout), output->queue(Stream::kStderr),
               Clock::Calendar()),
      started_(static_cast<size_t>(options_.rank_count), clock->Now()) {}

void JobReport::OnRankStart(RankId rank, pid_t pid, const std::string& host) {
  if (static_cast<size_t>(rank) >= started_.size()) AddMember(rank);
  started_[static_cast<size_t>(rank)] = clock_->Now();
  Explain(absl::StrCat(Kind(), rank, " is pid ", pid, " on host ", host));
}

void JobReport::AddMember(RankId member) {
  started_.resize(static_cast<size_t>(member) + 1);
  console_.AddRank(member);
  const absl::Status added = options_.files.Add(member);
  if (!added.ok()) console_.Say(added.message());
}

void JobReport::OnOutput(RankId rank, Stream stream, absl::string_view bytes) {
  const absl::Status saved = options_.files.Write(rank, stream, bytes);
  if (!saved.ok()) console_.Say(saved.message());
  has_lost_output_ |= !saved.ok();
  console_.Feed(rank, stream, bytes);
}

void JobReport::OnOutputEnd(RankId rank, Stream stream) { console_.Finish(rank, stream); }

std::string JobReport::LastErrorOf(RankId rank) const {
  const bool is_known = rank >= 0 && static_cast<size_t>(rank) < started_.size();
  return is_known ? std::string(console_.last_error(rank)) : "";
}

void JobReport::OnRankEnd(RankEnd end) {
  std::string text = DescribeEnd(end);
  if (end.rank >= 0 && static_cast<size_t>(end.rank) < started_.size()) {
    const absl::Duration lived = clock_->Now() - started_[static_cast<size_t>(end.rank)];
    absl::StrAppend(&text, " after ", absl::ToDoubleSeconds(absl::Trunc(lived, absl::Milliseconds(1))), " s");
  }
  Explain(absl::StrCat(Kind(), end.rank, " (pid ", end.pid, ") ", text));
  if (options_.naming == Naming::kRank) {
    ends_.push_back(std::move(end));
  } else if (end.failed() && end.cause == RankEnd::Cause::kItself) {
    console_.Say(DescribeFailure(end, Naming::kMember));
  }
}

void JobReport::OnHelperLine(absl::string_view helper, absl::string_view line) {
  if (options_.verbosity == Verbosity::kVerbose) {
    console_.Say(absl::StrCat(helper, ": ", line));
    return;
  }
  helper_lines_.push_back({.helper = std::string(helper), .text = std::string(line)});
  if (helper_lines_.size() > kMaxHelperLines) helper_lines_.pop_front();
}

void JobReport::OnJobFailure(absl::string_view what, int exit_code) {
  if (!failure_.has_value()) failure_ = Failure{.what = std::string(what), .exit_code = exit_code};
}

void JobReport::Say(absl::string_view text) { console_.Say(text); }

void JobReport::Explain(absl::string_view text) {
  if (options_.verbosity == Verbosity::kVerbose) console_.Say(text);
}

int JobReport::SayConclusion(std::string text, int exit_code) {
  console_.Say(text);
  conclusion_ = std::move(text);
  return exit_code;
}

int JobReport::Conclude(const std::optional<Interruption>& interruption) {
  if (failure_.has_value()) {
    for (const HelperLine& line : helper_lines_) {
      const bool is_repeated = absl::StrContains(failure_->what, absl::StripAsciiWhitespace(line.text));
      if (!is_repeated) console_.Say(absl::StrCat(line.helper, ": ", line.text));
    }
    return SayConclusion(failure_->what, failure_->exit_code);
  }
  if (const RankEnd* const failure = FirstFailure(ends_)) {
    return SayConclusion(DescribeFailure(*failure, ends_), ExitCodeOf(*failure));
  }
  if (interruption.has_value()) {
    return SayConclusion(absl::StrCat("the job was ended: ", interruption->what), interruption->exit_code);
  }
  return 0;
}

}  // namespace ronda
