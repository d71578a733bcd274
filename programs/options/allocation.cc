// SPDX-License-Identifier: Apache-2.0

#include "programs/options/allocation.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "runtime/base/environment.h"
#include "runtime/base/slurm_variables.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/variable_name.h"

namespace ronda {
namespace {

using Hosts = std::vector<HostSlots>;

// If one of these variables is set, rondarun or another launcher started this process inside an allocation.
// (SLURM_STEP_ID marks tasks that srun started.)
constexpr VariableName kTaskSigns[] = {"RONDA_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "LSF_PM_TASKID"};

bool IsTask(const ArgumentSources& sources) {
  const auto step = sources.variable("SLURM_STEP_ID");
  return (step && IsStepOfSrun(*step)) ||
         std::any_of(std::begin(kTaskSigns), std::end(kTaskSigns),
                     [&](VariableName sign) { return sources.variable(sign.c_str()).has_value(); });
}

absl::Status Malformed(VariableName name, absl::string_view value, absl::string_view expectation) {
  return InvalidVariable(name.view(), value, absl::StrCat(expectation, "; -H or --hostfile names hosts instead"));
}

// Returns the hosts in `names`. Each host gets one slot per occurrence of its name.
absl::StatusOr<Hosts> CountMentions(VariableName name, absl::string_view value, absl::string_view names) {
  Hosts hosts;
  for (const absl::string_view host : absl::StrSplit(names, absl::ByAnyChar(" \t\r\n"), absl::SkipEmpty())) {
    AddHost({.host = std::string(host), .slots = 1}, &hosts);
  }
  if (hosts.empty()) return Malformed(name, value, "a list of hosts, and it has none");
  return hosts;
}

// -- Readers of the schedulers' variables: each returns the hosts and their task counts --

absl::StatusOr<std::vector<int>> SlurmTasks(size_t hosts, const ArgumentSources& sources) {
  constexpr VariableName kPerNode = "SLURM_TASKS_PER_NODE", kTasks = "SLURM_NTASKS";
  if (const auto list = sources.variable(kPerNode.c_str())) {
    const auto counts = SlurmTaskCounts(*list);
    const int most = counts ? *std::max_element(counts->begin(), counts->end()) : 0;
    if (most >= 1 && most <= kMaxSlots && counts->size() == hosts) return *counts;
    return Malformed(kPerNode, *list,
                     absl::StrCat("a list of counts up to ", kMaxSlots, " such as 2(x3),1, for ", hosts, " hosts"));
  }
  const auto text = sources.variable(kTasks.c_str());
  if (!text) return std::vector<int>(hosts, 1);
  int tasks = 0;
  if (!absl::SimpleAtoi(*text, &tasks) || tasks < 1) return Malformed(kTasks, *text, "a number of tasks");
  const int share = tasks / static_cast<int>(hosts);
  std::vector<int> counts(hosts, share);
  for (size_t host = 0; host < static_cast<size_t>(tasks) % hosts; ++host) ++counts[host];
  return counts;
}

absl::StatusOr<Hosts> ReadSlurm(VariableName name, const std::string& value, const ArgumentSources& sources) {
  const auto names = SlurmHosts(value);
  if (!names) return Malformed(name, value, "a list of hosts such as gpu[01-03,7],login");
  RONDA_ASSIGN_OR_RETURN(const std::vector<int> tasks, SlurmTasks(names->size(), sources));
  Hosts hosts;
  for (size_t i = 0; i < names->size(); ++i) {
    if (tasks[i] > 0) AddHost({.host = (*names)[i], .slots = tasks[i]}, &hosts);
  }
  return hosts;
}

absl::StatusOr<Hosts> ReadFileOfNames(VariableName name, const std::string& value, const ArgumentSources& sources) {
  const auto content = sources.read_file(value);
  if (content.ok()) return CountMentions(name, value, *content);
  return Malformed(name, value, absl::StrCat("a file with a line for each slot (", content.status().message(), ")"));
}

absl::StatusOr<Hosts> ReadNames(VariableName name, const std::string& value, const ArgumentSources&) {
  return CountMentions(name, value, value);
}

// Reads a list of names and counts, such as "alpha 2 beta 4".
absl::StatusOr<Hosts> ReadNamesAndCounts(VariableName name, const std::string& value, const ArgumentSources&) {
  const std::vector<absl::string_view> words = absl::StrSplit(value, ' ', absl::SkipWhitespace());
  Hosts hosts;
  for (size_t i = 0; i + 1 < words.size(); i += 2) {
    HostSlots host = {.host = std::string(words[i])};
    if (!absl::SimpleAtoi(words[i + 1], &host.slots) || host.slots > kMaxSlots) host.slots = 0;
    AddHost(std::move(host), &hosts);
  }
  const bool has_counts = std::all_of(hosts.begin(), hosts.end(), [](const HostSlots& host) { return host.slots > 0; });
  if (!hosts.empty() && words.size() % 2 == 0 && has_counts) return hosts;
  return Malformed(name, value, "a list of hosts, each with a count, such as \"alpha 2 beta 4\"");
}

struct Scheduler {
  absl::string_view name;
  VariableName variable;
  absl::StatusOr<Hosts> (*read)(VariableName name, const std::string& value, const ArgumentSources& sources);
};

// The variables through which schedulers list the hosts of an allocation. The first variable that is set is used.
constexpr Scheduler kSchedulers[] = {{"Slurm", "SLURM_JOB_NODELIST", ReadSlurm},
                                     {"PBS", "PBS_NODEFILE", ReadFileOfNames},
                                     {"LSF", "LSB_MCPU_HOSTS", ReadNamesAndCounts},
                                     {"LSF", "LSB_DJOB_HOSTFILE", ReadFileOfNames},
                                     {"LSF", "LSB_HOSTS", ReadNames}};

// Returns whether the host has a valid name, which ssh cannot mistake for an option, and an allowed number of slots.
bool IsUsable(const HostSlots& host) { return IsHostName(host.host) && host.slots <= kMaxSlots; }

// Replaces the scheduler's name for this host with the host's own name, because some schedulers append a domain, or
// omit the host's domain. Within a cluster, the part before the first dot identifies a host.
void CallByOwnName(const std::vector<std::string>& own, Hosts* hosts) {
  if (own.empty()) return;
  for (HostSlots& host : *hosts) {
    if (ShortName(host.host) == ShortName(own.front())) host.host = own.front();
  }
}

}  // namespace

absl::StatusOr<std::optional<Allocation>> FindAllocation(const ArgumentSources& sources) {
  if (IsTask(sources)) return std::nullopt;
  for (const auto& [scheduler, variable, read] : kSchedulers) {
    const auto value = sources.variable(variable.c_str());
    if (!value) continue;
    RONDA_ASSIGN_OR_RETURN(Hosts hosts, read(variable, *value, sources));
    if (!std::all_of(hosts.begin(), hosts.end(), IsUsable)) {
      return Malformed(variable, *value, absl::StrCat("a list of names of hosts with 1 to ", kMaxSlots, " slots each"));
    }
    CallByOwnName(sources.own_addresses(), &hosts);
    return Allocation{
        .scheduler = std::string(scheduler), .variable = std::string(variable.view()), .hosts = std::move(hosts)};
  }
  return std::nullopt;
}

}  // namespace ronda
