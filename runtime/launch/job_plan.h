// What a job consists of, and what that is decided from.
#ifndef RONDA_RUNTIME_LAUNCH_JOB_PLAN_H_
#define RONDA_RUNTIME_LAUNCH_JOB_PLAN_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "runtime/base/types.h"
#include "runtime/bootstrap/network_interface.h"
#include "runtime/launch/binding.h"
#include "runtime/launch/job_part.h"
#include "runtime/launch/launch_options.h"
#include "runtime/launch/shutdown_schedule.h"
#include "runtime/launch/supervisor.h"

namespace ronda {

// What a job's plan depends on, beside what the user asks for.
struct LaunchFacts {
  std::string hostname;
  std::vector<std::string> own_addresses;  // of this host: its names and numeric addresses
  std::string program;                     // this rondarun's path
  std::vector<std::string> environment;    // the launcher's own, "NAME=value"
  enum class Output { kFile, kTerminal } output = Output::kFile;
  enum class User { kRoot, kOther } user = User::kOther;
  std::vector<InterfaceAddress> interfaces;  // of this host
  HostCores cores;                           // of this host, if the ranks are to be bound
  std::string job_id;                        // fresh
  std::string job_secret;                    // fresh
  int free_port = 0;                         // of this host: nobody listens there
};

// A job that is ready to start.
struct JobPlan {
  std::vector<std::unique_ptr<JobPart>> parts;
  std::string job_id;         // whose shared memory is to be removed at the end; empty: unknown here
  int rank_count = 0;         // of the job
  std::vector<RankId> ranks;  // that this launcher starts
  ShutdownSchedule::Options shutdown;
  absl::Duration start_timeout = absl::InfiniteDuration();  // of ranks that others start
  Supervisor::Orphans orphans = Supervisor::Orphans::kLeave;
  std::vector<std::string> notes;         // for everybody: what is not as one might expect
  std::vector<std::string> explanations;  // for who wants to know everything
  std::vector<std::string> commands;      // what would be started, as a shell would: a line for each process
};

// The variables that options set for the ranks. Every rank may see all of the devices given; its own is the one
// numbered by its local rank.
std::map<std::string, std::string> SettingsOf(const LaunchOptions& options);

// A process as a shell would start it, with the variables that differ from what it inherits, but without the secret.
std::string DescribeProcess(const std::vector<std::string>& variables, const std::vector<std::string>& inherited,
                            const std::vector<std::string>& command);

// "job 0123: 2 ranks of ./train"
std::string DescribeJob(const LaunchOptions& options, const JobPlan& plan);

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_JOB_PLAN_H_
