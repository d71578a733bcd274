// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_PROGRAMS_OPTIONS_LAUNCH_OPTIONS_H_
#define RONDA_PROGRAMS_OPTIONS_LAUNCH_OPTIONS_H_

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "programs/options/hosts.h"

namespace ronda {

// A rank's two output streams.
enum class Stream { kStdout = 0, kStderr = 1 };
inline constexpr int kStreamCount = 2;

constexpr const char* Name(Stream stream) { return stream == Stream::kStdout ? "stdout" : "stderr"; }

// A fixed number of nodes, as in torchrun. Each node starts its own ranks, and all nodes have the same number of ranks.
// Rank 0 is on node 0, which is also where all ranks meet.
struct NodeGroup {
  int nodes = 2;
  int node_rank = 0;
  // kByArrival: nodes are numbered in the order in which they connect to the master address, as with torchrun's c10d.
  // `node_rank` is unknown until the node has connected.
  enum class Numbering { kGiven, kByArrival } numbering = Numbering::kGiven;
  std::string master_address = "127.0.0.1";
  int master_port = 29500;
};

// Options for running ranks on other hosts.
struct RemoteOptions {
  int ssh_port = 0;                             // 0: ssh's own choice
  std::string ssh_identity_file;                // empty: ssh's own choice
  std::string agent;                            // called as AGENT HOST COMMAND instead of ssh; empty: ssh
  std::vector<std::string> network_interfaces;  // that hosts talk over; empty: any
  std::vector<std::string> exports;             // of -x: names of variables that all ranks get, wherever they run
  std::vector<std::string> mpi_arguments;       // for mpirun, as they are
  std::vector<std::string> binding_arguments;   // for mpirun, instead of "-bind-to none -map-by slot"
  enum class Transport { kAny, kTcp } transport = Transport::kAny;
};

// The nodes of a job whose nodes may come and go, as in torchrun. Each node runs a rondarun with the same command line.
// The rondarun on the host with the address `address` is the leader.
struct NodeRange {
  int min_nodes = 1;
  int max_nodes = 1;
  std::string address;  // of the leader
  int port = 29500;
  std::string timeout_option = "--elastic-timeout";  // says how long nodes wait for each other
};

// A job whose members may change. Members that die are replaced; meanwhile, the others continue.
struct ElasticOptions {
  int min_ranks = 1;
  int max_ranks = 1;
  absl::Duration timeout = absl::Seconds(600);  // of all waits for members
  std::optional<int> reset_limit;               // of changes
  // How long to wait after a failure before reusing a slot whose member died, or a host that was lost. The first number
  // is the time after the first failure. This time doubles with each failure, up to the second number. nullopt: the
  // defaults of JobMembership.
  std::optional<std::pair<absl::Duration, absl::Duration>> cooldown;
  std::string discovery_script;    // lists the hosts, which may change; empty: `hosts` are the hosts
  int slots_per_host = 0;          // of listed hosts without slots; 0: each must have some
  std::optional<NodeRange> nodes;  // the hosts come by themselves; nullopt: this rondarun has them
};

// The job that the user describes on rondarun's command line.
struct LaunchOptions {
  // kPreflight needs neither ranks nor a command; kHelp, kVersion and kCheckBuild need nothing.
  enum class Action { kRun, kDryRun, kHelp, kVersion, kCheckBuild, kPreflight };
  // The prefix of each line of a rank's output.
  enum class LinePrefix { kRank, kTimestampAndRank };
  // The program that starts the ranks. kAutomatic: rondarun starts the ranks of a job on this host; mpirun starts those
  // of a job on several hosts.
  enum class Launcher { kAutomatic, kMpirun, kSsh };
  // The cores on which each rank may run.
  enum class Binding { kNone, kCore, kNuma };

  Action action = Action::kRun;
  int rank_count = 0;            // in the job; with `nodes`: on this node; 0: preflight of hosts alone
  std::vector<HostSlots> hosts;  // empty: this host, with as many slots as there are ranks
  Launcher launcher = Launcher::kAutomatic;
  RemoteOptions remote;
  std::optional<NodeGroup> nodes;  // this rondarun starts only the ranks of its node
  std::vector<int> devices;        // GPUs to hand out by local rank; empty: all
  Binding binding = Binding::kNone;
  std::optional<ElasticOptions> elastic;  // `rank_count` is the number at the beginning; with NodeRange: of this node
  int max_restarts = 0;                   // how often the whole job is started again after a failure
  std::vector<int> signals_to_pass;       // that end the job and go to the ranks; empty: SIGINT, SIGTERM, SIGHUP
  bool verbose = false;
  bool summary = false;
  std::string name;                    // of the job, for people; empty: none
  std::string output_directory;        // empty: no files
  std::vector<Stream> hidden_streams;  // of the ranks: only written to files, not shown
  LinePrefix line_prefix = LinePrefix::kRank;
  absl::Duration grace_period = absl::Seconds(5);
  std::optional<int> monitor_port;              // of the ronda-monitor that is started, 0: any; nullopt: none is
  std::map<std::string, std::string> settings;  // variables that options set for the ranks (-x NAME=VALUE too)
  std::vector<std::string> notes;               // shown before the start: options without effect, unwise options
  std::string words_before;                     // the command: "rondarun -np 2", without secrets
  std::vector<std::string> command;             // program and its arguments; not empty for kRun and kDryRun
};

}  // namespace ronda

#endif  // RONDA_PROGRAMS_OPTIONS_LAUNCH_OPTIONS_H_
