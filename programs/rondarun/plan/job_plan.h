// SPDX-License-Identifier: Apache-2.0

// The plan of a job, and the facts on which it is based.
#ifndef RONDA_PROGRAMS_RONDARUN_PLAN_JOB_PLAN_H_
#define RONDA_PROGRAMS_RONDARUN_PLAN_JOB_PLAN_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "programs/options/launch_options.h"
#include "programs/rondarun/elastic/elastic_job.h"
#include "programs/rondarun/elastic/node_list.h"
#include "programs/rondarun/plan/launch_plan.h"
#include "programs/rondarun/plan/mpirun_command.h"
#include "programs/rondarun/supervise/job_part.h"
#include "programs/rondarun/supervise/shutdown_schedule.h"
#include "programs/rondarun/supervise/supervisor.h"
#include "runtime/base/types.h"
#include "runtime/net/endpoint.h"

namespace ronda {

// The facts on which a job's plan depends, besides the user's options.
struct LaunchFacts {
  std::string hostname;
  std::vector<std::string> own_addresses;  // of this host: its names and numeric addresses
  std::string program;                     // this rondarun's path
  std::string monitor;                     // ronda-monitor: a path, or a name for PATH
  std::vector<std::string> environment;    // the launcher's own, "NAME=value"
  enum class Output { kFile, kTerminal } output = Output::kFile;
  enum class User { kRoot, kOther } user = User::kOther;
  std::vector<InterfaceAddress> interfaces;  // of this host
  HostCores cores;                           // of this host, if the ranks are to be bound
  std::string job_id;                        // made for this job
  std::string job_secret;                    // made for this job
  int free_port = 0;                         // of this host: no program listens there
  int store_port = 0;                        // a different one
  int summary_file = -1;                     // a descriptor that ranks inherit (SummaryFile); -1: none
  std::shared_ptr<NodeList> nodes;           // of a job whose nodes come by themselves; null if the job is only shown
  // Returns OK if ranks that are started by this mpirun can load Ronda's plugin for its MPI library. `path` is the
  // value of RONDA_MPI_PLUGIN, or empty. Called only if the choice of the launcher depends on the result.
  std::function<absl::Status(Mpirun mpirun, const std::string& path)> find_mpi_plugin = [](Mpirun, const std::string&) {
    return absl::OkStatus();
  };
};

// A job that is ready to be started.
struct JobPlan {
  std::vector<std::unique_ptr<JobPart>> parts;
  std::optional<ElasticJob::Options> elastic;  // its members are the ranks, instead of `parts`
  std::string job_id;                          // names the shared memory to remove at the end; empty: unknown here
  int rank_count = 0;                          // of the job
  std::vector<RankId> ranks;                   // that this launcher starts
  ShutdownSchedule::Options shutdown;
  absl::Duration start_timeout = absl::InfiniteDuration();  // of ranks that other programs start
  std::vector<std::string> notes;                           // for every user: surprising choices
  std::vector<std::string> explanations;                    // for --verbose
  std::vector<std::string> commands;                        // a line for each process, as a shell would start it
};

// Functions for elastic jobs.

// Returns `options` with a short RONDA_START_TIMEOUT for the members, unless the user has set this variable. The
// members of an epoch start to connect only after all of them have joined. So if they cannot connect to each other, one
// of them has died since it joined.
LaunchOptions WithMeetingTimeout(LaunchOptions options, const LaunchFacts& facts);

// Returns a plan without hosts and processes. REQUIRES: options.elastic.
JobPlan BareElasticPlan(const LaunchOptions& options, const LaunchFacts& facts);

// Returns the variables that the options set for the ranks. Each rank sees all devices that the user names, and uses
// the device whose number is its local rank.
std::map<std::string, std::string> SettingsOf(const LaunchOptions& options);

// Returns the command line with which a shell would start the process. It includes the variables that differ from the
// inherited ones, but not the secret.
std::string DescribeProcess(const std::vector<std::string>& variables, const std::vector<std::string>& inherited,
                            const std::vector<std::string>& command);

// Returns a text such as "job 0123: 2 ranks of ./train".
std::string DescribeJob(const LaunchOptions& options, const JobPlan& plan);

// Decides which program starts the ranks, and how. The program is this launcher (on its own host), mpirun, or an agent
// over ssh. To plan a start through mpirun, queries mpirun for its version. If the user leaves the choice open and
// mpirun or its plugin is missing, agents over ssh start the ranks, and the plan has a note that gives the reason.
//
// Errors: INVALID_ARGUMENT, UNIMPLEMENTED, NOT_FOUND and FAILED_PRECONDITION for errors that the user can correct.
absl::StatusOr<JobPlan> MakeJobPlan(const LaunchOptions& options, const LaunchFacts& facts);

}  // namespace ronda

#endif  // RONDA_PROGRAMS_RONDARUN_PLAN_JOB_PLAN_H_
