// SPDX-License-Identifier: Apache-2.0

#include "runtime/rendezvous/launchers.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "runtime/base/config.h"
#include "runtime/base/slurm_variables.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

// The largest size of a job. Below it, products of ranks and sizes do not overflow.
constexpr int64_t kMaxSize = 1 << 20;
constexpr size_t kMaxAddressLength = 255;
constexpr absl::string_view kDefaultMasterAddress = "127.0.0.1";

// Ronda picks a port in this range for a job that does not specify one. Neither well-known services nor outgoing
// connections use these ports.
constexpr int64_t kDerivedPorts = 20000;
constexpr int64_t kDerivedPortCount = 12000;

// Ronda picks a port in this range for another library's store. Neither well-known services nor outgoing connections
// use these ports.
constexpr int64_t kStorePorts = 10000;
constexpr int64_t kStorePortCount = 10000;

absl::Status MissingVariable(VariableName missing, VariableName given, const std::optional<std::string>& value) {
  return absl::InvalidArgumentError(absl::StrCat(missing.view(), " is not set, but ", given.view(), "=\"",
                                                 value.value_or(""),
                                                 "\" is: set both, or neither for a job of one rank"));
}

// Returns whether `address` looks like a host name or a numeric address. Does not check whether the host exists.
bool IsValidAddress(absl::string_view address) {
  if (address.empty() || address.size() > kMaxAddressLength) return false;
  return std::all_of(address.begin(), address.end(), [](unsigned char c) {
    return absl::ascii_isalnum(c) || c == '-' || c == '_' || c == '.' || c == ':';
  });
}

// Returns whether the address includes a port, as in "alpha:29500". An IPv6 address has two or more colons.
bool HasPort(absl::string_view address) { return std::count(address.begin(), address.end(), ':') == 1; }

// Reads the address and the port of rank 0 from a text such as "10.0.0.1:6170" or "[fd00::1]:6170".
bool ReadEndpoint(absl::string_view text, JobEnvironment* job) {
  const size_t colon = text.rfind(':');
  if (colon == absl::string_view::npos) return false;
  absl::string_view address = text.substr(0, colon);
  if (address.size() > 2 && address.front() == '[' && address.back() == ']') {
    address = address.substr(1, address.size() - 2);
  }
  int port = 0;
  if (!absl::SimpleAtoi(text.substr(colon + 1), &port) || port < 1 || port > 65535) return false;
  if (!IsValidAddress(address)) return false;
  job->master_address = std::string(address);
  job->master_port = port;
  return true;
}

// Describes the expected format for an error about the invalid `address`. Users often add a port or blanks to an
// address.
std::string ProperAddress(absl::string_view address, VariableName port_name) {
  constexpr absl::string_view kForm = "a host name, an IPv4 address or an IPv6 address, without blanks and brackets";
  JobEnvironment split;
  if (!ReadEndpoint(address, &split)) return std::string(kForm);
  return absl::StrCat(split.master_address, " alone; the port is a variable of its own, ", port_name.view(), "=",
                      split.master_port);
}

// Reads the address and port at which rank 0 listens. Each variable that is set replaces the value in `job`.
absl::Status ReadMaster(const EnvironmentVariables& variables, VariableName address_name, VariableName port_name,
                        JobEnvironment* job) {
  int64_t port = job->master_port;
  RONDA_RETURN_IF_ERROR(variables.ReadInteger(port_name, {.min = 1, .max = 65535}, &port));
  const std::string address = variables.Get(address_name).value_or(job->master_address);
  if (variables.IsSet(address_name) && (!IsValidAddress(address) || HasPort(address))) {
    return InvalidVariable(address_name.view(), address, ProperAddress(address, port_name));
  }
  job->master_port = static_cast<int>(port);
  job->master_address = address;
  return absl::OkStatus();
}

// Reads the address of rank 0 from RONDA_MASTER_ADDR and RONDA_MASTER_PORT. They let Ronda work alongside torchrun,
// whose own store listens on MASTER_PORT.
absl::Status CompleteMaster(const EnvironmentVariables& variables, JobEnvironment* job) {
  RONDA_RETURN_IF_ERROR(ReadMaster(variables, "RONDA_MASTER_ADDR", "RONDA_MASTER_PORT", job));
  if (job->master_port == 0 && !job->master_address.empty()) {
    const bool is_rondas = variables.IsSet("RONDA_MASTER_ADDR");
    const VariableName given = is_rondas ? VariableName("RONDA_MASTER_ADDR") : VariableName("MASTER_ADDR");
    const VariableName missing = is_rondas ? VariableName("RONDA_MASTER_PORT") : VariableName("MASTER_PORT");
    return MissingVariable(missing, given, variables.Get(given));
  }
  if (job->master_port != 0 && job->master_address.empty()) job->master_address = std::string(kDefaultMasterAddress);
  return absl::OkStatus();
}

absl::Status CompleteNothing(const EnvironmentVariables&, JobEnvironment*) { return absl::OkStatus(); }

absl::Status CompleteTorchrun(const EnvironmentVariables& variables, JobEnvironment* job) {
  return ReadMaster(variables, "MASTER_ADDR", "MASTER_PORT", job);
}

absl::Status CompleteRonda(const EnvironmentVariables& variables, JobEnvironment* job) {
  return variables.IsSet("RONDA_JOB_ID") ? absl::OkStatus() : CompleteTorchrun(variables, job);
}

absl::Status CompletePaddle(const EnvironmentVariables& variables, JobEnvironment* job) {
  constexpr VariableName kEndpoints = "PADDLE_TRAINER_ENDPOINTS";
  const std::optional<std::string> list = variables.Get(kEndpoints);
  if (!list) return absl::OkStatus();
  const std::vector<std::string> endpoints = absl::StrSplit(*list, ',');
  if (static_cast<int>(endpoints.size()) != job->size) {
    return InvalidVariable(kEndpoints.view(), *list,
                           absl::StrCat("one ip:port for each of the ", job->size, " trainers"));
  }
  if (!ReadEndpoint(endpoints.front(), job)) {
    return InvalidVariable(kEndpoints.view(), *list, "a list such as 10.0.0.1:6170,10.0.0.2:6170");
  }
  const std::optional<std::string> own = variables.Get("PADDLE_CURRENT_ENDPOINT");
  if (own && *own != endpoints[static_cast<size_t>(job->rank)]) {
    return InvalidVariable("PADDLE_CURRENT_ENDPOINT", *own,
                           absl::StrCat(endpoints[static_cast<size_t>(job->rank)], ", as number ", job->rank, " of ",
                                        kEndpoints.view(), " says"));
  }
  return absl::OkStatus();
}

// Sets the job id to `prefix` and `parts`, which identify the job among all jobs of one launcher. Does not set it if a
// part is missing, or if the job has several hosts, because the id only names shared memory.
void SetJobId(absl::string_view prefix, const std::vector<std::optional<std::string>>& parts, JobEnvironment* job) {
  if (job->local_size != job->size) return;
  std::string id(prefix);
  for (const std::optional<std::string>& part : parts) {
    if (!part) return;
    absl::StrAppend(&id, "-", *part);
  }
  if (IsValidJobId(id)) job->job_id = std::move(id);
}

absl::Status CompleteOpenMpi(const EnvironmentVariables& variables, JobEnvironment* job) {
  SetJobId("ompi", {variables.Get("PMIX_NAMESPACE")}, job);
  return absl::OkStatus();
}

absl::Status ReadSlurmHosts(const EnvironmentVariables& variables, JobEnvironment* job) {
  const std::optional<std::string> tasks = variables.Get("SLURM_STEP_TASKS_PER_NODE");
  if (!tasks) return absl::OkStatus();
  const std::optional<std::vector<int>> counts = SlurmTaskCounts(*tasks);
  if (!counts) return InvalidVariable("SLURM_STEP_TASKS_PER_NODE", *tasks, "a list of counts such as 2(x3),1");
  std::optional<int> node;
  const auto last = static_cast<int64_t>(counts->size()) - 1;
  RONDA_RETURN_IF_ERROR(variables.ReadInteger("SLURM_NODEID", {.min = 0, .max = last}, &node));
  const int here = (*counts)[static_cast<size_t>(node.value_or(0))];
  if (std::accumulate(counts->begin(), counts->end(), int64_t{0}) != job->size || here == 0) {
    return InvalidVariable("SLURM_STEP_TASKS_PER_NODE", *tasks,
                           absl::StrCat("counts of tasks on hosts, this one too, that add up to ", job->size));
  }
  // If the job has only one host, its number of tasks is known even without its host number.
  if (node || last == 0) job->local_size = here;
  return absl::OkStatus();
}

absl::Status CompleteSlurm(const EnvironmentVariables& variables, JobEnvironment* job) {
  RONDA_RETURN_IF_ERROR(ReadSlurmHosts(variables, job));
  SetJobId("slurm", {variables.Get("SLURM_JOB_ID"), variables.Get("SLURM_STEP_ID")}, job);
  // Ranks that find each other through MPI get their secret from rank 0. Without MPI, only the user can provide one.
  if (job->mpi.use == MpiEnvironment::Use::kAlways) return absl::OkStatus();
  const std::optional<std::string> list = variables.Get("SLURM_STEP_NODELIST");
  if (!list) return absl::OkStatus();
  const auto hosts = SlurmHosts(*list);
  if (!hosts || !IsValidAddress(hosts->front())) {
    return InvalidVariable("SLURM_STEP_NODELIST", *list, "a list of hosts such as n[01-03,7]");
  }
  int64_t slurm_job = 0, step = 0;
  RONDA_RETURN_IF_ERROR(variables.ReadInteger("SLURM_JOB_ID", {.min = 0, .max = INT64_MAX}, &slurm_job));
  RONDA_RETURN_IF_ERROR(variables.ReadInteger("SLURM_STEP_ID", {.min = 0, .max = kSlurmSpecialSteps}, &step));
  job->master_address = hosts->front();
  job->master_port = static_cast<int>(kDerivedPorts + (slurm_job % kDerivedPortCount + step) % kDerivedPortCount);
  return absl::OkStatus();
}

struct StoreAddress {
  std::string address;
  int64_t port = 0;
};

std::optional<StoreAddress> NoStore(const EnvironmentVariables&, const JobEnvironment&) { return std::nullopt; }

// Derives a store's address from the job id, which identifies the job on its host.
std::optional<StoreAddress> StoreOfJobId(const EnvironmentVariables&, const JobEnvironment& job) {
  if (job.job_id.empty()) return std::nullopt;
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a, which is the same in every process
  for (const unsigned char c : job.job_id) hash = (hash ^ c) * 0x100000001b3;
  return StoreAddress{.address = std::string(kDefaultMasterAddress),
                      .port = kStorePorts + static_cast<int64_t>(hash % uint64_t{kStorePortCount})};
}

std::optional<StoreAddress> StoreOfSlurm(const EnvironmentVariables& variables, const JobEnvironment& job) {
  const auto hosts = SlurmHosts(variables.Get("SLURM_STEP_NODELIST").value_or(""));
  int64_t slurm_job = 0, step = 0;
  if (!hosts || !absl::SimpleAtoi(variables.Get("SLURM_JOB_ID").value_or(""), &slurm_job) ||
      !absl::SimpleAtoi(variables.Get("SLURM_STEP_ID").value_or(""), &step)) {
    return std::nullopt;
  }
  return StoreAddress{.address = job.local_size == job.size ? std::string(kDefaultMasterAddress) : hosts->front(),
                      .port = kStorePorts + (slurm_job % kStorePortCount + step) % kStorePortCount};
}

// The names of one launcher's environment variables. A name is empty if the launcher has no such variable.
struct LauncherVariables {
  Launcher launcher;
  const char* source;
  VariableName rank;
  VariableName size;
  VariableName size_list;  // a list with one item per rank; used if `size` is not set
  VariableName index;      // another program's number for this process; the rank if `rank` is not set
  VariableName local_rank;
  VariableName local_size;
  VariableName cross_rank;
  VariableName cross_size;
  // If one of these variables is set, this launcher started the job, and incomplete settings are an error. If no
  // launcher has such a variable set, the job has one rank.
  VariableName signs[6] = {};
  // Reads the launcher's other variables, after the rank and the size.
  absl::Status (*complete)(const EnvironmentVariables&, JobEnvironment*) = CompleteNothing;
  // Where rank 0 may listen for another library, if the launcher does not set MASTER_ADDR and MASTER_PORT.
  std::optional<StoreAddress> (*store)(const EnvironmentVariables&, const JobEnvironment&) = NoStore;
};

// In an Indexed Job, Kubernetes tells each pod its number, and nothing else about the job.
constexpr VariableName kKubernetesIndex = "JOB_COMPLETION_INDEX";

// Ronda uses the first launcher in this list with one of its `signs` in the environment. If that is torchrun,
// FindLauncher() may prefer a later launcher. Slurm comes after MPICH, because MPICH's mpiexec starts its agents with
// srun.
constexpr LauncherVariables kLaunchers[] = {
    {.launcher = Launcher::kRondarun,
     .source = "rondarun",
     .rank = "RONDA_RANK",
     .size = "RONDA_SIZE",
     .index = kKubernetesIndex,
     .local_rank = "RONDA_LOCAL_RANK",
     .local_size = "RONDA_LOCAL_SIZE",
     .cross_rank = "RONDA_CROSS_RANK",
     .cross_size = "RONDA_CROSS_SIZE",
     .signs = {"RONDA_RANK", "RONDA_SIZE", "RONDA_LOCAL_RANK", "RONDA_LOCAL_SIZE", "RONDA_CROSS_RANK",
               "RONDA_CROSS_SIZE"},
     .complete = CompleteRonda},
    {.launcher = Launcher::kTorchrun,
     .source = "torchrun-style variables",
     .rank = "RANK",
     .size = "WORLD_SIZE",
     .index = kKubernetesIndex,
     .local_rank = "LOCAL_RANK",
     .local_size = "LOCAL_WORLD_SIZE",
     .signs = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
     .complete = CompleteTorchrun},
    {.launcher = Launcher::kPaddle,
     .source = "Paddle-style variables",
     .rank = "PADDLE_TRAINER_ID",
     .size = "PADDLE_TRAINERS_NUM",
     .size_list = "PADDLE_TRAINER_ENDPOINTS",
     .signs = {"PADDLE_TRAINER_ID", "PADDLE_TRAINERS_NUM", "PADDLE_TRAINER_ENDPOINTS", "PADDLE_CURRENT_ENDPOINT"},
     .complete = CompletePaddle},
    {.launcher = Launcher::kOpenMpi,
     .source = "mpirun of Open MPI",
     .rank = "OMPI_COMM_WORLD_RANK",
     .size = "OMPI_COMM_WORLD_SIZE",
     .local_rank = "OMPI_COMM_WORLD_LOCAL_RANK",
     .local_size = "OMPI_COMM_WORLD_LOCAL_SIZE",
     .signs = {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
     .complete = CompleteOpenMpi,
     .store = StoreOfJobId},
    {.launcher = Launcher::kMpich,
     .source = "mpiexec of MPICH",
     .rank = "PMI_RANK",
     .size = "PMI_SIZE",
     .local_rank = "MPI_LOCALRANKID",
     .local_size = "MPI_LOCALNRANKS",
     .signs = {"MPI_LOCALRANKID", "MPI_LOCALNRANKS"}},
    {.launcher = Launcher::kSlurm,
     .source = "srun of Slurm",
     .rank = "SLURM_PROCID",
     .size = "SLURM_NTASKS",
     .local_rank = "SLURM_LOCALID",
     .signs = {"SLURM_STEP_ID"},
     .complete = CompleteSlurm,
     .store = StoreOfSlurm},
    {.launcher = Launcher::kPmi,
     .source = "a process manager with PMI",
     .rank = "PMI_RANK",
     .size = "PMI_SIZE",
     .signs = {"PMI_RANK", "PMI_SIZE"}},
};

// A variable that shows that the user wants several ranks even if no launcher's `signs` are set. `missing` is the
// variable that the user must also set.
struct SignOfAnyJob {
  VariableName sign;
  VariableName missing;
};
constexpr SignOfAnyJob kSignsOfAnyJob[] = {{"RONDA_JOB_ID", "RONDA_RANK"},
                                           {"MASTER_ADDR", "RANK"},
                                           {"MASTER_PORT", "RANK"},
                                           {"RONDA_MASTER_ADDR", "RANK"},
                                           {"RONDA_MASTER_PORT", "RANK"}};

struct Found {
  const LauncherVariables* launcher = nullptr;
  VariableName sign;
};

// Returns whether the variable `name` shows that a launcher started this process. A shell in a Slurm allocation has
// Slurm's variables, but is not a task of a job step.
bool IsSign(const EnvironmentVariables& variables, VariableName name) {
  const std::optional<std::string> value = variables.Get(name);
  if (!value || name.view() != "SLURM_STEP_ID") return value.has_value();
  return IsStepOfSrun(*value);
}

absl::Status CheckNoJobIsMeant(const EnvironmentVariables& variables) {
  for (const auto& [sign, missing] : kSignsOfAnyJob) {
    if (variables.IsSet(sign)) return MissingVariable(missing, sign, variables.Get(sign));
  }
  // Under PRRTE without Open MPI, only the PMIx library knows the number of processes.
  const std::optional<std::string> number = variables.Get("PMIX_RANK");
  if (!number) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "PMIX_RANK=\"", *number,
      "\" is the number of a process among several, but no variable says of how many: start the ranks with "
      "rondarun or mpirun, or set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT; for a job of one rank "
      "unset PMIX_RANK"));
}

// Reads a rank within a group, and the size of the group, which is at most `limit`. Either may be missing.
absl::Status ReadGroup(const EnvironmentVariables& variables, VariableName rank_name, VariableName size_name, int limit,
                       std::optional<int>* rank, std::optional<int>* size) {
  if (size_name.exists()) {
    RONDA_RETURN_IF_ERROR(variables.ReadInteger(size_name, {.min = 1, .max = limit}, size));
  }
  if (!rank_name.exists()) return absl::OkStatus();
  return variables.ReadInteger(rank_name, {.min = 0, .max = size->value_or(limit) - 1}, rank);
}

absl::Status ReadRanks(const EnvironmentVariables& variables, const Found& found, JobEnvironment* job) {
  const LauncherVariables& names = *found.launcher;
  const bool has_index = names.index.exists() && variables.IsSet(names.index);
  const VariableName rank_name = !variables.IsSet(names.rank) && has_index ? names.index : names.rank;
  if (!variables.IsSet(rank_name)) return MissingVariable(rank_name, found.sign, variables.Get(found.sign));
  std::optional<int> rank;
  std::optional<int> size;
  if (!variables.IsSet(names.size)) {
    const VariableName source = names.size_list.exists() ? names.size_list : names.size;
    const std::optional<std::string> list = variables.Get(source);
    if (!list) return MissingVariable(source, found.sign, variables.Get(found.sign));
    size = static_cast<int>(std::count(list->begin(), list->end(), ',') + 1);
  }
  RONDA_RETURN_IF_ERROR(ReadGroup(variables, rank_name, names.size, static_cast<int>(kMaxSize), &rank, &size));
  job->rank = *rank;
  job->size = *size;
  job->source = names.source;
  job->is_pod = variables.IsSet(kKubernetesIndex);
  RONDA_RETURN_IF_ERROR(
      ReadGroup(variables, names.local_rank, names.local_size, job->size, &job->local_rank, &job->local_size));
  return ReadGroup(variables, names.cross_rank, names.cross_size, job->size, &job->cross_rank, &job->cross_size);
}

// Returns the first of `launchers` with one of its `signs` in the environment.
Found FindAmong(absl::Span<const LauncherVariables> launchers, const EnvironmentVariables& variables) {
  for (const LauncherVariables& launcher : launchers) {
    for (const VariableName sign : launcher.signs) {
      if (sign.exists() && IsSign(variables, sign)) return {.launcher = &launcher, .sign = sign};
    }
  }
  return {};
}

std::optional<StoreAddress> StoreOf(const Found& found, const EnvironmentVariables& variables) {
  JobEnvironment job;
  const bool is_complete = ReadRanks(variables, found, &job).ok() && found.launcher->complete(variables, &job).ok();
  return is_complete ? found.launcher->store(variables, job) : std::nullopt;
}

// Returns whether torchrun's variables contain the same rank, size and address as the variables of the launcher in
// `found`. Frameworks, user scripts and Ronda itself copy the variables of MPI or Slurm launchers to torchrun's
// variables. If so, only the variables of the launcher in `found` say where the ranks meet.
bool IsCopiedFrom(const Found& found, const EnvironmentVariables& variables) {
  const LauncherVariables& launcher = *found.launcher;
  const auto are_equal = [&](VariableName copy, VariableName original) {
    return variables.IsSet(original) && variables.Get(copy) == variables.Get(original);
  };
  if (!are_equal("RANK", launcher.rank) || !are_equal("WORLD_SIZE", launcher.size)) return false;
  if (!variables.IsSet("MASTER_ADDR") && !variables.IsSet("MASTER_PORT")) return true;
  const std::optional<StoreAddress> store = StoreOf(found, variables);
  return store && variables.Get("MASTER_ADDR") == store->address &&
         variables.Get("MASTER_PORT") == absl::StrCat(store->port);
}

Found FindLauncher(const EnvironmentVariables& variables) {
  const absl::Span<const LauncherVariables> all(kLaunchers);
  const Found found = FindAmong(all, variables);
  if (found.launcher == nullptr || found.launcher->launcher != Launcher::kTorchrun) return found;
  const Found below = FindAmong(all.subspan(static_cast<size_t>(found.launcher - all.data()) + 1), variables);
  return below.launcher != nullptr && IsCopiedFrom(below, variables) ? below : found;
}

absl::Status ReadJobId(const EnvironmentVariables& variables, JobEnvironment* job) {
  const std::optional<std::string> id = variables.Get("RONDA_JOB_ID");
  if (!id) return absl::OkStatus();
  if (!IsValidJobId(*id)) {
    return InvalidVariable("RONDA_JOB_ID", *id, "1 to 64 letters, digits, '-', '_' or '.', not beginning with '.'");
  }
  job->job_id = *id;
  return absl::OkStatus();
}

// Reads the job's secret, which must never appear in an error or in the log.
absl::Status ReadJobSecret(const EnvironmentVariables& variables, JobEnvironment* job) {
  const std::optional<std::string> secret = variables.Get("RONDA_JOB_SECRET");
  if (!secret) return absl::OkStatus();
  if (secret->empty()) {
    return absl::InvalidArgumentError(
        "RONDA_JOB_SECRET is set but empty: give every rank the same secret, or unset it");
  }
  job->job_secret = *secret;
  return absl::OkStatus();
}

// Returns the MPI whose MPI_Init would find the other ranks. This need not be the launcher that the rank comes from,
// because srun, or a script under mpirun, can set any launcher's variables.
MpiEnvironment::Launcher FindMpi(const EnvironmentVariables& variables) {
  for (const VariableName sign : {VariableName("OMPI_COMM_WORLD_SIZE"), VariableName("PMIX_RANK")}) {
    if (variables.IsSet(sign)) return MpiEnvironment::Launcher::kOpenMpi;
  }
  return variables.IsSet("PMI_RANK") ? MpiEnvironment::Launcher::kMpich : MpiEnvironment::Launcher::kNone;
}

absl::Status ReadMpi(const EnvironmentVariables& variables, MpiEnvironment* mpi) {
  mpi->launcher = FindMpi(variables);
  std::optional<bool> use;
  RONDA_RETURN_IF_ERROR(variables.ReadSwitch("RONDA_MPI", &use));
  if (use) mpi->use = *use ? MpiEnvironment::Use::kAlways : MpiEnvironment::Use::kNever;
  RONDA_RETURN_IF_ERROR(variables.ReadText("RONDA_MPI_PLUGIN", "the path of a libronda_mpi*.so", &mpi->plugin));
  if (mpi->use != MpiEnvironment::Use::kAlways || mpi->IsUsable()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "RONDA_MPI=\"1\", but no launcher of MPI has started this process: start the job with rondarun --mpi, mpirun or "
      "srun --mpi=pmix, or unset RONDA_MPI");
}

absl::Status CheckRanksCanMeet(const Found& found, const JobEnvironment& job) {
  const bool has_job_id = !job.job_id.empty() && job.IsOnOneHost();
  if (job.size == 1 || has_job_id || !job.master_address.empty() || job.mpi.IsUsable()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      found.launcher->size.view(), "=\"", job.size,
      "\", but nothing says how the ranks find each other: start the job with rondarun (which sets RONDA_JOB_ID on one "
      "host), with mpirun and without RONDA_MPI=0, or set MASTER_ADDR and MASTER_PORT to where rank 0 listens "
      "(RONDA_MASTER_ADDR and RONDA_MASTER_PORT if ",
      found.launcher->source, " started it)"));
}

}  // namespace

absl::StatusOr<JobEnvironment> ReadJob(const EnvironmentVariables& variables) {
  JobEnvironment job;
  job.source = "single process";
  RONDA_RETURN_IF_ERROR(ReadJobSecret(variables, &job));
  RONDA_RETURN_IF_ERROR(ReadMpi(variables, &job.mpi));
  RONDA_RETURN_IF_ERROR(variables.ReadInteger("RONDA_EPOCH", {.min = 0, .max = kMaxEpoch}, &job.epoch));
  const Found found = FindLauncher(variables);
  if (found.launcher == nullptr) {
    RONDA_RETURN_IF_ERROR(CheckNoJobIsMeant(variables));
    return job;
  }
  RONDA_RETURN_IF_ERROR(ReadRanks(variables, found, &job));
  RONDA_RETURN_IF_ERROR(found.launcher->complete(variables, &job));
  RONDA_RETURN_IF_ERROR(ReadJobId(variables, &job));
  RONDA_RETURN_IF_ERROR(CompleteMaster(variables, &job));
  RONDA_RETURN_IF_ERROR(CheckRanksCanMeet(found, job));
  return job;
}

absl::StatusOr<Place> ReadPlace(const EnvironmentVariables& variables) {
  Place place;
  const Found found = FindLauncher(variables);
  if (found.launcher == nullptr) return place;
  place.launcher = found.launcher->launcher;
  RONDA_RETURN_IF_ERROR(ReadRanks(variables, found, &place.job));
  RONDA_RETURN_IF_ERROR(found.launcher->complete(variables, &place.job));
  const std::optional<StoreAddress> store = found.launcher->store(variables, place.job);
  if (!store) return place;
  place.store_address = store->address;
  place.store_port = static_cast<int>(store->port);
  return place;
}

}  // namespace ronda
