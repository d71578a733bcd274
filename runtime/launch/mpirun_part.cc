#include "runtime/launch/mpirun_part.h"

#include <algorithm>
#include <csignal>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ronda {
namespace {

constexpr absl::string_view kName = "mpirun";

}  // namespace

MpirunPart::MpirunPart(ChildProcess::Options options, std::vector<std::string> hosts)
    : JobPart(std::move(options)),
      hosts_(std::move(hosts)),
      sources_({Source{.output = TaggedOutput(static_cast<int>(hosts_.size())), .own_lines = {}},
                Source{.output = TaggedOutput(static_cast<int>(hosts_.size())), .own_lines = {}}}) {}

std::vector<RankId> MpirunPart::RunningRanks() const {
  std::vector<RankId> ranks(running() ? hosts_.size() : 0);
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

void MpirunPart::OnBytes(Stream stream, absl::string_view bytes) {
  source(stream).output.Feed(bytes,
                             [&](std::optional<RankId> rank, absl::string_view part) { Dispatch(stream, rank, part); });
}

void MpirunPart::Dispatch(Stream stream, std::optional<RankId> rank, absl::string_view bytes) {
  if (rank.has_value()) {
    listener().OnOutput(*rank, stream, bytes);
  } else {
    source(stream).own_lines.Feed(bytes, [this](absl::string_view line) { TakeLine(line); });
  }
}

void MpirunPart::TakeLine(absl::string_view line) {
  report_.Add(line);
  listener().OnHelperLine(kName, line);
}

void MpirunPart::OnBytesEnd(Stream stream) {
  source(stream).output.Finish(
      [&](std::optional<RankId> rank, absl::string_view bytes) { Dispatch(stream, rank, bytes); });
  source(stream).own_lines.Finish([this](absl::string_view line) { TakeLine(line); });
  for (size_t rank = 0; rank < hosts_.size(); ++rank) listener().OnOutputEnd(static_cast<RankId>(rank), stream);
}

void MpirunPart::OnEnd(const ChildProcess::End& end) {
  std::optional<RankEnd> failure = report_.failure();
  if (failure.has_value()) {
    const auto rank = static_cast<size_t>(failure->rank);
    if (failure->rank >= 0 && rank < hosts_.size() && failure->host.empty()) failure->host = hosts_[rank];
    failure->cause = cause();
    listener().OnRankEnd(*std::move(failure));
  } else if ((end.exit_code != 0 || end.signal != 0) && cause() == RankEnd::Cause::kItself) {
    const RankEnd own = {.exit_code = end.exit_code, .signal = end.signal};
    listener().OnJobFailure(absl::StrCat(kName, " ", DescribeEnd(own)), ExitCodeOf(own));
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
