// SPDX-License-Identifier: Apache-2.0

#include "programs/rondarun/supervise/verdict.h"

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <tuple>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/peer.h"

namespace ronda {
namespace {

// The launcher's last line contains at most this many characters of a rank's error. The full text is in the rank's own
// output.
constexpr size_t kMaxQuoted = 1000;

bool IsEarlier(const RankEnd& a, const RankEnd& b) {
  const auto key = [](const RankEnd& end) { return std::make_tuple(end.round, end.signal == 0, end.rank); };
  return key(a) < key(b);
}

bool FailedByItself(const RankEnd& end) { return end.failed() && end.cause == RankEnd::Cause::kItself; }

// A rank that an error text names in the form "rank 3 (host a, pid 71)", as Ronda's reports do.
struct Named {
  RankId rank = 0;
  bool has_left = false;  // the error says that the rank has shut down, so later events are not the cause
};

// Parses "3 (host a, pid 71) has shut down" at the start of `text`.
std::optional<Named> ParseRankName(absl::string_view text) {
  size_t digits = 0;
  while (digits < text.size() && absl::ascii_isdigit(text[digits])) ++digits;
  Named named;
  if (!absl::SimpleAtoi(text.substr(0, digits), &named.rank)) return std::nullopt;
  text.remove_prefix(digits);
  if (text.substr(0, 7) != " (host ") return std::nullopt;
  const size_t end = text.find(')');
  if (end == absl::string_view::npos || text.substr(0, end).find(", pid ") == absl::string_view::npos) {
    return std::nullopt;
  }
  named.has_left = absl::StartsWith(text.substr(end), ") has shut down");
  return named;
}

std::vector<Named> RanksNamedIn(absl::string_view error) {
  constexpr absl::string_view kWord = "rank ";
  std::vector<Named> ranks;
  for (size_t at = error.find(kWord); at != absl::string_view::npos; at = error.find(kWord, at + 1)) {
    if (const auto rank = ParseRankName(error.substr(at + kWord.size()))) ranks.push_back(*rank);
  }
  return ranks;
}

const RankEnd* Find(RankId rank, const std::vector<RankEnd>& ends) {
  const auto found = std::find_if(ends.begin(), ends.end(), [&](const RankEnd& end) { return end.rank == rank; });
  return found == ends.end() ? nullptr : &*found;
}

// Returns the ranks that the last error of `end` names as the cause. If the error also names the rank of `end` itself,
// it describes a disagreement between ranks, so the result is empty.
std::vector<Named> BlamedBy(const RankEnd& end) {
  std::vector<Named> named = RanksNamedIn(end.last_error);
  const auto is_own = [&](const Named& each) { return each.rank == end.rank; };
  if (std::any_of(named.begin(), named.end(), is_own)) named.clear();
  return named;
}

// Returns whether another rank reports that the rank of `end` has shut down.
bool HasLeft(const RankEnd& end, const std::vector<RankEnd>& ends) {
  return std::any_of(ends.begin(), ends.end(), [&](const RankEnd& other) {
    const std::vector<Named> blamed = BlamedBy(other);
    return std::any_of(blamed.begin(), blamed.end(),
                       [&](const Named& each) { return each.rank == end.rank && each.has_left; });
  });
}

// Returns the rank that `end` blames, if that rank failed by itself.
const RankEnd* Blamed(const RankEnd& end, const std::vector<RankEnd>& ends) {
  if (HasLeft(end, ends)) return nullptr;
  for (const Named& named : BlamedBy(end)) {
    const RankEnd* const other = Find(named.rank, ends);
    if (other != nullptr && FailedByItself(*other)) return other;
  }
  return nullptr;
}

// Returns the text to append to "was killed by signal 9 (SIGKILL)" about processes that the kernel has killed for lack
// of memory.
std::string DescribeOomKills(const OomKills& kills) {
  constexpr absl::string_view kRemedy = ": give the host or container more memory, or run fewer ranks there";
  if (kills.of_group > 0) {
    return absl::StrCat(" by the kernel for lack of memory (", kills.of_group, " in its control group since the job ",
                        "began)", kRemedy);
  }
  if (kills.of_host == 0) return "";
  return absl::StrCat(", and since the job began its host has killed ", kills.of_host,
                      kills.of_host == 1 ? " process" : " processes", " for lack of memory", kRemedy);
}

// Returns a text such as " (pid 71, host a)".
std::string PlaceOf(const RankEnd& end) {
  const std::string pid = end.pid == 0 ? "" : absl::StrCat("pid ", end.pid, ", ");
  return end.host.empty() ? "" : absl::StrCat(" (", pid, "host ", end.host, ")");
}

}  // namespace

std::string SignalName(int signo) {
  const char* const name = sigabbrev_np(signo);
  return name != nullptr ? absl::StrCat("SIG", name) : absl::StrCat("signal ", signo);
}

std::string DescribeEnd(const RankEnd& end) {
  if (!end.lost.empty()) return absl::StrCat("was lost: ", end.lost);
  if (end.signal == 0) return absl::StrCat("exited with code ", end.exit_code);
  const std::string text = absl::StrCat("was killed by signal ", end.signal, " (", SignalName(end.signal), ")");
  return end.signal == SIGKILL ? text + DescribeOomKills(end.oom_kills) : text;
}

const RankEnd* FirstFailure(const std::vector<RankEnd>& ends) {
  const RankEnd* first = nullptr;
  for (const RankEnd& end : ends) {
    if (FailedByItself(end) && (first == nullptr || IsEarlier(end, *first))) first = &end;
  }
  if (first == nullptr) return nullptr;
  const RankEnd* cause = first;
  for (size_t steps = 0; steps < ends.size(); ++steps) {
    const RankEnd* const blamed = Blamed(*cause, ends);
    if (blamed == nullptr) return cause;
    cause = blamed;
  }
  return first;  // the ranks blame each other in a circle
}

std::string DescribeEndAndError(const RankEnd& end, Naming naming) {
  std::string text = DescribeEnd(end);
  const absl::string_view error = absl::StripAsciiWhitespace(end.last_error);
  const bool may_be_past = naming == Naming::kMember && !RanksNamedIn(error).empty();
  if (error.empty() || may_be_past) return text;
  absl::StrAppend(&text, "; last error: \"", error.substr(0, kMaxQuoted), error.size() > kMaxQuoted ? "..." : "", "\"");
  return text;
}

std::string DescribeFailure(const RankEnd& failure, Naming naming) {
  const absl::string_view kind = naming == Naming::kRank ? "rank " : "member ";
  const std::string who = failure.rank < 0 ? "a rank" : absl::StrCat(kind, failure.rank);
  return absl::StrCat(who, PlaceOf(failure), " ", DescribeEndAndError(failure, naming));
}

std::string DescribeFailure(const RankEnd& failure, const std::vector<RankEnd>& ends) {
  RankEnd described = failure;
  // If the rank had already shut down when it reported about other ranks, its report does not show the cause.
  if (HasLeft(failure, ends) && !BlamedBy(failure).empty()) described.last_error.clear();
  std::string text = DescribeFailure(described);
  for (const Named& named : BlamedBy(described)) {
    const RankEnd* const other = Find(named.rank, ends);
    if (other == nullptr || other->failed() || other->cause != RankEnd::Cause::kItself) continue;
    absl::StrAppend(&text, "; rank ", other->rank, PlaceOf(*other),
                    " had ended with exit code 0, too early for the others");
    break;
  }
  return text;
}

int ExitCodeOf(const RankEnd& failure) {
  if (!failure.lost.empty()) return 1;
  return failure.signal != 0 ? 128 + failure.signal : failure.exit_code;
}

int ExitCodeOf(const absl::Status& start_error) {
  if (absl::IsNotFound(start_error)) return 127;
  return absl::IsPermissionDenied(start_error) ? 126 : 1;
}

std::string DescribeLateStart(const std::vector<AwaitedRank>& ranks, absl::Duration timeout) {
  std::vector<RankId> numbers;
  std::vector<std::string> hosts;
  for (const AwaitedRank& awaited : ranks) {
    numbers.push_back(awaited.rank);
    if (std::find(hosts.begin(), hosts.end(), awaited.host) == hosts.end()) hosts.push_back(awaited.host);
  }
  std::sort(numbers.begin(), numbers.end());
  return absl::StrCat(
      NameRanks(numbers), " (", hosts.size() == 1 ? "host " : "hosts ", absl::StrJoin(hosts, ", "), ") ",
      ranks.size() == 1 ? "was" : "were", " not started within ", absl::FormatDuration(timeout),
      ": rondarun --check with the same hosts and --network-interfaces shows whether they, and this machine, reach "
      "each other; if they are only slow, give them more time with --start-timeout");
}

}  // namespace ronda
