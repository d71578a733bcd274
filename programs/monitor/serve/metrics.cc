// SPDX-License-Identifier: Apache-2.0

#include "programs/monitor/serve/metrics.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "runtime/base/operation.h"
#include "runtime/monitor/rank_words.h"

namespace ronda {
namespace {

// One value of a metric, for one rank or for the ranks that are combined as "others". `suffix` is appended to the
// metric's name, for example "_sum"; it may be empty. `labels` follow the labels for the job and the rank.
struct Value {
  std::string suffix;
  std::string labels;  // "", or such as ",le=\"1\""
  double number = 0;
};
using Values = std::vector<Value>;

// How to combine the values of several ranks.
enum class Merge { kSum, kLeast, kLeaveOut };

// The maximum number of characters of a command in a label. It is small because every reply contains the command.
constexpr size_t kMostOfCommand = 200;

// One row of the table of metrics.
struct Metric {
  const char* name;
  const char* type;
  const char* help;
  Merge merge;
  Values (*values)(const RankSnapshot& rank, absl::Time clock_zero);
};

// Makes a label. Replaces characters of the value that are not printable ASCII. Such characters could break the format,
// and do not occur in names of jobs and hosts.
std::string Label(absl::string_view name, absl::string_view value) {
  std::string text = absl::StrCat(name, "=\"");
  for (const char c : value) {
    if (c == '\n') {
      text += "\\n";
      continue;
    }
    if (c == '"' || c == '\\') text += '\\';
    text += c < ' ' || c > '~' ? '?' : c;
  }
  return text + "\"";
}

// Returns the shortest text that is parsed as exactly this number.
std::string Text(double number) {
  std::array<char, 32> buffer;
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), number).ptr;
  return std::string(buffer.data(), end);
}

Values One(double number) { return {{.number = number}}; }
Values One(uint64_t count) { return One(static_cast<double>(count)); }

Values RankInfo(const RankSnapshot& rank, absl::Time) {
  const Topology& place = rank.identity.topology;
  return {{.labels = absl::StrCat(",", Label("host", place.hostname), ",",
                                  Label("pid", absl::StrCat(rank.identity.process.pid)), ",",
                                  Label("local_rank", absl::StrCat(place.local_rank)), ",",
                                  Label("cross_rank", absl::StrCat(place.cross_rank))),
           .number = 1}};
}

Values LastStep(const RankSnapshot& rank, absl::Time clock_zero) {
  const FlightTime time = rank.sample.last_step;
  return One(time == absl::ZeroDuration() ? 0 : absl::ToDoubleSeconds(clock_zero + time - absl::UnixEpoch()));
}

Values LatenessOf(const RankSnapshot& rank, absl::Time) {
  const LatenessHistogram& histogram = rank.lateness.histogram;
  Values values;
  uint64_t up_to_here = 0;
  for (size_t i = 0; i < kLatenessBounds.size(); ++i) {
    up_to_here += histogram.counts[i];
    values.push_back({.suffix = "_bucket",
                      .labels = absl::StrCat(",", Label("le", Text(absl::ToDoubleSeconds(kLatenessBounds[i])))),
                      .number = static_cast<double>(up_to_here)});
  }
  const auto count = static_cast<double>(histogram.count);
  values.push_back({.suffix = "_bucket", .labels = ",le=\"+Inf\"", .number = count});
  values.push_back({.suffix = "_sum", .number = absl::ToDoubleSeconds(histogram.sum)});
  values.push_back({.suffix = "_count", .number = count});
  return values;
}

// Returns values only for collectives that the rank has run, because most jobs use few operations.
Values Collectives(const RankSnapshot& rank, absl::Time) {
  Values values;
  for (int op = 0; op < kOpTypeCount; ++op) {
    for (int mode = 0; mode < kBucketModeCount; ++mode) {
      const uint64_t count = rank.sample.collectives[static_cast<size_t>(op)][static_cast<size_t>(mode)];
      if (count == 0) continue;
      values.push_back({.labels = absl::StrCat(",", Label("op", Name(static_cast<OpType>(op))), ",",
                                               Label("mode", Name(static_cast<BucketMode>(mode)))),
                        .number = static_cast<double>(count)});
    }
  }
  return values;
}

// Returns values only for phases in which the rank's device has spent time. A rank without a device has no values.
Values DeviceSeconds(const RankSnapshot& rank, absl::Time) {
  Values values;
  for (size_t i = 0; i < rank.sample.device_nanoseconds.size(); ++i) {
    const uint64_t timed = rank.sample.device_nanoseconds[i];
    if (timed == 0) continue;
    values.push_back({.labels = absl::StrCat(",", Label("phase", DeviceTimes::kPhaseNames[i])),
                      .number = static_cast<double>(timed) * DeviceTimes::kPeriod / 1e9});
  }
  return values;
}

Values SchedulesLeft(const RankSnapshot& rank, absl::Time) {
  const Statistics& counts = rank.sample.counts;
  const uint64_t own = std::min(counts.own_vetoes, counts.schedules_left);
  return {{.labels = ",by=\"own\"", .number = static_cast<double>(own)},
          {.labels = ",by=\"other\"", .number = static_cast<double>(counts.schedules_left - own)}};
}

Values ControlMessages(const RankSnapshot& rank, absl::Time) {
  const Statistics& counts = rank.sample.counts;
  return {{.labels = ",kind=\"report_sent\"", .number = static_cast<double>(counts.reports_sent)},
          {.labels = ",kind=\"report_received\"", .number = static_cast<double>(counts.reports_received)},
          {.labels = ",kind=\"list_sent\"", .number = static_cast<double>(counts.lists_sent)},
          {.labels = ",kind=\"list_received\"", .number = static_cast<double>(counts.lists_received)}};
}

// MetricsText() generates the HELP and TYPE lines and all series from these rows.
constexpr Metric kMetrics[] = {
    {"ronda_rank_info", "gauge", "1 for each rank of the job.", Merge::kLeaveOut, RankInfo},
    {"ronda_steps_total", "counter", "Steps: one ends when a tensor that it has is submitted again.", Merge::kSum,
     [](const RankSnapshot& rank, absl::Time) { return One(rank.sample.counts.steps); }},
    {"ronda_last_step_timestamp_seconds", "gauge", "When the last step ended, 0 before the first.", Merge::kLeast,
     LastStep},
    {"ronda_lateness_seconds", "histogram",
     "The rank's entry into a bucket minus the entry of the first rank of this host.", Merge::kSum, LatenessOf},
    {"ronda_blamed_wait_seconds_total", "counter",
     "Time that the first rank has waited for this one, over the buckets into which this one came last.", Merge::kSum,
     [](const RankSnapshot& rank, absl::Time) { return One(absl::ToDoubleSeconds(rank.lateness.blamed_wait)); }},
    {"ronda_wait_seconds_total", "counter",
     "Time in buckets, from the moment at which the rank was ready: waits for other ranks, and transfers.", Merge::kSum,
     [](const RankSnapshot& rank, absl::Time) {
       return One(static_cast<double>(rank.sample.counts.bucket_nanoseconds) / 1e9);
     }},
    {"ronda_collectives_total", "counter",
     "Collectives carried out with the rank's part in them, negotiated or by the locked schedule.", Merge::kSum,
     Collectives},
    {"ronda_tensors_total", "counter", "Tensors carried out with the rank's part in them.", Merge::kSum,
     [](const RankSnapshot& rank, absl::Time) { return One(rank.sample.counts.tensors); }},
    {"ronda_payload_bytes_total", "counter", "Bytes of these tensors in their own dtype.", Merge::kSum,
     [](const RankSnapshot& rank, absl::Time) { return One(rank.sample.counts.payload_bytes); }},
    {"ronda_wire_bytes_total", "counter", "Bytes of these tensors in the format in which they travel.", Merge::kSum,
     [](const RankSnapshot& rank, absl::Time) { return One(rank.sample.counts.wire_bytes); }},
    {"ronda_schedule_locked", "gauge", "1 while the rank runs a locked schedule, 0 while it negotiates.", Merge::kLeast,
     [](const RankSnapshot& rank, absl::Time) {
       return One(rank.sample.counts.schedules_begun > rank.sample.counts.schedules_left ? 1.0 : 0.0);
     }},
    {"ronda_schedules_left_total", "counter",
     "Locked schedules that a veto has ended: the rank's own, or only those of other ranks.", Merge::kSum,
     SchedulesLeft},
    {"ronda_control_messages_total", "counter", "Control messages between the rank and rank 0.", Merge::kSum,
     ControlMessages},
    {"ronda_exposed_seconds_total", "counter", "Time in which the program waited for tensors.", Merge::kSum,
     [](const RankSnapshot& rank, absl::Time) {
       return One(static_cast<double>(rank.sample.counts.exposed_nanoseconds) / 1e9);
     }},
    {"ronda_gpu_seconds_total", "counter", "Time of the rank's GPU by phase of a bucket, told from one bucket in 32.",
     Merge::kSum, DeviceSeconds},
    {"ronda_tensors_in_flight", "gauge", "Tensors that are submitted and not yet carried out.", Merge::kSum,
     [](const RankSnapshot& rank, absl::Time) { return One(rank.sample.counts.tensors_in_flight); }},
};

// The ranks of a job, divided into those with their own series and all others.
struct Shown {
  std::vector<const RankSnapshot*> own;
  std::vector<const RankSnapshot*> others;
};

Shown Choose(const JobSnapshot& job) {
  Shown shown;
  for (const RankSnapshot& rank : job.ranks) shown.own.push_back(&rank);
  if (shown.own.size() <= kMostRanks) return shown;
  const auto middle = shown.own.begin() + kWorstRanks;
  std::partial_sort(shown.own.begin(), middle, shown.own.end(), [](const RankSnapshot* a, const RankSnapshot* b) {
    return std::pair(b->lateness.blamed_wait, a->rank()) < std::pair(a->lateness.blamed_wait, b->rank());
  });
  shown.others.assign(middle, shown.own.end());
  shown.own.erase(middle, shown.own.end());
  return shown;
}

void Append(const Metric& metric, absl::string_view job, absl::string_view rank, const Values& values,
            std::string* text) {
  for (const Value& value : values) {
    absl::StrAppend(text, metric.name, value.suffix, "{", Label("job_id", job), ",", Label("rank", rank), value.labels,
                    "} ", Text(value.number), "\n");
  }
}

// Combines the values of several ranks. The result has the values in the order in which they first occur.
Values Merged(const Metric& metric, const std::vector<const RankSnapshot*>& ranks, absl::Time clock_zero) {
  Values merged;
  std::map<std::pair<std::string, std::string>, size_t> places;
  for (const RankSnapshot* const rank : ranks) {
    for (const Value& value : metric.values(*rank, clock_zero)) {
      const auto [place, is_new] = places.try_emplace({value.suffix, value.labels}, merged.size());
      if (is_new) {
        merged.push_back(value);
        continue;
      }
      double& number = merged[place->second].number;
      number = metric.merge == Merge::kSum ? number + value.number : std::min(number, value.number);
    }
  }
  return merged;
}

void AppendHead(const char* name, const char* type, const char* help, std::string* text) {
  absl::StrAppend(text, "# HELP ", name, " ", help, "\n# TYPE ", name, " ", type, "\n");
}

}  // namespace

std::string MetricsText(absl::Span<const JobSnapshot> jobs, absl::Time clock_zero) {
  std::string text;
  AppendHead("ronda_job_info", "gauge",
             "1 for each job, with its number of ranks, and of those on this host, its name and its command.", &text);
  std::vector<Shown> shown;
  for (const JobSnapshot& job : jobs) {
    const int size = job.ranks.empty() ? 0 : job.ranks.front().identity.topology.size;
    const auto here =
        std::count_if(job.ranks.begin(), job.ranks.end(), [](const RankSnapshot& rank) { return rank.is_here; });
    absl::StrAppend(&text, "ronda_job_info{", Label("job_id", job.job), ",", Label("size", absl::StrCat(size)), ",",
                    Label("ranks_here", absl::StrCat(here)), ",", Label("name", job.origin.name), ",",
                    Label("command", job.origin.command.substr(0, kMostOfCommand)), "} 1\n");
    shown.push_back(Choose(job));
  }
  for (const Metric& metric : kMetrics) {
    AppendHead(metric.name, metric.type, metric.help, &text);
    for (size_t i = 0; i < jobs.size(); ++i) {
      for (const RankSnapshot* const rank : shown[i].own) {
        Append(metric, jobs[i].job, absl::StrCat(rank->rank()), metric.values(*rank, clock_zero), &text);
      }
      if (shown[i].others.empty() || metric.merge == Merge::kLeaveOut) continue;
      Append(metric, jobs[i].job, "others", Merged(metric, shown[i].others, clock_zero), &text);
    }
  }
  return text;
}

}  // namespace ronda
