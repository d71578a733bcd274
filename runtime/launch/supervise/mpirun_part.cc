#include "runtime/launch/supervise/mpirun_part.h"

#include <algorithm>
#include <csignal>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ronda {
namespace {

constexpr absl::string_view kName = "mpirun";

}  // namespace

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
    TakeOutput(*rank, stream, bytes);
  } else {
    source(stream).own_lines.Feed(bytes, [this](absl::string_view line) { TakeLine(line); });
  }
}

void MpirunPart::TakeOutput(RankId rank, Stream stream, absl::string_view bytes) {
  Rank& known = ranks_[static_cast<size_t>(rank)];
  known.state = Rank::State::kStarted;
  StartMarkReader& mark = known.marks[static_cast<size_t>(stream)];
  mark.Feed(bytes, [&](absl::string_view own) { listener().OnOutput(rank, stream, own); });
  if (known.pid != 0 || !mark.pid().has_value()) return;
  known.pid = *mark.pid();
  listener().OnRankStart(rank, known.pid, known.host);
}

void MpirunPart::TakeLine(absl::string_view line) {
  report_.Add(line);
  listener().OnHelperLine(kName, line);
}

void MpirunPart::OnBytesEnd(Stream stream) {
  source(stream).output.Finish(
      [&](std::optional<RankId> rank, absl::string_view bytes) { Dispatch(stream, rank, bytes); });
  source(stream).own_lines.Finish([this](absl::string_view line) { TakeLine(line); });
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
  std::optional<RankEnd> failure = report_.failure();
  if (failure.has_value()) {
    Complete(&*failure);
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
