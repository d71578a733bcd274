// SPDX-License-Identifier: Apache-2.0

// Plans elastic jobs whose nodes connect by themselves: the leader's plan, and what each node determines for itself.
#ifndef RONDA_PROGRAMS_RONDARUN_PLAN_NODE_PLAN_H_
#define RONDA_PROGRAMS_RONDARUN_PLAN_NODE_PLAN_H_

#include <string>
#include <vector>

#include "programs/options/launch_options.h"
#include "programs/rondarun/plan/job_plan.h"

namespace ronda {

// Returns the secret with which nodes and their members prove that they belong to the job: the value of
// RONDA_JOB_SECRET in `environment` ("NAME=value"), or the value that option -x sets. If it is empty, the job has no
// secret.
std::string SecretOfNodes(const LaunchOptions& options, const std::vector<std::string>& environment);

// Returns the variables that a node's members get in addition to the node's `environment`. Each node calls this
// function for its own members. Only the job id comes from the leader, so the leader sends no secret.
std::vector<std::string> VariablesOfNode(const LaunchOptions& options, const std::vector<std::string>& environment,
                                         const std::string& job_id);

// Returns the leader's plan. The members on the leader's own host are also supervised by an agent. REQUIRES:
// options.elastic->nodes.
JobPlan PlanNodesJob(const LaunchOptions& options, const LaunchFacts& facts);

}  // namespace ronda

#endif  // RONDA_PROGRAMS_RONDARUN_PLAN_NODE_PLAN_H_
