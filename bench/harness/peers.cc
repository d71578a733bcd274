// SPDX-License-Identifier: Apache-2.0

#include "bench/harness/peers.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/harness/launch.h"
#include "runtime/base/status_macros.h"

namespace ronda::bench {
namespace {

using TableFunction = const ronda_bench_peer* (*)();

// Returns the error for a plugin that exists but cannot be loaded, probably because libraries that it needs are
// missing.
absl::Status NotInstalled(const PeerInfo& info, const std::string& reason) {
  return absl::NotFoundError(absl::StrCat("--peer ", info.name, ": ", info.title, " cannot be used here (", reason,
                                          "): install Debian's ", info.packages));
}

absl::StatusOr<const ronda_bench_peer*> LoadTable(const PeerInfo& info) {
  RONDA_ASSIGN_OR_RETURN(const std::string path, FindPeerFile(info.name, info.library, info.build_package));
  // The library is never closed, because MPI libraries cannot be unloaded safely. The library's symbols are global,
  // because Open MPI's components look for them.
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) return NotInstalled(info, dlerror());
  const auto table_function = reinterpret_cast<TableFunction>(dlsym(library, "ronda_bench_peer_functions"));
  if (table_function != nullptr && table_function()->version == RONDA_BENCH_PEER_VERSION) return table_function();
  return absl::NotFoundError(
      absl::StrCat("--peer ", info.name, ": ", path, " is not of this version: install it together with ronda-bench"));
}

absl::Status Failed(const ronda_bench_peer* table) {
  return absl::InternalError(absl::StrCat("a peer failed: ", table->last_error()));
}

double TimeOnce(PeerCall* call, ProcessGroup* group) {
  group->Barrier();
  const auto start = std::chrono::steady_clock::now();
  call->Run();
  const std::chrono::duration<double> own = std::chrono::steady_clock::now() - start;
  return group->Max(own.count());
}

}  // namespace

const std::vector<PeerInfo>& KnownPeers() {
  static const auto* const peers = new std::vector<PeerInfo>{
      {"openmpi", "Open MPI", "libronda_bench_openmpi.so", "libopenmpi3 and openmpi-bin", "libopenmpi-dev",
       Launcher::kOpenMpi},
      {"mpich", "MPICH", "libronda_bench_mpich.so", "libmpich12 and mpich", "libmpich-dev", Launcher::kMpich},
      {"gloo", "Gloo", "libronda_bench_gloo.so", "libgloo0", "libgloo-dev", std::nullopt},
  };
  return *peers;
}

const PeerInfo* FindPeer(const std::string& name) {
  for (const PeerInfo& info : KnownPeers()) {
    if (info.name == name || (name == "mpi" && info.launcher == Launcher::kOpenMpi)) return &info;
  }
  return nullptr;
}

absl::StatusOr<std::string> FindPeerFile(const std::string& peer, const std::string& name, const std::string& package) {
  const std::string program = OwnProgram();
  const std::string beside = program.substr(0, program.rfind('/') + 1);
  for (const char* folder : {"peers/", "../lib/ronda/"}) {
    std::string path = absl::StrCat(beside, folder, name);
    if (access(path.c_str(), R_OK) == 0) return path;
  }
  return absl::NotFoundError(
      absl::StrCat("--peer ", peer, ": there is no ", name, " in ", beside, "peers/ or ", beside,
                   "../lib/ronda/: the wheel has none; make bench, make install and make deb build it from Ronda's "
                   "sources where Debian's ",
                   package, " is installed"));
}

absl::Status CheckInstalled(const PeerInfo& info) { return LoadTable(info).status(); }

void PeerCall::Run() {
  if (table_->run(prepared_) != 0) ExitIfError(Failed(table_));
}

absl::StatusOr<std::unique_ptr<Peer>> Peer::Load(const PeerInfo& info, ProcessGroup* group) {
  absl::StatusOr<const ronda_bench_peer*> table = LoadTable(info);
  // If any rank lacks the peer, no rank uses it.
  if (group->Sum(table.ok() ? 0 : 1) > 0) return table.ok() ? NotInstalled(info, "on some rank") : table.status();
  absl::StatusOr<std::unique_ptr<TemporaryFolder>> folder = nullptr;
  if (group->is_first()) folder = TemporaryFolder::Create();
  const std::string shared = group->FromFirst(folder.ok() && *folder != nullptr ? (*folder)->path() : "");
  RONDA_RETURN_IF_ERROR(folder.status());
  if (shared.empty()) return absl::UnavailableError("the first rank cannot create a folder: see its error");
  std::unique_ptr<Peer> peer(new Peer(info, *table, *std::move(folder)));
  if ((*table)->init(group->rank(), group->size(), shared.c_str()) != 0) return Failed(*table);
  return peer;
}

Peer::~Peer() { table_->finalize(); }

std::vector<std::string> Peer::Algorithms(const ronda_bench_call& call) const {
  std::vector<std::string> names;
  const int count = table_->algorithm_count(&call);
  for (int i = 0; i < count; ++i) names.emplace_back(table_->algorithm_name(&call, i));
  return names;
}

absl::StatusOr<std::unique_ptr<PeerCall>> Peer::Prepare(const ronda_bench_call& call, int algorithm) {
  ronda_bench_prepared* const prepared = table_->prepare(&call, algorithm);
  if (prepared == nullptr) return Failed(table_);
  return std::make_unique<PeerCall>(table_, prepared);
}

absl::StatusOr<int> Peer::FastestAlgorithm(const ronda_bench_call& call, ProcessGroup* group) {
  constexpr int kTrials = 3;  // the first one also warms up
  const int count = table_->algorithm_count(&call);
  if (count <= 1) return 0;
  int fastest = 0;
  double fastest_seconds = std::numeric_limits<double>::infinity();
  for (int algorithm = 0; algorithm < count; ++algorithm) {
    RONDA_ASSIGN_OR_RETURN(const std::unique_ptr<PeerCall> prepared, Prepare(call, algorithm));
    double seconds = std::numeric_limits<double>::infinity();
    for (int trial = 0; trial < kTrials; ++trial) seconds = std::min(seconds, TimeOnce(prepared.get(), group));
    if (seconds >= fastest_seconds) continue;
    fastest = algorithm;
    fastest_seconds = seconds;
  }
  return fastest;
}

}  // namespace ronda::bench
