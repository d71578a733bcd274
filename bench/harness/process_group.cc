// SPDX-License-Identifier: Apache-2.0

#include "bench/harness/process_group.h"

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/backends/job.h"
#include "runtime/backends/read_config.h"
#include "runtime/backends/registry.h"
#include "runtime/base/config.h"
#include "runtime/base/status_macros.h"
#include "runtime/collectives/self/self_communicator.h"
#include "runtime/collectives/shm/shm_communicator.h"

namespace ronda::bench {
namespace {

bool UsesInitsRendezvous(const LaunchedRank& launched) {
  return launched.size > 1 && launched.rendezvous == LaunchedRank::Rendezvous::kAsInit;
}

// Initializes MPI once for the whole process if the connections between the ranks may use it; otherwise returns
// nullptr.
absl::StatusOr<std::shared_ptr<MpiSession>> BeginMpi() {
  RONDA_ASSIGN_OR_RETURN(const Config config, ReadConfig(ProcessEnvironment()));
  const MpiEnvironment& mpi = config.job.mpi;
  if (!mpi.IsUsable() || AlwaysNeeds(config.backend, Carrier::Needs::kAddress)) return nullptr;
  const bool is_mpich = mpi.launcher == MpiEnvironment::Launcher::kMpich;
  return MpiSession::Start({.flavor = is_mpich ? MpiFlavor::kMpich : MpiFlavor::kOpenMpi, .plugin = mpi.plugin});
}

absl::StatusOr<Transport> ConnectAsInitDoes(const ConnectOptions& options) {
  RONDA_ASSIGN_OR_RETURN(Config config, ReadConfig(ProcessEnvironment()));
  if (!config.job.job_id.empty()) config.job.job_id += options.suffix;
  RONDA_ASSIGN_OR_RETURN(ConnectedJob job, ConnectJob(config));
  if (options.chunk_bytes > 0) job.transport.communicator->Tune({.chunk_bytes = options.chunk_bytes});
  return std::move(job.transport);
}

}  // namespace

absl::StatusOr<Transport> Connect(const LaunchedRank& launched, const ConnectOptions& options) {
  if (launched.size == 1) return CreateSelfTransport("localhost");
  if (UsesInitsRendezvous(launched)) return ConnectAsInitDoes(options);
  ShmWorld::Options world = {
      .job_id = absl::StrCat(launched.job_id, options.suffix), .rank = launched.rank, .size = launched.size};
  if (options.chunk_bytes > 0) world.slot_bytes = options.chunk_bytes;
  if (options.chunks > 0) world.slot_count = options.chunks;
  return ConnectShmTransport(std::move(world));
}

absl::StatusOr<std::unique_ptr<ProcessGroup>> ProcessGroup::Create(const LaunchedRank& launched) {
  std::shared_ptr<MpiSession> session;
  if (UsesInitsRendezvous(launched)) {
    RONDA_ASSIGN_OR_RETURN(session, BeginMpi());
  }
  RONDA_ASSIGN_OR_RETURN(Transport transport, Connect(launched, {.suffix = "-group"}));
  return std::unique_ptr<ProcessGroup>(new ProcessGroup(launched, std::move(session), std::move(transport)));
}

ProcessGroup::~ProcessGroup() { transport_.control->Depart(); }

void ProcessGroup::Barrier() {
  ExitIfError(transport_.communicator->Barrier({.label = "bench", .op = OpType::kBarrier}));
}

void ProcessGroup::Reduce(DType dtype, ReduceOp op, void* value) {
  const Segment segment = {.input = value, .output = value, .count = 1};
  ExitIfError(transport_.communicator->Reduce(
      {.info = {.label = "bench"}, .segments = {&segment, 1}, .dtype = dtype, .op = op}));
}

double ProcessGroup::Max(double value) {
  Reduce(DType::kFloat64, ReduceOp::kMax, &value);
  return value;
}

int64_t ProcessGroup::Sum(int64_t value) {
  Reduce(DType::kInt64, ReduceOp::kSum, &value);
  return value;
}

std::string ProcessGroup::FromFirst(std::string text) {
  text.resize(static_cast<size_t>(Sum(is_first() ? static_cast<int64_t>(text.size()) : 0)));
  ExitIfError(transport_.communicator->Broadcast(
      {.info = {.label = "bench", .op = OpType::kBroadcast}, .data = text.data(), .bytes = text.size(), .root = 0}));
  return text;
}

void ExitIfError(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "ronda-bench: %s\n", std::string(status.message()).c_str());
  std::fflush(nullptr);
  std::_Exit(1);
}

}  // namespace ronda::bench
