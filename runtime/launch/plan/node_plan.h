// Elastic jobs whose nodes come by themselves: what their leader plans, and what each node knows itself.
#ifndef RONDA_RUNTIME_LAUNCH_PLAN_NODE_PLAN_H_
#define RONDA_RUNTIME_LAUNCH_PLAN_NODE_PLAN_H_

#include <string>
#include <vector>

#include "runtime/launch/options/launch_options.h"
#include "runtime/launch/plan/job_plan.h"

namespace ronda {

// By this the nodes, and their members, prove that they belong to the job: RONDA_JOB_SECRET of the `environment`
// ("NAME=value"), or that of -x. Empty: there is none.
std::string SecretOfNodes(const LaunchOptions& options, const std::vector<std::string>& environment);

// The variables that the members on a node have besides those of its `environment`. Each node has its own: but for the
// job's id nothing of them comes from the leader, and so no secret is sent.
std::vector<std::string> VariablesOfNode(const LaunchOptions& options, const std::vector<std::string>& environment,
                                         const std::string& job_id);

// The plan of the leader. Its own members are behind an agent too.
// REQUIRES: options.elastic->nodes.
JobPlan PlanNodesJob(const LaunchOptions& options, const LaunchFacts& facts);

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_PLAN_NODE_PLAN_H_
