#include "runtime/launch/launch_plan.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

// Everything the launcher decides for a rank. Inherited values are dropped even where no new one is set.
constexpr absl::string_view kOwned[] = {"RONDA_RANK",       "RONDA_SIZE",       "RONDA_LOCAL_RANK",
                                        "RONDA_LOCAL_SIZE", "RONDA_CROSS_RANK", "RONDA_CROSS_SIZE",
                                        "RONDA_JOB_ID",     "RONDA_JOB_SECRET", "RONDA_OUTPUT_IS_TERMINAL"};

constexpr absl::string_view kOmpThreads = "OMP_NUM_THREADS";

absl::string_view NameOf(absl::string_view variable) { return variable.substr(0, variable.find('=')); }

bool Contains(const std::vector<std::string>& environment, absl::string_view name) {
  return std::any_of(environment.begin(), environment.end(),
                     [&](const std::string& variable) { return NameOf(variable) == name; });
}

bool IsReplaced(absl::string_view name, const PlanRequest& request) {
  if (request.settings.contains(std::string(name))) return true;
  return std::find(std::begin(kOwned), std::end(kOwned), name) != std::end(kOwned);
}

// How many hosts have a rank with this local rank.
int CrossSize(const std::vector<int>& local_sizes, int local_rank) {
  return static_cast<int>(
      std::count_if(local_sizes.begin(), local_sizes.end(), [&](int size) { return size > local_rank; }));
}

// How many ranks run on each host.
absl::StatusOr<std::vector<int>> FillHosts(const PlanRequest& request) {
  std::vector<int> local_sizes;
  int left = request.rank_count;
  int slots = 0;
  for (const HostSlots& host : request.hosts) {
    slots += host.slots;
    local_sizes.push_back(std::min(left, host.slots));
    left -= local_sizes.back();
  }
  if (left == 0) return local_sizes;
  return absl::InvalidArgumentError(absl::StrCat("-np ", request.rank_count, " needs ", request.rank_count,
                                                 " slots, and -H offers ", slots,
                                                 "; give more slots, for example -H localhost:", request.rank_count));
}

std::vector<Topology> PlaceRanks(const PlanRequest& request, const std::vector<int>& local_sizes) {
  std::vector<Topology> topologies;
  for (size_t host = 0; host < local_sizes.size(); ++host) {
    const std::vector<int> hosts_before(local_sizes.begin(), local_sizes.begin() + static_cast<std::ptrdiff_t>(host));
    for (int local_rank = 0; local_rank < local_sizes[host]; ++local_rank) {
      topologies.push_back({.rank = static_cast<RankId>(topologies.size()),
                            .size = request.rank_count,
                            .local_rank = local_rank,
                            .local_size = local_sizes[host],
                            .cross_rank = CrossSize(hosts_before, local_rank),
                            .cross_size = CrossSize(local_sizes, local_rank),
                            .hostname = request.hosts[host].host});
    }
  }
  return topologies;
}

// What all ranks share.
std::vector<std::string> CommonEnvironment(const PlanRequest& request) {
  std::vector<std::string> environment;
  for (const std::string& variable : request.environment) {
    if (!IsReplaced(NameOf(variable), request)) environment.push_back(variable);
  }
  environment.push_back(absl::StrCat("RONDA_JOB_ID=", request.job_id));
  environment.push_back(absl::StrCat("RONDA_JOB_SECRET=", request.job_secret));
  if (request.output_is_terminal) environment.push_back("RONDA_OUTPUT_IS_TERMINAL=1");
  for (const auto& [name, value] : request.settings) environment.push_back(absl::StrCat(name, "=", value));
  return environment;
}

void AppendTopology(const Topology& topology, std::vector<std::string>* environment) {
  const std::pair<absl::string_view, int> values[] = {{"RONDA_RANK", topology.rank},
                                                      {"RONDA_SIZE", topology.size},
                                                      {"RONDA_LOCAL_RANK", topology.local_rank},
                                                      {"RONDA_LOCAL_SIZE", topology.local_size},
                                                      {"RONDA_CROSS_RANK", topology.cross_rank},
                                                      {"RONDA_CROSS_SIZE", topology.cross_size}};
  for (const auto& [name, value] : values) environment->push_back(absl::StrCat(name, "=", value));
}

}  // namespace

absl::StatusOr<LaunchPlan> MakeLaunchPlan(const PlanRequest& request) {
  RONDA_ASSIGN_OR_RETURN(const std::vector<int> local_sizes, FillHosts(request));
  LaunchPlan plan;
  std::vector<std::string> common = CommonEnvironment(request);
  if (request.rank_count > 1 && !Contains(request.environment, kOmpThreads)) {
    plan.sets_omp_threads = true;
    common.push_back(absl::StrCat(kOmpThreads, "=1"));
  }
  for (Topology& topology : PlaceRanks(request, local_sizes)) {
    RankPlan rank{.topology = std::move(topology), .environment = common};
    AppendTopology(rank.topology, &rank.environment);
    plan.ranks.push_back(std::move(rank));
  }
  return plan;
}

}  // namespace ronda
