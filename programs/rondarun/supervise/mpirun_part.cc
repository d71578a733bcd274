// SPDX-License-Identifier: Apache-2.0

#include "programs/rondarun/supervise/mpirun_part.h"

#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstddef>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "programs/options/hosts.h"

namespace ronda {
namespace {

constexpr std::array<absl::string_view, 3> kEnds = {"]<stdout>:", "]<stderr>:", "]<stddiag>:"};

// The maximum number of digits in a number of a mark.
constexpr size_t kMaxDigits = 10;

struct Mark {
  enum class Kind { kNone, kIncomplete, kMark } kind = Kind::kNone;
  RankId rank = 0;
  size_t length = 0;
};

constexpr Mark kNoMark = {};
constexpr Mark kIncompleteMark = {.kind = Mark::Kind::kIncomplete};

size_t CountDigits(absl::string_view text) {
  size_t count = 0;
  while (count < text.size() && count <= kMaxDigits && absl::ascii_isdigit(text[count])) ++count;
  return count;
}

// Parses the rest of a mark, after a rank's number that ends at `begin`. It must be one of kEnds.
Mark ReadEnd(absl::string_view text, size_t begin, RankId rank) {
  const absl::string_view rest = text.substr(begin);
  for (const absl::string_view end : kEnds) {
    if (absl::StartsWith(rest, end)) return {Mark::Kind::kMark, rank, begin + end.size()};
    if (absl::StartsWith(end, rest)) return kIncompleteMark;
  }
  return kNoMark;
}

// Parses a mark at the start of `text`, which starts with "[".
Mark ReadMark(absl::string_view text) {
  size_t at = 1;
  const size_t job_digits = CountDigits(text.substr(at));
  at += job_digits;
  if (at == text.size() && job_digits <= kMaxDigits) return kIncompleteMark;
  if (job_digits == 0 || job_digits > kMaxDigits || text[at] != ',') return kNoMark;
  const size_t rank_begin = ++at;
  const size_t rank_digits = CountDigits(text.substr(rank_begin));
  at += rank_digits;
  if (at == text.size() && rank_digits <= kMaxDigits) return kIncompleteMark;
  RankId rank = 0;
  if (!absl::SimpleAtoi(text.substr(rank_begin, rank_digits), &rank)) return kNoMark;
  return ReadEnd(text, at, rank);
}

constexpr absl::string_view kLabel = "ronda-start ";

// Every line with a start mark is shorter than this, because a pid has fewer than 12 digits.
constexpr size_t kMaxLength = kLabel.size() + 12;

// Returns whether `text`, which has no newline, can become a mark when more bytes arrive.
bool MayBecomeMark(absl::string_view text) {
  return text.size() <= kMaxLength && text.substr(0, kLabel.size()) == kLabel.substr(0, text.size());
}

// Parses the pid in a start mark. `line` must not contain a newline.
std::optional<pid_t> ReadStartMark(absl::string_view line) {
  pid_t pid = 0;
  if (!absl::StartsWith(line, kLabel) || !absl::SimpleAtoi(line.substr(kLabel.size()), &pid)) return std::nullopt;
  return pid;
}

// Returns the word between `label` and the next blank, or "" if the line does not contain `label`.
absl::string_view WordAfter(absl::string_view line, absl::string_view label) {
  const size_t at = line.find(label);
  if (at == absl::string_view::npos) return "";
  const absl::string_view rest = absl::StripLeadingAsciiWhitespace(line.substr(at + label.size()));
  return rest.substr(0, rest.find_first_of(" \t\r"));
}

std::optional<int> NumberAfter(absl::string_view line, absl::string_view label) {
  int number = 0;
  if (absl::SimpleAtoi(WordAfter(line, label), &number)) return number;
  return std::nullopt;
}

// Sets the exit code and the signal from `status`, which is of the form that waitpid() returns.
void SetWaitStatus(int status, RankEnd* end) {
  end->exit_code = WIFSIGNALED(status) ? 0 : WEXITSTATUS(status);
  end->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

constexpr absl::string_view kName = "mpirun";

// Returns whether a line says nothing that the user needs to know. Open MPI moves each ssh process into a process group
// of its own, both in the child and in the parent. On a busy machine the child may be first. The parent's own attempt
// then fails, and the parent prints a warning.
bool IsHarmless(absl::string_view line) {
  return absl::StrContains(line, "plm:rsh: Warning: setpgid(") &&
         absl::StrContains(line, "failed in parent with errno=Permission denied");
}

}  // namespace

void TaggedOutput::Feed(absl::string_view bytes, Emit emit) {
  std::string joined;
  if (!held_.empty()) {
    joined = held_ + std::string(bytes);
    held_.clear();
    bytes = joined;
  }
  size_t text_begin = 0;
  for (size_t at = bytes.find('['); at != absl::string_view::npos; at = bytes.find('[', at)) {
    const Mark mark = ReadMark(bytes.substr(at));
    if (mark.kind == Mark::Kind::kNone || mark.rank >= rank_count_) {
      ++at;
      continue;
    }
    EmitText(bytes.substr(text_begin, at - text_begin), emit);
    if (mark.kind == Mark::Kind::kIncomplete) {
      held_ = std::string(bytes.substr(at));
      return;
    }
    source_ = mark.rank;
    at += mark.length;
    text_begin = at;
  }
  EmitText(bytes.substr(text_begin), emit);
}

void TaggedOutput::Finish(Emit emit) {
  EmitText(held_, emit);
  held_.clear();
}

// Text after a newline is not the rank's, because the rank's next line starts with its own mark.
void TaggedOutput::EmitText(absl::string_view text, Emit emit) {
  if (text.empty()) return;
  const size_t newline = source_.has_value() ? text.find('\n') : absl::string_view::npos;
  if (newline == absl::string_view::npos) {
    emit(source_, text);
    return;
  }
  emit(source_, text.substr(0, newline + 1));
  source_.reset();
  EmitText(text.substr(newline + 1), emit);
}

std::vector<std::string> WithStartMark(const std::vector<std::string>& command, absl::string_view preparation) {
  const std::string script = absl::StrCat("echo ronda-start $$ >&2; ", preparation, "exec \"$@\"");
  // The shell prefixes its error messages about the command with the last word.
  std::vector<std::string> words = {"/bin/sh", "-c", script, "rondarun"};
  words.insert(words.end(), command.begin(), command.end());
  return words;
}

void StartMarkReader::Feed(absl::string_view bytes, Emit emit) {
  if (state_ == State::kRest) {
    emit(bytes);
    return;
  }
  held_.append(bytes.data(), bytes.size());
  const size_t newline = held_.find('\n');
  if (newline == std::string::npos && MayBecomeMark(held_)) return;
  state_ = State::kRest;
  const std::string held = std::exchange(held_, {});
  pid_ = ReadStartMark(absl::string_view(held).substr(0, newline));
  const absl::string_view rest = absl::string_view(held).substr(pid_.has_value() ? newline + 1 : 0);
  if (!rest.empty()) emit(rest);
}

void StartMarkReader::Finish(Emit emit) {
  state_ = State::kRest;
  if (!held_.empty()) emit(std::exchange(held_, {}));
}

void MpirunReport::Add(absl::string_view line) {
  ReadNotice(line);
  ReadProcessName(line);
  ReadTermination(line);
  ReadExitCodes(line);
}

void MpirunReport::ReadNotice(absl::string_view line) {
  const std::optional<int> rank = NumberAfter(line, "noticed that process rank ");
  const std::optional<int> signal = NumberAfter(line, " exited on signal ");
  if (found_.has_value() || !rank || !signal) return;
  found_ = RankEnd{.rank = *rank,
                   .pid = NumberAfter(line, " with PID ").value_or(0),
                   .host = std::string(WordAfter(line, " on node ")),
                   .signal = *signal};
}

void MpirunReport::ReadProcessName(absl::string_view line) {
  const absl::string_view name = WordAfter(line, "Process name: ");
  RankId rank = 0;
  if (!found_.has_value() && absl::EndsWith(name, "]") &&
      absl::SimpleAtoi(name.substr(0, name.size() - 1).substr(name.rfind(',') + 1), &rank)) {
    found_ = RankEnd{.rank = rank};
  }
  const std::optional<int> code = NumberAfter(line, "Exit code: ");
  if (found_.has_value() && !found_->failed() && code) found_->exit_code = *code;
}

void MpirunReport::ReadTermination(absl::string_view line) {
  // Here mpirun gives the pid of the first rank on the host, even if another rank failed, so the pid is not used.
  if (!found_.has_value() && NumberAfter(line, "=   PID ")) {
    found_ = RankEnd{.rank = -1, .host = std::string(WordAfter(line, " RUNNING AT "))};
  }
  if (!found_.has_value()) return;
  const std::optional<int> code = NumberAfter(line, "=   EXIT CODE: ");
  if (!found_->failed() && code) found_->exit_code = *code;
  // If a signal killed a rank, mpirun reports the signal's number as the exit code. Only the EXIT STRING line shows
  // that the rank was killed by a signal.
  const std::optional<int> signal = NumberAfter(line.substr(0, line.rfind(')')), "EXIT STRING: Killed (signal ");
  if (signal) {
    found_->exit_code = 0;
    found_->signal = *signal;
  }
}

void MpirunReport::ReadExitCodes(absl::string_view line) {
  const size_t at = line.find("] Exit codes: ");
  if (at == absl::string_view::npos || numbered_.has_value()) return;
  RankId rank = 0;
  std::string host;
  for (const absl::string_view word : absl::StrSplit(line.substr(at + 14), absl::ByAnyChar(" ,"), absl::SkipEmpty())) {
    if (word.front() == '[') {
      host = std::string(word.substr(1, word.find(']') - 1));
      continue;
    }
    int status = 0;
    if (!absl::SimpleAtoi(word, &status)) return;
    if (status != 0) {
      numbered_ = RankEnd{.rank = rank, .host = host};
      SetWaitStatus(status, &*numbered_);
      return;
    }
    ++rank;
  }
}

std::optional<RankEnd> MpirunReport::failure() const {
  if (found_.has_value() && found_->failed()) return found_;
  return numbered_;
}

void SshReport::Add(absl::string_view line) {
  constexpr absl::string_view kNoKey = "Host key verification failed.";
  line = absl::StripAsciiWhitespace(line);
  const bool is_end = absl::StartsWith(line, "ssh: ") || absl::StartsWith(line, "kex_exchange_identification: ") ||
                      absl::StrContains(line, ": Permission denied (") || line == kNoKey;
  if (is_end && words_.empty()) {
    // If `line` is kNoKey, the previous line names the host.
    words_ = line == kNoKey ? absl::StrCat(previous_line_, previous_line_.empty() ? "" : " ", line) : std::string(line);
  }
  previous_line_ = std::string(line);
}

MpirunPart::MpirunPart(ChildProcess::Options options, const std::vector<std::string>& hosts)
    : JobPart(std::move(options)),
      ranks_(hosts.size()),
      sources_({Source{.output = TaggedOutput(static_cast<int>(hosts.size())), .own_lines = {}},
                Source{.output = TaggedOutput(static_cast<int>(hosts.size())), .own_lines = {}}}) {
  for (size_t rank = 0; rank < hosts.size(); ++rank) ranks_[rank].host = hosts[rank];
}

std::vector<RankId> MpirunPart::RunningRanks() const {
  std::vector<RankId> ranks(running() ? ranks_.size() : 0);
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

std::vector<AwaitedRank> MpirunPart::AwaitedRanks() const {
  std::vector<AwaitedRank> awaited;
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (ranks_[rank].state == Rank::State::kStarted) continue;
    awaited.push_back({.rank = static_cast<RankId>(rank), .host = ranks_[rank].host});
  }
  return awaited;
}

void MpirunPart::OnBytes(Stream stream, absl::string_view bytes) {
  source(stream).output.Feed(bytes,
                             [&](std::optional<RankId> rank, absl::string_view part) { Dispatch(stream, rank, part); });
}

void MpirunPart::Dispatch(Stream stream, std::optional<RankId> rank, absl::string_view bytes) {
  if (rank.has_value()) {
    ReceiveOutput(*rank, stream, bytes);
  } else {
    source(stream).own_lines.Feed(bytes, [this](absl::string_view line) { ReceiveLine(line); });
  }
}

void MpirunPart::ReceiveOutput(RankId rank, Stream stream, absl::string_view bytes) {
  Rank& known = ranks_[static_cast<size_t>(rank)];
  known.state = Rank::State::kStarted;
  StartMarkReader& mark = known.marks[static_cast<size_t>(stream)];
  mark.Feed(bytes, [&](absl::string_view own) { listener().OnOutput(rank, stream, own); });
  if (known.pid != 0 || !mark.pid().has_value()) return;
  known.pid = *mark.pid();
  listener().OnRankStart(rank, known.pid, known.host);
}

void MpirunPart::ReceiveLine(absl::string_view line) {
  // rondarun shows these lines only with --verbose. If a host cannot be reached, mpirun speculates at length about the
  // reason.
  if (IsUnreached() || IsHarmless(line)) {
    listener().Explain(absl::StrCat(kName, ": ", line));
    return;
  }
  report_.Add(line);
  ssh_.Add(line);
  // Skip the horizontal lines that mpirun draws.
  if (first_line_.empty() && line.find_first_not_of("-= ") != absl::string_view::npos) first_line_ = std::string(line);
  listener().OnHelperLine(kName, line);
  // End mpirun if ssh cannot reach a host, because Hydra would wait for that host forever.
  if (IsUnreached()) process().SignalAlone(SIGTERM);
}

bool MpirunPart::IsUnreached() const { return !ssh_.words().empty() && !AwaitedRanks().empty(); }

std::string MpirunPart::DescribeUnreached() const {
  std::vector<HostSlots> hosts;
  for (const Rank& rank : ranks_) AddHost({.host = rank.host, .slots = 1}, &hosts);
  return absl::StrCat(kName, " cannot start the ranks: ", ssh_.words(), "; rondarun --check -H ", FormatHosts(hosts),
                      " looks at the hosts");
}

void MpirunPart::OnBytesEnd(Stream stream) {
  source(stream).output.Finish(
      [&](std::optional<RankId> rank, absl::string_view bytes) { Dispatch(stream, rank, bytes); });
  source(stream).own_lines.Finish([this](absl::string_view line) { ReceiveLine(line); });
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const auto rank = static_cast<RankId>(i);
    ranks_[i].marks[static_cast<size_t>(stream)].Finish(
        [&](absl::string_view own) { listener().OnOutput(rank, stream, own); });
    listener().OnOutputEnd(rank, stream);
  }
}

void MpirunPart::Complete(RankEnd* failure) const {
  const auto rank = static_cast<size_t>(failure->rank);
  if (failure->rank < 0 || rank >= ranks_.size()) return;
  if (failure->host.empty()) failure->host = ranks_[rank].host;
  if (failure->pid == 0) failure->pid = ranks_[rank].pid;
}

void MpirunPart::OnEnd(const ChildProcess::End& end) {
  if (IsUnreached() && cause() == RankEnd::Cause::kItself) {
    listener().OnJobFailure(DescribeUnreached(), 1);
    return;
  }
  std::optional<RankEnd> failure = report_.failure();
  if (failure.has_value()) {
    Complete(&*failure);
    failure->cause = cause();
    listener().OnRankEnd(*std::move(failure));
  } else if ((end.exit_code != 0 || end.signal != 0) && cause() == RankEnd::Cause::kItself) {
    const RankEnd own = {.exit_code = end.exit_code, .signal = end.signal};
    const std::string why = first_line_.empty() ? "" : absl::StrCat(" (", first_line_, ")");
    listener().OnJobFailure(absl::StrCat(kName, " ", DescribeEnd(own), why), ExitCodeOf(own));
  }
}

void MpirunPart::Pass(int signo) {
  if (signo == SIGKILL) {
    process().SignalGroup(signo);
  } else {
    process().SignalAlone(signo);
  }
}

}  // namespace ronda
