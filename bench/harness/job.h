// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_BENCH_HARNESS_JOB_H_
#define RONDA_BENCH_HARNESS_JOB_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "bench/harness/arguments.h"
#include "bench/harness/launch.h"
#include "bench/harness/output.h"
#include "bench/harness/peers.h"
#include "bench/harness/process_group.h"
#include "bench/harness/results.h"

namespace ronda::bench {

// The options of all subcommands that run on several ranks.
struct JobOptions {
  std::vector<int> ranks = {2};    // of the jobs that ronda-bench starts, unless a launcher has started it
  std::vector<std::string> peers;  // names of KnownPeers()
  std::string peer_setting = "default";
  std::string binding = "launcher";
  std::string backend;  // RONDA_BACKEND of all ranks; "": as in the environment
  Results::Files files;
};

// Adds the flags -np, --peer, --peer-setting, --bind, --json and --csv.
void AddJobFlags(Flags* flags, JobOptions* options);

// Adds only --peer.
void AddPeerFlag(Flags* flags, std::vector<std::string>* peers);

// Adds only --json and --csv.
void AddFileFlags(Flags* flags, Results::Files* files);

// Two backends that can exist side by side in one job, so that they can be measured in turn. kShm: ranks are processes.
// If ronda::init() chooses a backend other than shared memory, kShm stands for that backend. kInProcess: ranks are
// threads of the first process, and the other processes wait.
inline constexpr char kShm[] = "shm";
inline constexpr char kInProcess[] = "inprocess";

// Adds the flag --backend, which writes to `backends`. The value is a list of kShm and kInProcess ("all" means both),
// or a single other value of RONDA_BACKEND, which applies to the whole job. `purpose` is the first part of the help
// text: "Backends of the communicator layer".
void AddBackendFlag(Flags* flags, const std::string& purpose, std::vector<std::string>* backends);

// Returns the value that RONDA_BACKEND must have on all ranks of a job with these backends, or "" if it need not be
// set.
std::string JobBackend(const std::vector<std::string>& backends);

// One rank of a benchmark, as passed to its Body.
struct Rank {
  const LaunchedRank& launched;
  ProcessGroup& group;
  Output& output;                             // prints on rank 0 alone
  std::vector<std::unique_ptr<Peer>>& peers;  // that the user asked for
  Results& results;                           // written on rank 0
};

// The benchmark itself, which runs on every rank. If it returns an error, the job prints the error and ends.
using Body = std::function<absl::Status(Rank& rank)>;

struct JobRequest {
  std::string command;             // the subcommand
  std::vector<std::string> words;  // and its arguments, as the user gave them
  JobOptions options;
};

// Runs `body` on every rank of a job. If a launcher has started this process, the job is the one that the launcher
// started. Otherwise, RunJob() starts one job for each number of ranks, one after the other, with the launcher that the
// peers need. The files contain the results of all jobs. If a job fails, RunJob() starts no further job, and writes the
// results so far.
//
// Sets the environment so that ronda::init() joins a job of the same ranks; `body` calls init() and shutdown(). If a
// peer is not installed, reports an error and measures nothing. Prints how long a cache line takes between two cores,
// before and after the benchmark. Returns the exit code of the process.
int RunJob(const JobRequest& request, const Body& body);

// Parses the arguments of a subcommand. Returns true if the subcommand may run. Returns false after printing the help
// text or an error, and sets *exit_code to the exit code of the process.
bool ParseOrExplain(Flags* flags, const std::vector<std::string>& words, int* exit_code);

// Prints "ronda-bench: ERROR" to stderr. Returns the exit code: 2 for INVALID_ARGUMENT, 1 for others.
int Explain(const absl::Status& error);

}  // namespace ronda::bench

#endif  // RONDA_BENCH_HARNESS_JOB_H_
