#include "runtime/launch/build_report.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/version.h"
#include "runtime/launch/gpu_libraries.h"
#include "runtime/launch/host_probe.h"
#include "runtime/launch/mpirun_version.h"
#include "runtime/mpi/mpi_session.h"

namespace ronda {
namespace {

absl::StatusOr<std::string> FindMpirun() {
  RONDA_ASSIGN_OR_RETURN(const std::string text, MpirunVersion());
  return ShortMpiVersion(text);
}

std::string Line(absl::string_view name, const absl::StatusOr<std::string>& part, absl::string_view purpose) {
  return absl::StrFormat("    [%c] %-12s %s\n", part.ok() ? 'X' : ' ', name,
                         part.ok() ? absl::StrCat(purpose, ": ", *part) : std::string(part.status().message()));
}

}  // namespace

OptionalParts FindOptionalParts() {
  return {.open_mpi = MpiSession::Library({.flavor = MpiFlavor::kOpenMpi}),
          .mpich = MpiSession::Library({.flavor = MpiFlavor::kMpich}),
          .nccl = FindNccl(),
          .mpirun = FindMpirun()};
}

std::string BuildReport(const OptionalParts& parts) {
  const std::string nccl = parts.nccl.ok() ? absl::StrCat("NCCL ", *parts.nccl, " is installed")
                                           : std::string(parts.nccl.status().message());
  return absl::StrCat("Ronda ", kVersion, R"(

Backends, which carry data between ranks:
    [X] self         a job of one rank
    [X] inprocess    ranks that are threads of one process
    [X] shm          ranks on one host, through shared memory
)",
                      Line("mpi", parts.open_mpi, "ranks on several hosts, under Open MPI's mpirun"),
                      Line("mpi (MPICH)", parts.mpich, "the same under MPICH's"),
                      "    [ ] nccl         not part of this version (", nccl, ")\n", R"(
Launchers:
    [X] rondarun     ranks on one host
)",
                      Line("mpirun", parts.mpirun, "ranks on several hosts"));
}

}  // namespace ronda
