// Jobs whose ranks are started over ssh.
#ifndef RONDA_RUNTIME_LAUNCH_PLAN_SSH_PLAN_H_
#define RONDA_RUNTIME_LAUNCH_PLAN_SSH_PLAN_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/launch/options/launch_options.h"
#include "runtime/launch/plan/job_plan.h"

namespace ronda {

// The words that run `program`, a rondarun, as an agent on this host.
std::vector<std::string> LocalAgentCommand(const RemoteOptions& remote, absl::string_view program);

// The words that run `program`, a rondarun, as an agent on `host`: by ssh, which does not ask for a password, or by the
// user's own agent.
std::vector<std::string> AgentCommand(const RemoteOptions& remote, absl::string_view host, absl::string_view program);

// Plans a job whose ranks are started by agents, one on each host, and meet at the first of the hosts. rondarun must be
// at the same path everywhere. On this host the agent is started without ssh.
//
// Rank 0 listens on a port that was free when the agent on its host looked for one; an agent starts no rank before it
// is known.
//
// Errors: INVALID_ARGUMENT if the hosts have too few slots.
absl::StatusOr<JobPlan> PlanSshJob(const LaunchOptions& options, const LaunchFacts& facts);

// The same for an elastic job, whose agents are started as they are needed. Members meet where the launcher tells them.
// Errors: INVALID_ARGUMENT if the hosts have too few slots; NOT_FOUND if there is no discovery script of that name.
absl::StatusOr<JobPlan> PlanElasticSshJob(const LaunchOptions& options, const LaunchFacts& facts);

// The words that run `command` on `host`, which is another one: by ssh, which does not ask for a password, or by the
// user's own agent.
std::vector<std::string> RemoteCommand(const RemoteOptions& remote, absl::string_view host,
                                       const std::vector<std::string>& command);

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_PLAN_SSH_PLAN_H_
