#include "runtime/launch/supervise/verdict.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <tuple>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/peer.h"

namespace ronda {
namespace {

// Longer ones are cut in the last line; the rank's own output has them in full.
constexpr size_t kMaxQuoted = 1000;

bool IsEarlier(const RankEnd& a, const RankEnd& b) {
  const auto key = [](const RankEnd& end) { return std::make_tuple(end.round, end.signal == 0, end.rank); };
  return key(a) < key(b);
}

bool FailedByItself(const RankEnd& end) { return end.failed() && end.cause == RankEnd::Cause::kItself; }

// Reads "3 (host a, pid 71)" at the start of `text`.
std::optional<RankId> ParseRankName(absl::string_view text) {
  size_t digits = 0;
  while (digits < text.size() && absl::ascii_isdigit(text[digits])) ++digits;
  RankId rank = 0;
  if (!absl::SimpleAtoi(text.substr(0, digits), &rank)) return std::nullopt;
  text.remove_prefix(digits);
  if (text.substr(0, 7) != " (host ") return std::nullopt;
  const size_t end = text.find(')');
  if (end == absl::string_view::npos || text.substr(0, end).find(", pid ") == absl::string_view::npos) {
    return std::nullopt;
  }
  return rank;
}

// The ranks that `error` names in the form that Ronda's own reports use.
std::vector<RankId> RanksNamedIn(absl::string_view error) {
  constexpr absl::string_view kWord = "rank ";
  std::vector<RankId> ranks;
  for (size_t at = error.find(kWord); at != absl::string_view::npos; at = error.find(kWord, at + 1)) {
    if (const auto rank = ParseRankName(error.substr(at + kWord.size()))) ranks.push_back(*rank);
  }
  return ranks;
}

// The rank that `end` blames, if that one failed by itself. A report that names its own rank blames no other: it tells
// of a disagreement.
const RankEnd* Blamed(const RankEnd& end, const std::vector<RankEnd>& ends) {
  const std::vector<RankId> named = RanksNamedIn(end.last_error);
  if (std::find(named.begin(), named.end(), end.rank) != named.end()) return nullptr;
  for (const RankId rank : named) {
    const auto found = std::find_if(ends.begin(), ends.end(), [&](const RankEnd& other) { return other.rank == rank; });
    if (found != ends.end() && FailedByItself(*found)) return &*found;
  }
  return nullptr;
}

}  // namespace

std::string SignalName(int signo) {
  const char* const name = sigabbrev_np(signo);
  return name != nullptr ? absl::StrCat("SIG", name) : absl::StrCat("signal ", signo);
}

std::string DescribeEnd(const RankEnd& end) {
  if (!end.lost.empty()) return absl::StrCat("was lost: ", end.lost);
  if (end.signal == 0) return absl::StrCat("exited with code ", end.exit_code);
  return absl::StrCat("was killed by signal ", end.signal, " (", SignalName(end.signal), ")");
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
  return first;  // they blame each other in a circle
}

std::string DescribeFailure(const RankEnd& failure, Naming naming) {
  const absl::string_view kind = naming == Naming::kRank ? "rank " : "member ";
  std::string text = failure.rank < 0 ? "a rank" : absl::StrCat(kind, failure.rank);
  const std::string pid = failure.pid == 0 ? "" : absl::StrCat("pid ", failure.pid, ", ");
  if (!failure.host.empty()) absl::StrAppend(&text, " (", pid, "host ", failure.host, ")");
  absl::StrAppend(&text, " ", DescribeEnd(failure));
  const absl::string_view error = absl::StripAsciiWhitespace(failure.last_error);
  const bool may_be_past = naming == Naming::kMember && !RanksNamedIn(error).empty();
  if (error.empty() || may_be_past) return text;
  absl::StrAppend(&text, "; last error: \"", error.substr(0, kMaxQuoted), error.size() > kMaxQuoted ? "..." : "", "\"");
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
