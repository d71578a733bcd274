#include "runtime/monitor/jobs/reports.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/base/peer.h"

namespace ronda {
namespace {

std::vector<WatchedRank> WatchedOf(absl::Span<const SeenRank> ranks) {
  std::vector<WatchedRank> watched;
  for (const SeenRank& rank : ranks) watched.push_back(rank.now);
  return watched;
}

// Of a count that has grown from `before` to `now`.
double Rate(uint64_t before, uint64_t now, absl::Duration watched) {
  const double seconds = absl::ToDoubleSeconds(watched);
  return seconds <= 0 || now < before ? 0 : static_cast<double>(now - before) / seconds;
}

double Share(absl::Duration part, absl::Duration whole) {
  return whole <= absl::ZeroDuration() ? 0 : 100 * absl::FDivDuration(part, whole);
}

std::string Seconds(absl::Duration time) { return absl::StrFormat("%.1f s", absl::ToDoubleSeconds(time)); }

const char* StateOf(const ProcessTimes& times) {
  switch (times.state) {
    case 'R':
      return "runs";
    case 'T':
    case 't':
      return "stopped";
    case 'Z':
    case 'X':
      return "has ended";
    default:
      return "sleeps";
  }
}

const SeenRank* Find(absl::Span<const SeenRank> ranks, RankId rank) {
  for (const SeenRank& report : ranks) {
    if (report.now.rank == rank) return &report;
  }
  return nullptr;
}

std::string NameOf(const SeenRank& rank) {
  return ToString(
      Peer{.rank = rank.now.rank, .host = rank.identity.topology.hostname, .pid = rank.identity.process.pid});
}

std::string LastEventOf(const SeenRank& rank, FlightTime now) {
  if (!rank.now.sample.last.has_value()) return "";
  return absl::StrCat("; it ", DescribeEvent(*rank.now.sample.last, now));
}

std::string DescribeStandstill(absl::Span<const SeenRank> ranks, const Standstill& found, FlightTime now) {
  const std::string tensor = found.tensor.empty() ? "" : absl::StrCat(" in '", found.tensor, "'");
  std::string text = absl::StrCat(NameRanks(found.waiting), found.waiting.size() == 1 ? " waits" : " wait", tensor,
                                  " since ", Seconds(now - found.since), "\n");
  if (found.blamed.front().why == Holdup::kNetwork) return absl::StrCat(text, Describe(Holdup::kNetwork), "\n");
  for (const Standstill::Blamed& blamed : found.blamed) {
    const SeenRank* const rank = Find(ranks, blamed.rank);
    if (rank == nullptr) continue;
    absl::StrAppend(&text, "for ", NameOf(*rank), ": ", Describe(blamed.why), LastEventOf(*rank, now), "\n");
  }
  return text;
}

std::string DescribeStraggler(absl::Span<const SeenRank> ranks, const Lateness& lateness,
                              const RankLateness& straggler) {
  const SeenRank* const rank = Find(ranks, straggler.rank);
  const absl::Duration mean = straggler.blamed / std::max(straggler.last, 1);
  const char* const why = straggler.why == Holdup::kNotSubmitted
                              ? "its program submits its tensors later than the others"
                              : Describe(straggler.why);
  return absl::StrCat(NameOf(*rank), " came last into ", straggler.last, " of the last ", lateness.buckets,
                      " collectives, ", absl::StrFormat("%.1f ms", absl::ToDoubleMilliseconds(mean)),
                      " after the first rank on average: the others wait for it for ",
                      absl::StrFormat("%.0f %%", Share(straggler.blamed, lateness.span)), " of the time\n", why, "\n");
}

}  // namespace

std::string RanksTable(absl::Span<const SeenRank> ranks, const Lateness& lateness, absl::Duration watched) {
  std::string text = absl::StrFormat("%5s %9s %-9s %8s %9s %9s %10s %8s %7s %s\n", "rank", "pid", "process", "steps",
                                     "steps/s", "GB/s", "in buckets", "late", "wire", "schedule");
  for (size_t i = 0; i < ranks.size(); ++i) {
    const SeenRank& rank = ranks[i];
    const Statistics &before = rank.before.counts, &now = rank.now.sample.counts;
    const absl::Duration in_buckets =
        absl::Nanoseconds(static_cast<int64_t>(now.bucket_nanoseconds - before.bucket_nanoseconds));
    const absl::Duration late = lateness.ranks[i].total / std::max(lateness.buckets, 1);
    const double wire =
        now.payload_bytes == 0 ? 1 : static_cast<double>(now.wire_bytes) / static_cast<double>(now.payload_bytes);
    absl::StrAppend(&text, absl::StrFormat("%5d %9d %-9s %8d %9.1f %9.3f %8.0f %% %5.2f ms %7.2f %s\n", rank.now.rank,
                                           rank.identity.process.pid, StateOf(rank.now.after), now.steps,
                                           Rate(before.steps, now.steps, watched),
                                           Rate(before.payload_bytes, now.payload_bytes, watched) / 1e9,
                                           Share(in_buckets, watched), absl::ToDoubleMilliseconds(late), wire,
                                           now.schedules_begun > now.schedules_left ? "locked" : "negotiated"));
  }
  return text;
}

std::string WhyText(absl::Span<const SeenRank> ranks, const Moment& moment) {
  const std::vector<WatchedRank> watched = WatchedOf(ranks);
  if (const auto standstill = FindStandstill(watched, moment)) {
    return DescribeStandstill(ranks, *standstill, moment.now);
  }
  const Lateness lateness = MeasureLateness(watched, moment.watched);
  if (const RankLateness* const straggler = FindStraggler(lateness)) {
    return DescribeStraggler(ranks, lateness, *straggler);
  }
  return absl::StrCat("no rank holds the others up (", lateness.buckets, " collectives looked at)\n");
}

}  // namespace ronda
