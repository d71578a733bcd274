#include "runtime/launch/build_report.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/version.h"
#include "runtime/collectives/nccl/nccl_library.h"
#include "runtime/cuda/device.h"
#include "runtime/launch/host_probe.h"
#include "runtime/launch/mpirun_version.h"
#include "runtime/mpi/mpi_session.h"

namespace ronda {
namespace {

absl::StatusOr<std::string> FindMpirun() {
  RONDA_ASSIGN_OR_RETURN(const std::string text, MpirunVersion());
  return ShortMpiVersion(text);
}

absl::StatusOr<std::string> FindDevices(const std::string& plugin_path) {
  RONDA_ASSIGN_OR_RETURN(const ronda_cuda_plugin* const plugin, LoadCudaPlugin(plugin_path));
  return DescribeDevices(*plugin);
}

absl::StatusOr<std::string> FindNccl(const EnvironmentReader& environment) {
  RONDA_ASSIGN_OR_RETURN(
      const std::shared_ptr<const NcclLibrary> nccl,
      LoadNccl(environment("RONDA_NCCL_LIBRARY").value_or(""), environment("CUDA_HOME").value_or("")));
  return absl::StrCat(nccl->version, ", ", nccl->path);
}

std::string Line(absl::string_view name, const absl::StatusOr<std::string>& part, absl::string_view purpose) {
  return absl::StrFormat("    [%c] %-12s %s\n", part.ok() ? 'X' : ' ', name,
                         part.ok() ? absl::StrCat(purpose, ": ", *part) : std::string(part.status().message()));
}

}  // namespace

OptionalParts FindOptionalParts(const EnvironmentReader& environment) {
  return {.open_mpi = MpiSession::Library({.flavor = MpiFlavor::kOpenMpi}),
          .mpich = MpiSession::Library({.flavor = MpiFlavor::kMpich}),
          .cuda = FindDevices(environment("RONDA_CUDA_PLUGIN").value_or("")),
          .nccl = FindNccl(environment),
          .mpirun = FindMpirun()};
}

std::string BuildReport(const OptionalParts& parts) {
  return absl::StrCat("Ronda ", kVersion, R"(

Backends, which carry data between ranks:
    [X] self         a job of one rank
    [X] inprocess    ranks that are threads of one process
    [X] shm          ranks on one host, through shared memory
    [X] tcp          ranks on several hosts, however they are started
)",
                      Line("mpi", parts.open_mpi, "ranks on several hosts, under Open MPI's mpirun"),
                      Line("mpi (MPICH)", parts.mpich, "the same under MPICH's"),
                      Line("nccl", parts.nccl, "tensors in the memory of GPUs, one a rank"),
                      R"(    [X] staged       tensors in the memory of GPUs, through the host and one of the others

Devices:
)",
                      Line("cuda", parts.cuda, "NVIDIA's GPUs"), R"(
Launchers:
    [X] rondarun     ranks on one host
)",
                      Line("mpirun", parts.mpirun, "ranks on several hosts"));
}

}  // namespace ronda
