#ifndef RONDA_BENCH_JOB_H_
#define RONDA_BENCH_JOB_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "bench/arguments.h"
#include "bench/output.h"
#include "bench/peers/peer_library.h"
#include "bench/place.h"
#include "bench/results.h"
#include "bench/team.h"

namespace ronda::bench {

// What all subcommands that run on several ranks are told.
struct JobOptions {
  std::vector<int> ranks = {2};    // of the jobs that ronda-bench starts, unless a launcher has started it
  std::vector<std::string> peers;  // names of KnownPeers()
  std::string peer_setting = "default";
  std::string binding = "launcher";
  std::string backend;  // RONDA_BACKEND of all ranks; "": as it is
  Results::Files files;
};

// -np, --peer, --peer-setting, --bind, --json, --csv.
void AddJobFlags(Flags* flags, JobOptions* options);

// --peer alone.
void AddPeerFlag(Flags* flags, std::vector<std::string>* peers);

// --json and --csv alone.
void AddFileFlags(Flags* flags, Results::Files* files);

// One rank of a benchmark, as its body sees it.
struct Rank {
  const Place& place;
  Team& team;
  Output& output;                             // prints on rank 0 alone
  std::vector<std::unique_ptr<Peer>>& peers;  // that were asked for and are installed
  Results& results;                           // written on rank 0
};

// What a benchmark runs on every rank. An error ends the job with its text.
using Body = std::function<absl::Status(Rank& rank)>;

struct JobRequest {
  std::string command;             // the subcommand
  std::vector<std::string> words;  // and its arguments, as the user gave them
  JobOptions options;
};

// Runs `body` on every rank of a job: in a process that a launcher has started, as a rank of its job; elsewhere by
// starting a job for each number of ranks, one after the other, with the launcher that the peers need; the files
// hold the results of all. After a job that fails no other is started; what has been measured is written. The
// environment is set so that ronda::init() joins a job of the same ranks; init() and shutdown() are the body's. Peers
// that are not installed are named, and the job runs without them. Prints the distance between the cores before and
// after. Returns the process' exit code.
int RunJob(const JobRequest& request, const Body& body);

// Reads a subcommand's words. Returns true if it may go on; otherwise *exit_code is the process', after help or the
// error was printed.
bool ParseOrExplain(Flags* flags, const std::vector<std::string>& words, int* exit_code);

}  // namespace ronda::bench

#endif  // RONDA_BENCH_JOB_H_
