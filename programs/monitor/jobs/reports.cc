// SPDX-License-Identifier: Apache-2.0

#include "programs/monitor/jobs/reports.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "programs/monitor/jobs/diagnosis.h"
#include "programs/monitor/jobs/job_control.h"
#include "runtime/base/bytes_text.h"
#include "runtime/base/peer.h"

namespace ronda {
namespace {

double Share(absl::Duration part, absl::Duration whole) {
  return whole <= absl::ZeroDuration() ? 0 : 100 * absl::FDivDuration(part, whole);
}

std::string Seconds(absl::Duration time) { return absl::StrFormat("%.1f s", absl::ToDoubleSeconds(time)); }

const char* StateOf(const RankSnapshot& rank) {
  if (!rank.is_alive) return "has ended";
  switch (rank.process_now.state) {
    case 'R':
      return "runs";
    case 'T':
    case 't':
      return "stopped";
    default:
      return "sleeps";
  }
}

const RankSnapshot* Find(const JobSnapshot& job, RankId number) {
  for (const RankSnapshot& rank : job.ranks) {
    if (rank.rank() == number) return &rank;
  }
  return nullptr;
}

std::string NameOf(const RankSnapshot& rank) {
  return ToString(Peer{.rank = rank.rank(), .host = rank.identity.topology.hostname, .pid = rank.identity.process.pid});
}

std::string LastEventOf(const RankSnapshot& rank, FlightTime now) {
  if (!rank.sample.last.has_value()) return "";
  return absl::StrCat("; it ", DescribeEvent(*rank.sample.last, now));
}

std::string DescribeStandstill(const JobSnapshot& job, const Standstill& found) {
  const std::string tensor = found.tensor.empty() ? "" : absl::StrCat(" in '", found.tensor, "'");
  std::string text = absl::StrCat(NameRanks(found.waiting), found.waiting.size() == 1 ? " waits" : " wait", tensor,
                                  " since ", Seconds(job.now - found.since), "\n");
  if (found.blamed.front().why == Holdup::kNetwork) return absl::StrCat(text, Describe(Holdup::kNetwork), "\n");
  for (const Standstill::Blamed& blamed : found.blamed) {
    const RankSnapshot* const rank = Find(job, blamed.rank);
    if (rank == nullptr) continue;
    absl::StrAppend(&text, "for ", NameOf(*rank), ": ", Describe(blamed.why), LastEventOf(*rank, job.now), "\n");
  }
  return text;
}

bool IsAcrossHosts(const JobSnapshot& job) {
  return std::any_of(job.ranks.begin(), job.ranks.end(), [](const RankSnapshot& rank) { return !rank.is_here; });
}

int SizeOf(const JobSnapshot& job) { return job.ranks.empty() ? 0 : job.ranks.front().identity.topology.size; }

std::string DescribeNetwork(const SlowNetwork& slow) {
  return absl::StrCat(NameRanks(slow.ranks), " on host ", slow.host, ": the network: a message there and back takes ",
                      TimeText(slow.round_trip), ", and each rank is in collectives for ",
                      absl::StrFormat("%.0f %%", 100 * slow.waited_share), " of the time or more\n");
}

std::string AgeOf(const JobSnapshot& job) {
  return absl::FormatDuration(absl::Trunc(job.now - job.origin.started, absl::Seconds(1)));
}

double StepsPerSecond(const JobSnapshot& job) {
  double most = 0;
  for (const RankSnapshot& rank : job.ranks) most = std::max(most, rank.rates.steps_per_second);
  return most;
}

size_t RanksHere(const JobSnapshot& job) {
  return static_cast<size_t>(
      std::count_if(job.ranks.begin(), job.ranks.end(), [](const RankSnapshot& rank) { return rank.is_here; }));
}

bool HasHoldup(const JobSnapshot& job) {
  return job.standstill.has_value() || job.network.has_value() || job.straggler.kind != StragglerVerdict::Kind::kNone;
}

}  // namespace

std::string HeadOf(const JobSnapshot& job) {
  const pid_t launcher = job.origin.launcher;
  return absl::StrCat("job ", NameOfJob(job.job, job.origin), ": ", RanksHere(job), " of ", SizeOf(job),
                      " ranks on this host, ", absl::StrFormat("%.1f steps/s", StepsPerSecond(job)), "\nstarted ",
                      AgeOf(job), " ago", launcher == 0 ? "" : absl::StrCat(" by rondarun, process ", launcher), ": ",
                      job.origin.command, "\n");
}

std::string JobsTable(const std::vector<JobSnapshot>& jobs) {
  size_t width = 4;
  for (const JobSnapshot& job : jobs) width = std::max({width, job.origin.name.size(), ShortId(job.job).size()});
  const int column = static_cast<int>(width);
  std::string text = absl::StrFormat("%-*s %-*s %12s %8s %9s %9s %s\n", column, "job", column, "name", "ranks here",
                                     "rondarun", "age", "steps/s", "command");
  for (const JobSnapshot& job : jobs) {
    const std::string launcher = job.origin.launcher == 0 ? "-" : absl::StrCat(job.origin.launcher);
    absl::StrAppend(&text, absl::StrFormat("%-*s %-*s %12s %8s %9s %9.1f %s\n", column, ShortId(job.job), column,
                                           job.origin.name.empty() ? "-" : job.origin.name,
                                           absl::StrCat(RanksHere(job), " of ", SizeOf(job)), launcher, AgeOf(job),
                                           StepsPerSecond(job), job.origin.command));
  }
  return text;
}

std::string RanksTable(const JobSnapshot& job) {
  std::string text = absl::StrFormat("%5s %9s %-9s %8s %9s %10s %7s %10s %9s %6s %s\n", "rank", "pid", "process",
                                     "steps", "steps/s", "late", "blamed", "in buckets", "GB/s", "wire", "schedule");
  for (const RankSnapshot& rank : job.ranks) {
    const Statistics& counts = rank.sample.counts;
    absl::StrAppend(
        &text, absl::StrFormat("%5d %9d %-9s %8d %9.1f %7.2f ms %5.1f %% %8.0f %% %9.3f %6.2f %s\n", rank.rank(),
                               rank.identity.process.pid, StateOf(rank), counts.steps, rank.rates.steps_per_second,
                               absl::ToDoubleMilliseconds(rank.rates.lateness), 100 * rank.rates.blamed_share,
                               100 * rank.rates.waited_share, rank.rates.bytes_per_second / 1e9, rank.rates.wire_ratio,
                               counts.schedules_begun > counts.schedules_left ? "locked" : "negotiated"));
  }
  return text;
}

std::string TopText(const JobSnapshot& job) {
  JobSnapshot sorted = job;
  std::stable_sort(sorted.ranks.begin(), sorted.ranks.end(), [](const RankSnapshot& a, const RankSnapshot& b) {
    return a.rates.blamed_share > b.rates.blamed_share;
  });
  const std::string missed =
      job.buckets_missed == 0 ? "" : absl::StrCat(" (", job.buckets_missed, " more went by unseen)");
  return absl::StrCat(HeadOf(job), job.buckets_measured, " collectives looked at", missed, "\n",
                      HasHoldup(job) ? WhyText(job) : "no rank holds the others up\n", "\n", RanksTable(sorted));
}

std::string TimeText(absl::Duration time) {
  constexpr const char* kUnits[] = {"us", "ms", "s"};
  double number = absl::ToDoubleMicroseconds(time);
  size_t unit = 0;
  for (; number >= 999.5 && unit + 1 < std::size(kUnits); ++unit) number /= 1000;
  if (number >= 999.5) return absl::StrFormat("%.0f %s", number, kUnits[unit]);
  return absl::StrFormat("%.3g %s", number, kUnits[unit]);
}

std::string SummaryLine(absl::string_view name, absl::string_view text) {
  return absl::StrFormat("  %-15s %s", name, text);
}

std::vector<std::string> SummaryOf(const JobSnapshot& job, absl::string_view of) {
  if (job.ranks.empty()) return {};
  const auto by = [&](double RankTotals::*share) {
    return std::minmax_element(job.ranks.begin(), job.ranks.end(), [&](const RankSnapshot& a, const RankSnapshot& b) {
      return a.totals.*share < b.totals.*share;
    });
  };
  const RankSnapshot& first = job.ranks.front();
  const Statistics& counts = first.sample.counts;
  const int size = first.identity.topology.size;
  std::vector<std::string> lines = {absl::StrCat("summary of ", of, job.ranks.size(), " of ", size,
                                                 size == 1 ? " rank" : " ranks", ", on this host:"),
                                    SummaryLine("steps", absl::StrCat(counts.steps))};
  if (first.totals.step_time > absl::ZeroDuration()) {
    lines.push_back(SummaryLine("time per step", TimeText(first.totals.step_time)));
  }
  if (first.totals.steps > 0) {
    const auto [least, most] = by(&RankTotals::waited_share);
    const auto [hidden, exposed] = by(&RankTotals::exposed_share);
    lines.push_back(
        SummaryLine("exposed", absl::StrFormat("%.0f to %.0f %% of a rank's time its program waited for tensors, "
                                               "%s of each step at most",
                                               100 * hidden->totals.exposed_share, 100 * exposed->totals.exposed_share,
                                               TimeText(exposed->totals.exposed))));
    lines.push_back(SummaryLine("in collectives",
                                absl::StrFormat("%.0f to %.0f %% of a rank's time", 100 * least->totals.waited_share,
                                                100 * most->totals.waited_share)));
  }
  if (first.totals.steps > 0 && job.buckets_measured > 0) {
    const RankSnapshot& slowest = *by(&RankTotals::blamed_share).second;
    lines.push_back(
        SummaryLine("slowest", absl::StrFormat("%s: last into %d of %d collectives, the others waited for it for "
                                               "%.1f %% of the time",
                                               NameOf(slowest), slowest.lateness.last, job.buckets_measured,
                                               100 * slowest.totals.blamed_share)));
  }
  lines.push_back(SummaryLine("bytes", absl::StrCat(BytesText(counts.payload_bytes), " of a rank's tensors, ",
                                                    BytesText(counts.wire_bytes), " as they travelled")));
  if (const uint64_t buckets = counts.buckets_agreed + counts.buckets_scheduled; buckets > 0) {
    lines.push_back(SummaryLine(
        "schedule", absl::StrFormat("%d of %d collectives without negotiation, left %d %s", counts.buckets_scheduled,
                                    buckets, counts.schedules_left, counts.schedules_left == 1 ? "time" : "times")));
  }
  if (job.buckets_missed > 0) lines.push_back(SummaryLine("unseen", absl::StrCat(job.buckets_missed, " collectives")));
  return lines;
}

std::string DescribeStraggler(const JobSnapshot& job, const StragglerVerdict& verdict) {
  using Kind = StragglerVerdict::Kind;
  const RankSnapshot* const rank = Find(job, verdict.rank);
  if (verdict.kind == Kind::kNone || rank == nullptr) return "";
  if (verdict.kind == Kind::kEvent) {
    return absl::StrCat(NameOf(*rank), " was late once in the last ", verdict.steps, " steps, ",
                        Seconds(job.now - verdict.since), " ago: the others waited for it for ",
                        TimeText(verdict.waited));
  }
  const char* const why = verdict.why == Holdup::kNotSubmitted ? "its program submits its tensors later than the others"
                                                               : Describe(verdict.why);
  return absl::StrCat(NameOf(*rank), " came last into ", verdict.last_steps, " of the last ", verdict.steps,
                      " steps: the others wait for it for ", TimeText(verdict.waited / verdict.last_steps),
                      " in each, ", absl::StrFormat("%.0f %%", Share(verdict.waited, verdict.span)), " of the time",
                      verdict.kind == Kind::kChronic ? "" : ", not for long enough to be called chronic", "; ", why);
}

std::string WhyText(const JobSnapshot& job) {
  if (job.standstill.has_value()) return DescribeStandstill(job, *job.standstill);
  if (job.network.has_value()) return DescribeNetwork(*job.network);
  if (const std::string straggler = DescribeStraggler(job, job.straggler); !straggler.empty()) {
    return absl::StrCat(straggler, "\n");
  }
  return absl::StrCat("no rank holds the others up (", job.buckets_measured, " collectives looked at",
                      IsAcrossHosts(job) ? absl::StrCat(", of ", job.ranks.size(), " of ", SizeOf(job), " ranks") : "",
                      ")\n");
}

}  // namespace ronda
