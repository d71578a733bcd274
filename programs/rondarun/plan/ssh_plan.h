// SPDX-License-Identifier: Apache-2.0

// Jobs whose ranks are started over ssh.
#ifndef RONDA_PROGRAMS_RONDARUN_PLAN_SSH_PLAN_H_
#define RONDA_PROGRAMS_RONDARUN_PLAN_SSH_PLAN_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "programs/options/launch_options.h"
#include "programs/rondarun/plan/job_plan.h"

namespace ronda {

// Returns the command that runs the rondarun `program` as an agent on this host: rondarun --agent [--name NAME]
// [INTERFACE,...]. The agent does not use the job's name, but rondactl on the agent's host reads the name from the
// agent's command line (OriginOf).
std::vector<std::string> LocalAgentCommand(const LaunchOptions& options, absl::string_view program);

// Returns the command that runs the rondarun `program` as an agent on `host`. It uses ssh with an option that forbids
// password prompts, or the user's own remote shell.
std::vector<std::string> AgentCommand(const LaunchOptions& options, absl::string_view host, absl::string_view program);

// Plans a job whose ranks are started by agents, one per host. The ranks find each other at the first host. rondarun
// must have the same path on all hosts. On this host, the agent is started without ssh.
//
// The agent on rank 0's host finds a free port for rank 0 to listen on. No agent starts a rank until this port is
// known.
//
// Errors: INVALID_ARGUMENT if the hosts have too few slots.
absl::StatusOr<JobPlan> PlanSshJob(const LaunchOptions& options, const LaunchFacts& facts);

// Plans an elastic job whose members are started by agents, one per host. An agent is started only when its host gets a
// member. The launcher tells the members where to find each other. Errors: INVALID_ARGUMENT if the hosts have too few
// slots; NOT_FOUND if there is no discovery script with that name.
absl::StatusOr<JobPlan> PlanElasticSshJob(const LaunchOptions& options, const LaunchFacts& facts);

// Returns the command that runs `command` on `host`, which must be another host. It uses ssh with an option that
// forbids password prompts, or the user's own remote shell.
std::vector<std::string> RemoteCommand(const RemoteOptions& remote, absl::string_view host,
                                       const std::vector<std::string>& command);

}  // namespace ronda

#endif  // RONDA_PROGRAMS_RONDARUN_PLAN_SSH_PLAN_H_
