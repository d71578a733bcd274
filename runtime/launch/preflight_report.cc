#include "runtime/launch/preflight_report.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"

namespace ronda {
namespace {

constexpr double kMiB = 1024 * 1024;
// Shared memory of a rank: its ring, and as much again at most.
constexpr double kShmPerRank = 4.4 * kMiB;
// Beyond this the times in the hosts' logs cannot be put side by side.
constexpr absl::Duration kClockTolerance = absl::Seconds(1);

std::string Size(double bytes) {
  const double gib = bytes / (1024 * kMiB);
  return gib >= 1 ? absl::StrFormat("%.1f GiB", gib) : absl::StrFormat("%.0f MiB", bytes / kMiB);
}

std::string OrDash(const std::string& text) { return text.empty() ? "-" : text; }

std::string ClockText(const ProbedHost& host) {
  const double ms = absl::ToDoubleMilliseconds(host.clock_skew);
  // What is less than the way of the question and back is no difference.
  return absl::AbsDuration(host.clock_skew) <= host.clock_precision ? "same" : absl::StrFormat("%+.0f ms", ms);
}

using Row = std::vector<std::string>;

Row RowOf(const ProbedHost& host) {
  const auto text = [&host](absl::string_view name) { return OrDash(FactOr(host.facts, name)); };
  const auto size = [&host](absl::string_view name) { return Size(NumberOf(host.facts, name)); };
  return {host.host,
          text(fact::kVersion),
          text(fact::kAddress),
          absl::StrCat(text(fact::kCores), "/", text(fact::kNumaNodes)),
          size(fact::kMemory),
          absl::StrCat(size(fact::kShmFree), " of ", size(fact::kShmSize)),
          text(fact::kMpi),
          text(fact::kGpus),
          text(fact::kCuda),
          text(fact::kNccl),
          ClockText(host)};
}

// Columns as wide as their widest entry.
std::string Table(const std::vector<Row>& rows) {
  std::vector<size_t> widths;
  for (const Row& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const Row& row : rows) {
    for (size_t i = 0; i + 1 < row.size(); ++i) absl::StrAppendFormat(&text, "%-*s  ", widths[i], row[i]);
    absl::StrAppend(&text, row.back(), "\n");
  }
  return text;
}

std::string TableOf(const std::vector<ProbedHost>& hosts) {
  std::vector<Row> rows = {
      {"host", "Ronda", "address", "cores/nodes", "memory", "/dev/shm free", "MPI", "GPUs", "CUDA", "NCCL", "clock"}};
  for (const ProbedHost& host : hosts) {
    rows.push_back(host.status.ok() ? RowOf(host) : Row{host.host, "(no answer)"});
  }
  return Table(rows);
}

// What most hosts have; of equals, what the first of them has.
std::string Usual(const std::vector<const ProbedHost*>& hosts, absl::string_view name) {
  std::map<std::string, size_t> counts;
  for (const ProbedHost* host : hosts) ++counts[FactOr(host->facts, name)];
  const auto is_rarer = [&](const ProbedHost* a, const ProbedHost* b) {
    return counts[FactOr(a->facts, name)] < counts[FactOr(b->facts, name)];
  };
  return FactOr((*std::max_element(hosts.begin(), hosts.end(), is_rarer))->facts, name);
}

// A fact that should be the same on all hosts.
struct Equal {
  const char* name;
  const char* noun;   // what is missing where there is no such fact
  const char* label;  // goes before its value
};
constexpr Equal kVersionEqual = {fact::kVersion, "Ronda", "Ronda "};
constexpr Equal kMpiEqual = {fact::kMpi, "MPI", ""};
constexpr Equal kGpusEqual = {fact::kGpus, "GPUs", ""};
constexpr Equal kCudaEqual = {fact::kCuda, "CUDA", "CUDA "};
constexpr Equal kNcclEqual = {fact::kNccl, "NCCL", "NCCL "};

// "h2 has Ronda 0.3.0, the others 0.4.0"; nothing if all have the same.
std::vector<std::string> OddOnes(const std::vector<const ProbedHost*>& hosts, const Equal& equal) {
  const std::string usual = Usual(hosts, equal.name);
  std::vector<std::string> odd, even;
  for (const ProbedHost* host : hosts) {
    const std::string value = FactOr(host->facts, equal.name);
    if (value == usual) {
      even.push_back(host->host);
    } else {
      odd.push_back(value.empty() ? absl::StrCat(host->host, " has no ", equal.noun)
                                  : absl::StrCat(host->host, " has ", equal.label, value));
    }
  }
  if (odd.empty()) return {};
  return {absl::StrCat(absl::StrJoin(odd, ", "), ", ", even.size() == 1 ? even.front() : "the others", " ",
                       usual.empty() ? "none" : usual)};
}

void Append(std::vector<std::string> from, std::vector<std::string>* to) {
  std::move(from.begin(), from.end(), std::back_inserter(*to));
}

// What a host lacks by itself.
std::vector<std::string> ProblemsOf(const ProbedHost& host) {
  std::vector<std::string> problems;
  const double shm = NumberOf(host.facts, fact::kShmFree);
  if (shm < host.slots * kShmPerRank) {
    problems.push_back(absl::StrCat(host.host, " has ", Size(shm), " free in /dev/shm, and its ", host.slots,
                                    " ranks need up to ", Size(host.slots * kShmPerRank),
                                    ": enlarge it (containers: --shm-size)"));
  }
  for (const ProbedHost::Unreached& unreached : host.unreached) {
    problems.push_back(absl::StrCat(host.host, " does not reach ", unreached.host, ": ", unreached.reason));
  }
  return problems;
}

// What several hosts need, and one does not.
std::vector<std::string> ProblemsAcross(const std::vector<const ProbedHost*>& hosts) {
  std::vector<std::string> problems = OddOnes(hosts, kVersionEqual);
  Append(OddOnes(hosts, kMpiEqual), &problems);
  for (const ProbedHost* host : hosts) {
    const std::string reason = FactOr(host->facts, fact::kNoAddress);
    if (!reason.empty()) problems.push_back(absl::StrCat(host->host, " has no address for the others: ", reason));
  }
  return problems;
}

// What is worth knowing, and no obstacle.
std::vector<std::string> NotesOn(const std::vector<const ProbedHost*>& hosts) {
  std::vector<std::string> notes;
  for (const ProbedHost* host : hosts) {
    const double cores = NumberOf(host->facts, fact::kCores);
    if (host->slots > cores) {
      notes.push_back(absl::StrCat(host->host, " has fewer cores (", cores, ") than ranks (", host->slots, ")"));
    }
    if (absl::AbsDuration(host->clock_skew) > kClockTolerance + host->clock_precision) {
      notes.push_back(absl::StrCat("the clock of ", host->host, " is ",
                                   absl::FormatDuration(absl::AbsDuration(host->clock_skew)),
                                   host->clock_skew > absl::ZeroDuration() ? " fast" : " slow"));
    }
  }
  if (hosts.size() == 1) return notes;
  if (Usual(hosts, fact::kMpi).empty()) {
    notes.emplace_back("there is no MPI: ranks are started over ssh, and hosts exchange data over TCP");
  }
  for (const Equal& equal : {kGpusEqual, kCudaEqual, kNcclEqual}) Append(OddOnes(hosts, equal), &notes);
  return notes;
}

std::string Verdict(size_t host_count, size_t problem_count) {
  if (problem_count > 0) return absl::StrCat(problem_count, problem_count == 1 ? " problem" : " problems", "\n");
  return host_count == 1 ? "this host can run a job\n"
                         : absl::StrCat("these ", host_count, " hosts can run a job together\n");
}

}  // namespace

PreflightReport MakePreflightReport(const std::vector<ProbedHost>& hosts) {
  PreflightReport report;
  std::vector<const ProbedHost*> answering;
  for (const ProbedHost& host : hosts) {
    if (host.status.ok()) {
      answering.push_back(&host);
      Append(ProblemsOf(host), &report.problems);
    } else {
      report.problems.push_back(absl::StrCat(host.host, " cannot be asked: ", host.status.message()));
    }
  }
  if (answering.size() > 1) Append(ProblemsAcross(answering), &report.problems);
  report.text = absl::StrCat(TableOf(hosts), "\n");
  for (const std::string& problem : report.problems) absl::StrAppend(&report.text, "problem: ", problem, "\n");
  if (!answering.empty()) {
    for (const std::string& note : NotesOn(answering)) absl::StrAppend(&report.text, "note: ", note, "\n");
  }
  absl::StrAppend(&report.text, Verdict(hosts.size(), report.problems.size()));
  return report;
}

}  // namespace ronda
