// SPDX-License-Identifier: Apache-2.0

#include "programs/rondarun/preflight/build_report.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "programs/rondarun/plan/mpirun_command.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/unique_fd.h"
#include "runtime/base/version.h"
#include "runtime/collectives/nccl/nccl_library.h"
#include "runtime/cuda/device.h"
#include "runtime/mpi/mpi_session.h"
#include "runtime/net/message_streams.h"

namespace ronda {
namespace {

// The child process of AskInChild: calls `find` and writes the result to the pipe. The first byte says whether an
// answer or an error follows.
[[noreturn]] void AnswerParent(int pipe, absl::FunctionRef<absl::StatusOr<std::string>()> find) {
  const absl::StatusOr<std::string> found = find();
  const std::string answer = found.ok() ? absl::StrCat("+", *found) : absl::StrCat("-", found.status().message());
  [[maybe_unused]] const ssize_t count = write(pipe, answer.data(), answer.size());
  _exit(0);
}

// Calls `find` in a separate process, so that libraries that it loads do not stay loaded in this process.
absl::StatusOr<std::string> AskInChild(absl::FunctionRef<absl::StatusOr<std::string>()> find) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "cannot create a pipe (pipe2)");
  const UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);
  const pid_t pid = fork();
  if (pid < 0) return absl::ErrnoToStatus(errno, "cannot start a process");
  if (pid == 0) AnswerParent(write_end.get(), find);
  write_end.Reset();
  std::string answer;
  std::array<char, 4096> buffer;
  for (ssize_t count = 1; count > 0 || (count < 0 && errno == EINTR);) {
    count = read(read_end.get(), buffer.data(), buffer.size());
    if (count > 0) answer.append(buffer.data(), static_cast<size_t>(count));
  }
  while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  if (answer.empty()) return absl::InternalError("the library ends the process that loads it");
  if (answer.front() == '-') return absl::NotFoundError(answer.substr(1));
  return answer.substr(1);
}

absl::StatusOr<std::string> FindMpirun() {
  RONDA_ASSIGN_OR_RETURN(const std::string text, MpirunVersion());
  return ShortMpiVersion(text);
}

absl::StatusOr<std::string> FindDevices(const std::string& plugin_path) {
  RONDA_ASSIGN_OR_RETURN(const ronda_cuda_plugin* const plugin, LoadCudaPlugin(plugin_path));
  return DescribeDevices(*plugin);
}

absl::StatusOr<std::string> FindNccl(const EnvironmentReader& environment) {
  RONDA_ASSIGN_OR_RETURN(const std::shared_ptr<const NcclLibrary> nccl,
                         LoadNccl(environment("RONDA_NCCL_LIBRARY").value_or(""), environment("CUDA_HOME").value_or(""),
                                  environment("VIRTUAL_ENV").value_or(environment("CONDA_PREFIX").value_or(""))));
  return absl::StrCat(nccl->version, ", ", nccl->path);
}

std::string Line(absl::string_view name, const absl::StatusOr<std::string>& part, absl::string_view purpose) {
  return absl::StrFormat("    [%c] %-12s %s\n", part.ok() ? 'X' : ' ', name,
                         part.ok() ? absl::StrCat(purpose, ": ", *part) : std::string(part.status().message()));
}

}  // namespace

// Each plugin makes the symbols of its MPI library global. If one process loaded two plugins, the second one would call
// the MPI library of the first.
absl::StatusOr<std::string> FindMpiPlugin(Mpirun mpirun, const std::string& path) {
  const MpiFlavor flavor = mpirun == Mpirun::kOpenMpi ? MpiFlavor::kOpenMpi : MpiFlavor::kMpich;
  return AskInChild([&] { return MpiSession::Library({.flavor = flavor, .plugin = path}); });
}

absl::StatusOr<std::string> FindHostsPlugin(const std::string& path) {
  return AskInChild([&path]() -> absl::StatusOr<std::string> {
    RONDA_ASSIGN_OR_RETURN(const ronda_hosts_plugin* const plugin, LoadHostsPlugin(path));
    return std::string(plugin->library());
  });
}

OptionalParts FindOptionalParts(const EnvironmentReader& environment) {
  return {.open_mpi = FindMpiPlugin(Mpirun::kOpenMpi, ""),
          .mpich = FindMpiPlugin(Mpirun::kHydra, ""),
          .hosts = FindHostsPlugin(environment("RONDA_HOSTS_PLUGIN").value_or("")),
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
)",
                      Line("tcp", parts.hosts, "ranks on several hosts, however they are started"),
                      Line("mpi", parts.open_mpi, "ranks on several hosts, under Open MPI's mpirun"),
                      Line("mpi (MPICH)", parts.mpich, "the same under MPICH's"),
                      Line("nccl", parts.nccl, "tensors in the memory of GPUs, one a rank"),
                      R"(    [X] staged       tensors in the memory of GPUs, through the host and one of the others
    [X] peer         tensors in the memory of GPUs of one host, which may be shared by ranks; on request

Devices:
)",
                      Line("cuda", parts.cuda, "NVIDIA's GPUs"), R"(
Launchers:
    [X] rondarun     ranks on one host
)",
                      Line("mpirun", parts.mpirun, "ranks on several hosts"));
}

}  // namespace ronda
