// SPDX-License-Identifier: Apache-2.0

#include "programs/rondarun/preflight/preflight_report.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "runtime/base/bytes_text.h"

namespace ronda {
namespace {

// If two clocks differ by more than this, the times in the logs of their hosts cannot be compared.
constexpr absl::Duration kClockTolerance = absl::Seconds(1);

std::string OrDash(const std::string& text) { return text.empty() ? "-" : text; }

std::string ClockText(const ProbedHost& host) {
  const double ms = absl::ToDoubleMilliseconds(host.clock_skew);
  // If the measured difference is within the measurement error, the clocks are reported as equal.
  return absl::AbsDuration(host.clock_skew) <= host.clock_precision ? "same" : absl::StrFormat("%+.0f ms", ms);
}

using Row = std::vector<std::string>;

Row RowOf(const ProbedHost& host) {
  const auto text = [&host](absl::string_view name) { return OrDash(FactOr(host.facts, name)); };
  return {host.host,
          text(fact::kVersion),
          text(fact::kAddress),
          absl::StrCat(text(fact::kCores), "/", text(fact::kNumaNodes)),
          BytesText(static_cast<uint64_t>(NumberOf(host.facts, fact::kMemory))),
          text(fact::kMpi),
          text(fact::kGpus),
          text(fact::kCuda),
          text(fact::kNccl),
          ClockText(host)};
}

// Formats a table whose columns are as wide as their widest entry.
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
      {"host", "Ronda", "address", "cores/nodes", "memory", "MPI", "GPUs", "CUDA", "NCCL", "clock"}};
  for (const ProbedHost& host : hosts) {
    rows.push_back(host.status.ok() ? RowOf(host) : Row{host.host, "(no answer)"});
  }
  return Table(rows);
}

// Returns the most common value of a fact or, if several values are equally common, the one that comes first in the
// list of hosts.
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
  const char* noun;   // names the fact where it is missing
  const char* label;  // goes before its value
};
constexpr Equal kVersionEqual = {fact::kVersion, "Ronda", "Ronda "};
constexpr Equal kMpiEqual = {fact::kMpi, "MPI", ""};
constexpr Equal kGpusEqual = {fact::kGpus, "GPUs", ""};
constexpr Equal kCudaEqual = {fact::kCuda, "CUDA", "CUDA "};
constexpr Equal kNcclEqual = {fact::kNccl, "NCCL", "NCCL "};

// Returns texts such as "h2 has Ronda 0.3.0, the others 0.4.0". Returns an empty list if all hosts have the same value.
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

// Returns the problems of a single host.
std::vector<std::string> ProblemsOf(const ProbedHost& host) {
  std::vector<std::string> problems;
  for (const ProbedHost::Unreached& unreached : host.unreached) {
    problems.push_back(absl::StrCat(host.host, " does not reach ", unreached.host, ": ", unreached.reason));
  }
  return problems;
}

// Returns a text such as "h2: reason" for each host that has the fact `name`.
std::vector<std::string> Reasons(const std::vector<const ProbedHost*>& hosts, absl::string_view name) {
  std::vector<std::string> reasons;
  for (const ProbedHost* host : hosts) {
    const std::string reason = FactOr(host->facts, name);
    if (!reason.empty()) reasons.push_back(absl::StrCat(host->host, ": ", reason));
  }
  return reasons;
}

bool AllHave(const std::vector<const ProbedHost*>& hosts, absl::string_view name) {
  return Reasons(hosts, name).size() == hosts.size();
}

// Returns the MPI problems of hosts that will run a job together. It is not a problem if the plugin is missing on all
// hosts, because the ranks are then started without MPI.
std::vector<std::string> MpiProblems(const std::vector<const ProbedHost*>& hosts) {
  std::vector<std::string> problems = OddOnes(hosts, kMpiEqual);
  if (!AllHave(hosts, fact::kNoMpiPlugin)) Append(Reasons(hosts, fact::kNoMpiPlugin), &problems);
  return problems;
}

// Returns the other problems of hosts that will run a job together.
std::vector<std::string> ProblemsAcross(const std::vector<const ProbedHost*>& hosts) {
  std::vector<std::string> problems = OddOnes(hosts, kVersionEqual);
  for (const ProbedHost* host : hosts) {
    const std::string reason = FactOr(host->facts, fact::kNoAddress);
    if (!reason.empty()) problems.push_back(absl::StrCat(host->host, " has no address for the others: ", reason));
  }
  Append(Reasons(hosts, fact::kNoHostsPlugin), &problems);
  return problems;
}

// Returns the reason if the ranks will be started without MPI, or else an empty list. REQUIRES: the user allows both
// ways to start the ranks.
std::vector<std::string> MpiNotes(const std::vector<const ProbedHost*>& hosts) {
  constexpr absl::string_view kWithout = "ranks are started over ssh, and hosts exchange data over TCP";
  if (Usual(hosts, fact::kMpi).empty()) return {absl::StrCat("there is no MPI: ", kWithout)};
  if (!AllHave(hosts, fact::kNoMpiPlugin)) return {};
  return {
      absl::StrCat("no host has the plugin for its MPI: ", kWithout, "; ", Reasons(hosts, fact::kNoMpiPlugin).front())};
}

// Returns notes about facts that the user should know, but that do not prevent a job.
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
  for (const Equal& equal : {kGpusEqual, kCudaEqual, kNcclEqual}) Append(OddOnes(hosts, equal), &notes);
  return notes;
}

std::string Verdict(size_t host_count, size_t problem_count) {
  if (problem_count > 0) return absl::StrCat(problem_count, problem_count == 1 ? " problem" : " problems", "\n");
  return host_count == 1 ? "this host can run a job\n"
                         : absl::StrCat("these ", host_count, " hosts can run a job together\n");
}

}  // namespace

std::string FactOr(const HostFacts& facts, absl::string_view name) {
  const auto found = facts.find(std::string(name));
  return found == facts.end() ? "" : found->second;
}

double NumberOf(const HostFacts& facts, absl::string_view name) {
  double number = 0;
  return absl::SimpleAtod(FactOr(facts, name), &number) ? number : 0;
}

std::string FormatFacts(const HostFacts& facts) {
  std::string text;
  for (const auto& [name, value] : facts) {
    std::string line = value;
    std::replace_if(line.begin(), line.end(), absl::ascii_iscntrl, ' ');
    absl::StrAppend(&text, name, "=", line, "\n");
  }
  return text;
}

void ParseFact(absl::string_view line, HostFacts* facts) {
  const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(line, absl::MaxSplits('=', 1));
  const auto is_of_name = [](char c) { return absl::ascii_islower(c) || c == '_'; };
  if (parts.first.size() == line.size() || !std::all_of(parts.first.begin(), parts.first.end(), is_of_name)) return;
  (*facts)[std::string(parts.first)] = std::string(absl::StripAsciiWhitespace(parts.second));
}

PreflightReport MakePreflightReport(const std::vector<ProbedHost>& hosts, Starters starters) {
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
  const bool may_use_mpi = answering.size() > 1 && starters == Starters::kMpirunOrSsh;
  if (answering.size() > 1) Append(ProblemsAcross(answering), &report.problems);
  if (may_use_mpi) Append(MpiProblems(answering), &report.problems);
  report.text = absl::StrCat(TableOf(hosts), "\n");
  for (const std::string& problem : report.problems) absl::StrAppend(&report.text, "problem: ", problem, "\n");
  std::vector<std::string> notes;
  if (!answering.empty()) notes = NotesOn(answering);
  if (may_use_mpi) Append(MpiNotes(answering), &notes);
  for (const std::string& note : notes) absl::StrAppend(&report.text, "note: ", note, "\n");
  absl::StrAppend(&report.text, Verdict(hosts.size(), report.problems.size()));
  return report;
}

}  // namespace ronda
