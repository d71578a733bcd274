#include "runtime/launch/launch_plan.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "runtime/base/status_macros.h"
#include "runtime/launch/launch_environment.h"

namespace ronda {
namespace {

constexpr absl::string_view kOmpThreads = "OMP_NUM_THREADS";

// How many hosts have a rank with this local rank.
int CrossSize(const std::vector<int>& local_sizes, int local_rank) {
  return static_cast<int>(
      std::count_if(local_sizes.begin(), local_sizes.end(), [&](int size) { return size > local_rank; }));
}

// How many ranks run on each host.
absl::StatusOr<std::vector<int>> CountLocalRanks(const PlanRequest& request) {
  std::vector<int> local_sizes = FillHosts(request.hosts, request.rank_count);
  if (std::accumulate(local_sizes.begin(), local_sizes.end(), 0) == request.rank_count) return local_sizes;
  const int slots = std::accumulate(request.hosts.begin(), request.hosts.end(), 0,
                                    [](int sum, const HostSlots& host) { return sum + host.slots; });
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

// Every node has as many ranks as this one.
std::vector<Topology> PlaceRanksOfNode(const PlanRequest& request, const NodeGroup& group) {
  std::vector<Topology> topologies;
  for (int local_rank = 0; local_rank < request.rank_count; ++local_rank) {
    topologies.push_back({.rank = group.node_rank * request.rank_count + local_rank,
                          .size = group.nodes * request.rank_count,
                          .local_rank = local_rank,
                          .local_size = request.rank_count,
                          .cross_rank = group.node_rank,
                          .cross_size = group.nodes,
                          .hostname = request.hosts.front().host});
  }
  return topologies;
}

bool IsLoopback(absl::string_view address) {
  return address == "localhost" || address == "::1" || absl::StartsWith(address, "127.");
}

absl::Status CheckSecret(const PlanRequest& request) {
  if (!request.nodes || !request.job_secret.empty() || IsLoopback(request.nodes->master_address)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      "RONDA_JOB_SECRET is not set: ranks on several nodes prove by it that they belong together; set it to the same "
      "value on every node, for example to the output of: openssl rand -hex 32");
}

// Whether ranks that share a host cannot meet in its memory, as they connect over TCP or are to hear why they cannot.
bool NeedMeetingPoint(const std::vector<std::string>& environment) {
  return std::any_of(environment.begin(), environment.end(), [](const std::string& variable) {
    return variable == "RONDA_BACKEND=tcp" || variable == "RONDA_BACKEND=hierarchical-tcp" ||
           variable == "RONDA_BACKEND=hierarchical";
  });
}

void AddMeetingPoint(absl::string_view address, int port, std::vector<std::string>* environment) {
  environment->push_back(absl::StrCat("RONDA_MASTER_ADDR=", address));
  environment->push_back(absl::StrCat("RONDA_MASTER_PORT=", port));
}

// What all ranks share.
std::vector<std::string> CommonEnvironment(const PlanRequest& request) {
  std::vector<std::string> environment = InheritedVariables(request.environment, request.settings);
  if (!request.nodes) {
    environment.push_back(absl::StrCat("RONDA_JOB_ID=", request.job_id));
    const bool has_one = ContainsName(environment, "RONDA_MASTER_PORT");  // one of the settings
    if (!has_one && request.rank_count > 1 && NeedMeetingPoint(environment)) {
      AddMeetingPoint("127.0.0.1", request.free_port, &environment);
    }
  } else {
    AddMeetingPoint(request.nodes->master_address, request.nodes->master_port, &environment);
  }
  if (!request.job_secret.empty()) environment.push_back(absl::StrCat("RONDA_JOB_SECRET=", request.job_secret));
  if (request.output_is_terminal) environment.push_back("RONDA_OUTPUT_IS_TERMINAL=1");
  return environment;
}

}  // namespace

absl::StatusOr<LaunchPlan> MakeLaunchPlan(const PlanRequest& request) {
  RONDA_ASSIGN_OR_RETURN(const std::vector<int> local_sizes, CountLocalRanks(request));
  RONDA_RETURN_IF_ERROR(CheckSecret(request));
  LaunchPlan plan;
  std::vector<std::string> common = CommonEnvironment(request);
  if (request.rank_count > 1 && !ContainsName(common, kOmpThreads)) {
    plan.sets_omp_threads = true;
    common.push_back(absl::StrCat(kOmpThreads, "=1"));
  }
  for (Topology& topology :
       request.nodes ? PlaceRanksOfNode(request, *request.nodes) : PlaceRanks(request, local_sizes)) {
    RankPlan rank{.topology = std::move(topology), .environment = common};
    for (std::string& variable : PlaceVariables(rank.topology)) rank.environment.push_back(std::move(variable));
    plan.ranks.push_back(std::move(rank));
  }
  return plan;
}

std::vector<std::string> PlaceVariables(const Topology& topology) {
  const std::pair<absl::string_view, int> values[] = {{"RONDA_RANK", topology.rank},
                                                      {"RONDA_SIZE", topology.size},
                                                      {"RONDA_LOCAL_RANK", topology.local_rank},
                                                      {"RONDA_LOCAL_SIZE", topology.local_size},
                                                      {"RONDA_CROSS_RANK", topology.cross_rank},
                                                      {"RONDA_CROSS_SIZE", topology.cross_size}};
  std::vector<std::string> variables;
  for (const auto& [name, value] : values) variables.push_back(absl::StrCat(name, "=", value));
  return variables;
}

}  // namespace ronda
