#include "runtime/launch/mpirun_report.h"

#include <sys/wait.h>

#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

namespace ronda {
namespace {

// The word behind `label`, up to a blank or one of ",.])"; empty if there is none.
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

// As waitpid() gives it.
void SetWaitStatus(int status, RankEnd* end) {
  end->exit_code = WIFSIGNALED(status) ? 0 : WEXITSTATUS(status);
  end->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

}  // namespace

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
  // The pid is that of the host's first rank, whichever rank it was that failed.
  if (!found_.has_value() && NumberAfter(line, "=   PID ")) {
    found_ = RankEnd{.rank = -1, .host = std::string(WordAfter(line, " RUNNING AT "))};
  }
  if (!found_.has_value()) return;
  const std::optional<int> code = NumberAfter(line, "=   EXIT CODE: ");
  if (!found_->failed() && code) found_->exit_code = *code;
  // The code of a rank that was killed is the signal, and only this says so.
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

}  // namespace ronda
