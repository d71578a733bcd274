// SPDX-License-Identifier: Apache-2.0

#include "bench/harness/job.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "bench/harness/machine.h"
#include "programs/options/local_host.h"
#include "runtime/backends/registry.h"
#include "runtime/base/status_macros.h"

namespace ronda::bench {
namespace {

constexpr int kFailure = 1;
constexpr int kUsageError = 2;
constexpr int kOverwrite = 1;
constexpr int kKeep = 0;

const std::vector<std::string>& InterleavedBackends() {
  static const auto* const names = new std::vector<std::string>{kShm, kInProcess};
  return *names;
}

// Returns the values of RONDA_BACKEND other than kShm. Each of these backends is measured in a job of its own.
const std::vector<std::string>& WholeJobBackends() {
  static const auto* const names = [] {
    auto* const all = new std::vector<std::string>;
    for (const absl::string_view name : HostBackendNames()) {
      if (name != kShm) all->emplace_back(name);
    }
    return all;
  }();
  return *names;
}

bool IsAmong(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

absl::Status ReadBackends(const std::string& text, std::vector<std::string>* backends) {
  if (IsAmong(WholeJobBackends(), text)) {
    *backends = {text};
    return absl::OkStatus();
  }
  const absl::Status read = ChoiceList(backends, InterleavedBackends())(text);
  if (read.ok()) return read;
  return absl::InvalidArgumentError(
      absl::StrCat(read.message(), ", or one of ", absl::StrJoin(WholeJobBackends(), ", ")));
}

Flags::Reader PeerList(std::vector<std::string>* peers) {
  return [peers](const std::string& text) -> absl::Status {
    RONDA_ASSIGN_OR_RETURN(const std::vector<std::string> names, SplitList(text));
    for (const std::string& name : names) {
      if (FindPeer(name) == nullptr) return absl::InvalidArgumentError("a list of mpi (Open MPI), mpich and gloo");
    }
    *peers = names;
    return absl::OkStatus();
  };
}

// Returns the launcher that can start all `peers` or, without peers, ranks with `backend`. Errors: INVALID_ARGUMENT if
// two peers need different launchers.
absl::StatusOr<Launcher> LauncherFor(const std::vector<const PeerInfo*>& peers, const std::string& backend) {
  const PeerInfo* chosen = nullptr;
  for (const PeerInfo* peer : peers) {
    if (!peer->launcher) continue;
    if (chosen != nullptr && chosen->launcher != peer->launcher) {
      return absl::InvalidArgumentError(
          absl::StrCat(chosen->title, " and ", peer->title, " have to be compared with in runs of their own"));
    }
    chosen = peer;
  }
  if (chosen != nullptr) return *chosen->launcher;
  return AlwaysNeeds(backend, Carrier::Needs::kMpi) ? Launcher::kOpenMpi : Launcher::kRondarun;
}

// Errors: NOT_FOUND if a peer is not installed.
absl::StatusOr<std::vector<const PeerInfo*>> InstalledPeers(const std::vector<std::string>& names) {
  std::vector<const PeerInfo*> peers;
  for (const std::string& name : names) {
    peers.push_back(FindPeer(name));
    RONDA_RETURN_IF_ERROR(CheckInstalled(*peers.back()));
  }
  return peers;
}

// Collects the results of successive jobs. Thread-compatible.
class JobResults {
 public:
  explicit JobResults(const JobRequest& request) : results_(request.command, request.words) {}

  // Handles a message from rank 0 of a job.
  void Receive(const OutputMessage& message) {
    if (message.kind == OutputMessage::Kind::kDistances) {
      results_.SetCoreDistance(is_any_complete_ ? results_.core_distance()[0] : message.distances[0],
                               message.distances[1]);
      is_any_complete_ = true;
      return;
    }
    if (message.kind == OutputMessage::Kind::kPeer) return results_.AddPeer(message.text);
    absl::StatusOr<ResultRow> row = DecodeRow(message.text);
    if (row.ok()) {
      results_.Add(*std::move(row));
    } else {
      status_.Update(row.status());
    }
  }

  void SetBusyCores(double before, double after) { results_.SetBusyCores(before, after); }

  // Writes the results. Errors: a row that could not be decoded, or a file that could not be written.
  absl::Status Write(const Results::Files& files) {
    if (is_any_complete_) status_.Update(results_.Write(files));
    return status_;
  }

 private:
  Results results_;
  bool is_any_complete_ = false;  // a job's distances come after its rows
  absl::Status status_;
};

// Chooses the rendezvous port for ranks that need an address, unless the launcher is rondarun, which chooses the port
// itself.
void ChooseRendezvousPort(Launcher launcher, const std::string& backend) {
  if (launcher == Launcher::kRondarun || !AlwaysNeeds(backend, Carrier::Needs::kAddress)) return;
  setenv("RONDA_MASTER_PORT", absl::StrCat(FindFreePorts(1).front()).c_str(), kKeep);
}

// Runs one job, and collects its results. Returns the exit code of the launcher. Errors: those of PlanLaunch and
// ShowLaunch.
absl::StatusOr<int> RunOneJob(const LaunchRequest& launch, JobResults* results) {
  RONDA_ASSIGN_OR_RETURN(const LaunchCommand command, PlanLaunch(launch, FindInstalledProgram()));
  return ShowLaunch(command, [results](const OutputMessage& message) { results->Receive(message); });
}

absl::StatusOr<int> StartJobs(const JobRequest& request) {
  RONDA_ASSIGN_OR_RETURN(const std::vector<const PeerInfo*> peers, InstalledPeers(request.options.peers));
  RONDA_ASSIGN_OR_RETURN(const Launcher launcher, LauncherFor(peers, request.options.backend));
  ChooseRendezvousPort(launcher, request.options.backend);
  LaunchRequest launch = {
      .launcher = launcher,
      .setting = request.options.peer_setting == "best" ? PeerSetting::kBest : PeerSetting::kDefault,
      .command = {OwnProgram(), request.command},
      .user_id = static_cast<int>(getuid())};
  launch.command.insert(launch.command.end(), request.words.begin(), request.words.end());
  JobResults results(request);
  const double busy_before = BusyCoresNow();
  absl::StatusOr<int> exit_code = 0;
  for (size_t i = 0; i < request.options.ranks.size() && exit_code.ok() && *exit_code == 0; ++i) {
    launch.ranks = request.options.ranks[i];
    exit_code = RunOneJob(launch, &results);
  }
  results.SetBusyCores(busy_before, BusyCoresNow());
  // The results of the earlier jobs are written even if the last job could not be started.
  const absl::Status written = results.Write(request.options.files);
  if (exit_code.ok() && !written.ok()) return written;
  return exit_code;
}

absl::StatusOr<std::vector<std::unique_ptr<Peer>>> LoadPeers(const JobOptions& options, const LaunchedRank& launched,
                                                             ProcessGroup* group) {
  std::vector<std::unique_ptr<Peer>> peers;
  for (const std::string& name : options.peers) {
    const PeerInfo& info = *FindPeer(name);
    if (info.launcher.value_or(launched.launcher) != launched.launcher) {
      return absl::InvalidArgumentError(absl::StrCat("--peer ", name, ": ", Name(*info.launcher), " has to start ",
                                                     info.title, "'s ranks, and has not started this job"));
    }
    RONDA_ASSIGN_OR_RETURN(peers.emplace_back(), Peer::Load(info, group));
  }
  return peers;
}

// Returns how long a cache line takes between two cores. Rank 0 measures this time while the other ranks wait.
double MeasureCoreDistance(const char* when, ProcessGroup* group, Output* output) {
  group->Barrier();
  const double distance = group->is_first() ? CoreDistanceNanoseconds() : 0;
  output->Print(absl::StrCat("# cache line between two cores, ", when, ": ", static_cast<int>(distance), " ns\n"));
  group->Barrier();
  return distance;
}

void PrintHead(const LaunchedRank& launched, const std::vector<std::unique_ptr<Peer>>& peers, Output* output) {
  const Machine machine = DescribeMachine();
  output->Print(absl::StrCat("# ", machine.cpu, ", ", machine.cores, " cores, ", machine.kernel, ", ", NowInUtc(),
                             "\n# ", launched.size, " ranks, started by ", Name(launched.launcher), "\n"));
  for (const std::unique_ptr<Peer>& peer : peers) output->Print(absl::StrCat("# beside ", peer->description(), "\n"));
}

// Runs the body. Turns exceptions from the client API into errors.
absl::Status RunBody(const Body& body, Rank& rank) {
  try {
    return body(rank);
  } catch (const std::exception& error) {
    return absl::InternalError(error.what());
  }
}

// Sends the results to the process that started the ranks, if that process is ronda-bench. Otherwise, writes the files
// here.
absl::Status HandOver(const Results& results, const Results::Files& files, Output* output) {
  if (!output->has_reader()) return results.Write(files);
  for (const ResultRow& row : results.rows()) output->Row(EncodeRow(row));
  for (const std::string& peer : results.peers()) output->Peer(peer);
  output->Distances(results.core_distance()[0], results.core_distance()[1]);
  return absl::OkStatus();
}

absl::Status RunRank(const JobRequest& request, const Body& body, const LaunchedRank& launched) {
  const auto& bindings = BindingNames();
  Bind(static_cast<Binding>(std::find(bindings.begin(), bindings.end(), request.options.binding) - bindings.begin()),
       launched.rank);
  DescribeJobToRonda(launched);
  RONDA_ASSIGN_OR_RETURN(const std::unique_ptr<ProcessGroup> group, ProcessGroup::Create(launched));
  Output output(launched.rank, ProcessVariables()(kOutputVariable).value_or(""));
  RONDA_ASSIGN_OR_RETURN(std::vector<std::unique_ptr<Peer>> peers, LoadPeers(request.options, launched, group.get()));
  PrintHead(launched, peers, &output);
  Results results(request.command, request.words);
  for (const std::unique_ptr<Peer>& peer : peers) results.AddPeer(peer->description());
  Rank rank = {.launched = launched, .group = *group, .output = output, .peers = peers, .results = results};
  const double before = MeasureCoreDistance("before", group.get(), &output);
  RONDA_RETURN_IF_ERROR(RunBody(body, rank));
  results.SetCoreDistance(before, MeasureCoreDistance("after", group.get(), &output));
  return group->is_first() ? HandOver(results, request.options.files, &output) : absl::OkStatus();
}

}  // namespace

void AddFileFlags(Flags* flags, Results::Files* files) {
  // A folder that does not exist is an error before the benchmark runs. Only rank 0 writes files, so the folder need
  // not exist on the hosts of other ranks.
  const absl::StatusOr<std::optional<LaunchedRank>> launched = FindLaunchedRank(ProcessVariables(), getppid());
  const bool is_other_rank = launched.ok() && launched->has_value() && (*launched)->rank != 0;
  const auto file = [&](std::string* name) { return is_other_rank ? Text(name) : FileToWrite(name); };
  flags->Add({.names = {"--json"}, .value = "FILE", .help = "Also write the results to FILE, as JSON."},
             file(&files->json));
  flags->Add({.names = {"--csv"}, .value = "FILE", .help = "Also write the results to FILE, as CSV."},
             file(&files->csv));
}

void AddPeerFlag(Flags* flags, std::vector<std::string>* peers) {
  flags->Add({.names = {"--peer"},
              .value = "LIST",
              .help = "Libraries to compare with, interleaved: mpi (Open MPI), mpich,\n"
                      "gloo. The two MPIs need runs of their own."},
             PeerList(peers));
}

void AddBackendFlag(Flags* flags, const std::string& purpose, std::vector<std::string>* backends) {
  flags->Add({.names = {"--backend"},
              .value = "LIST",
              .help = absl::StrCat(purpose, ": ", absl::StrJoin(InterleavedBackends(), ", "),
                                   ", or all (shm). inprocess runs the ranks as threads\n"
                                   "of the first process. Or one of ",
                                   absl::StrJoin(WholeJobBackends(), ", "),
                                   ",\nwhich sets RONDA_BACKEND for the whole job; ranks that need MPI are started by "
                                   "Open MPI's mpirun.\nAcross hosts shm stands for the backend that ronda::init() "
                                   "would choose.")},
             [backends](const std::string& text) { return ReadBackends(text, backends); });
}

std::string JobBackend(const std::vector<std::string>& backends) {
  return IsAmong(InterleavedBackends(), backends.front()) ? "" : backends.front();
}

void AddJobFlags(Flags* flags, JobOptions* options) {
  flags->Add({.names = {"-np", "--ranks"},
              .value = "LIST",
              .help = "Ranks to start on this machine (2); 2,4 runs all with 2,\n"
                      "then with 4. Ignored when a launcher has started this program."},
             IntegerList(&options->ranks, {.min = 1, .max = 1024}));
  AddPeerFlag(flags, &options->peers);
  flags->Add({.names = {"--peer-setting"},
              .value = "SETTING",
              .help = "default: peers as they come. best: as they are fastest on\n"
                      "one host (user-space copies, an allocator that keeps memory)."},
             Choice(&options->peer_setting, {"default", "best"}));
  flags->Add({.names = {"--bind"},
              .value = "HOW",
              .help = "launcher: ranks run on the cores that the launcher gives them.\n"
                      "none: on all. core: on one each."},
             Choice(&options->binding, BindingNames()));
  AddFileFlags(flags, &options->files);
}

int Explain(const absl::Status& error) {
  std::fprintf(stderr, "ronda-bench: %s\n", std::string(error.message()).c_str());
  return absl::IsInvalidArgument(error) ? kUsageError : kFailure;
}

bool ParseOrExplain(Flags* flags, const std::vector<std::string>& words, int* exit_code) {
  const absl::Status parsed = flags->Parse(words);
  if (!parsed.ok()) {
    *exit_code = Explain(parsed);
    std::fprintf(stderr, "%s\n       with --help it explains its options\n", flags->Usage().c_str());
    return false;
  }
  if (!flags->help_requested()) return true;
  std::fputs(flags->Help().c_str(), stdout);
  *exit_code = 0;
  return false;
}

int RunJob(const JobRequest& request, const Body& body) {
  if (!request.options.backend.empty()) setenv("RONDA_BACKEND", request.options.backend.c_str(), kOverwrite);
  const absl::StatusOr<std::optional<LaunchedRank>> launched = FindLaunchedRank(ProcessVariables(), getppid());
  if (!launched.ok()) return Explain(launched.status());
  if (launched->has_value()) {
    const absl::Status status = RunRank(request, body, **launched);
    return status.ok() ? 0 : Explain(status);
  }
  const absl::StatusOr<int> exit_code = StartJobs(request);
  return exit_code.ok() ? *exit_code : Explain(exit_code.status());
}

}  // namespace ronda::bench
