// SPDX-License-Identifier: Apache-2.0

#include "programs/rondarun/plan/mpirun_command.h"

#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "programs/options/shell_words.h"
#include "programs/rondarun/plan/place_variables.h"
#include "programs/rondarun/supervise/mpirun_part.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

using Binding = LaunchOptions::Binding;
using Words = std::vector<std::string>;

void Append(const Words& more, Words* words) { words->insert(words->end(), more.begin(), more.end()); }

Words BindingWords(const MpirunRequest& request) {
  if (!request.remote.binding_arguments.empty()) return request.remote.binding_arguments;
  if (request.binding == Binding::kCore) return {"-bind-to", "core", "-map-by", "slot"};
  if (request.binding == Binding::kNuma) return {"-bind-to", "numa", "-map-by", "slot"};
  // Hydra fills the slots of one host after the other even without -map-by.
  if (request.mpirun == Mpirun::kHydra) return {"-bind-to", "none"};
  return {"-bind-to", "none", "-map-by", "slot"};
}

std::string SshWords(const RemoteOptions& remote) {
  Words words;
  if (remote.ssh_port != 0) Append({"-p", absl::StrCat(remote.ssh_port)}, &words);
  if (!remote.ssh_identity_file.empty()) Append({"-i", ShellQuote(remote.ssh_identity_file)}, &words);
  return absl::StrJoin(words, " ");
}

// Sets a parameter of Open MPI unless the user sets it, because mpirun rejects a parameter that is given twice.
void AppendParameter(absl::string_view name, absl::string_view value, const RemoteOptions& remote, Words* words) {
  const Words& own = remote.mpi_arguments;
  if (std::find(own.begin(), own.end(), name) != own.end()) return;
  Append({"-mca", std::string(name), std::string(value)}, words);
}

Words OpenMpiRemoteWords(const RemoteOptions& remote) {
  Words words;
  const std::string ssh = SshWords(remote);
  if (!remote.agent.empty()) {
    // The user's agent may be installed only on this host, so this host must start the daemons on all other hosts.
    AppendParameter("plm_rsh_agent", remote.agent, remote, &words);
    AppendParameter("plm_rsh_no_tree_spawn", "1", remote, &words);
  }
  if (!ssh.empty()) AppendParameter("plm_rsh_args", ssh, remote, &words);
  if (!remote.network_interfaces.empty()) {
    const std::string interfaces = absl::StrJoin(remote.network_interfaces, ",");
    AppendParameter("btl_tcp_if_include", interfaces, remote, &words);
    AppendParameter("oob_tcp_if_include", interfaces, remote, &words);
  }
  if (remote.transport == RemoteOptions::Transport::kTcp) {
    AppendParameter("pml", "ob1", remote, &words);
    AppendParameter("btl", "self,vader,tcp", remote, &words);
  }
  return words;
}

MpirunCommand OpenMpiCommand(const MpirunRequest& request) {
  Words argv = {"mpirun"};
  if (request.user == MpirunRequest::User::kRoot) argv.emplace_back("--allow-run-as-root");
  Append({"--tag-output", "-np", absl::StrCat(request.rank_count)}, &argv);
  if (request.hosts.empty()) {
    // Makes mpirun start as many ranks as the user asks for, even if this host has fewer cores.
    argv.emplace_back("--oversubscribe");
  } else {
    Append({"-H", FormatHosts(request.hosts)}, &argv);
    // Otherwise, mpirun would cut host names at the first dot, and then look for the wrong hosts.
    AppendParameter("orte_keep_fqdn_hostnames", "1", request.remote, &argv);
  }
  Append(BindingWords(request), &argv);
  const int64_t grace = absl::ToInt64Seconds(absl::Ceil(request.grace_period, absl::Seconds(1)));
  AppendParameter("odls_base_sigkill_timeout", absl::StrCat(grace), request.remote, &argv);
  Append(OpenMpiRemoteWords(request.remote), &argv);
  for (const std::string& name : request.variables) Append({"-x", name}, &argv);
  return {.argv = std::move(argv), .environment = {}};
}

absl::StatusOr<MpirunCommand> HydraCommand(const MpirunRequest& request) {
  if (request.remote.transport == RemoteOptions::Transport::kTcp) {
    return absl::UnimplementedError(
        "--tcp is Open MPI's, and mpirun is MPICH's: choose a network with --mpi-args, for example --mpi-args \"-genv "
        "UCX_TLS tcp,self,sm\"");
  }
  MpirunCommand command;
  Words& argv = command.argv;
  argv = {"mpirun", "-prepend-pattern", std::string(TaggedOutput::kHydraPattern), "-print-all-exitcodes"};
  Append({"-np", absl::StrCat(request.rank_count)}, &argv);
  if (!request.hosts.empty()) Append({"-hosts", FormatHosts(request.hosts)}, &argv);
  Append(BindingWords(request), &argv);
  if (!request.remote.agent.empty()) {
    // With `-launcher ssh`, Hydra would pass ssh options to the agent in front of the host name.
    Append({"-launcher", "rsh", "-launcher-exec", request.remote.agent}, &argv);
  } else if (!request.hosts.empty()) {
    Append({"-launcher", "ssh"}, &argv);
  }
  if (!request.remote.network_interfaces.empty()) Append({"-iface", request.remote.network_interfaces.front()}, &argv);
  if (!request.variables.empty()) Append({"-genvlist", absl::StrJoin(request.variables, ",")}, &argv);
  const std::string ssh = SshWords(request.remote);
  if (!ssh.empty()) command.environment.push_back(absl::StrCat("HYDRA_LAUNCHER_EXTRA_ARGS=", ssh));
  return command;
}

absl::StatusOr<MpirunCommand> CommandOf(const MpirunRequest& request) {
  if (request.mpirun == Mpirun::kHydra) return HydraCommand(request);
  return OpenMpiCommand(request);
}

Words LedByShell(const MpirunRequest& request) {
  constexpr MpirunPlace kOpenMpisPlace = {.rank = "OMPI_COMM_WORLD_RANK",
                                          .size = "OMPI_COMM_WORLD_SIZE",
                                          .local_rank = "OMPI_COMM_WORLD_LOCAL_RANK",
                                          .local_size = "OMPI_COMM_WORLD_LOCAL_SIZE"};
  constexpr MpirunPlace kHydrasPlace = {
      .rank = "PMI_RANK", .size = "PMI_SIZE", .local_rank = "MPI_LOCALRANKID", .local_size = "MPI_LOCALNRANKS"};
  const MpirunPlace& place = request.mpirun == Mpirun::kHydra ? kHydrasPlace : kOpenMpisPlace;
  return WithStartMark(request.command, PlaceScript(place, request.rank_count, request.ranks_per_host));
}

struct Answer {
  std::string text;
  int status = 0;  // in the form of waitpid()
};

absl::StatusOr<Answer> AskShell(const char* command) {
  FILE* const pipe = popen(command, "re");
  if (pipe == nullptr) return absl::ErrnoToStatus(errno, "cannot ask mpirun for its version");
  Answer answer;
  std::array<char, 4096> buffer;
  for (size_t count = 1; count > 0;) {
    count = fread(buffer.data(), 1, buffer.size(), pipe);
    answer.text.append(buffer.data(), count);
  }
  answer.status = pclose(pipe);
  return answer;
}

std::string DescribeEnd(int status) {
  if (WIFSIGNALED(status)) return absl::StrCat("was killed by signal ", WTERMSIG(status));
  return absl::StrCat("exited with code ", WEXITSTATUS(status));
}

}  // namespace

absl::StatusOr<Mpirun> DetectMpirun(absl::string_view version_text) {
  if (absl::StrContains(version_text, "Open MPI") || absl::StrContains(version_text, "OpenRTE")) {
    return Mpirun::kOpenMpi;
  }
  if (absl::StrContains(version_text, "HYDRA")) return Mpirun::kHydra;
  return absl::UnimplementedError(
      absl::StrCat("mpirun --version says \"", version_text.substr(0, version_text.find('\n')),
                   "\": only Open MPI and MPICH (Hydra) are known; put the mpirun of one of "
                   "them first in PATH, or give --launcher ssh"));
}

absl::StatusOr<MpirunCommand> MakeMpirunCommand(const MpirunRequest& request) {
  RONDA_ASSIGN_OR_RETURN(MpirunCommand command, CommandOf(request));
  Append(request.remote.mpi_arguments, &command.argv);
  Append(request.lead == MpirunRequest::Lead::kShell ? LedByShell(request) : request.command, &command.argv);
  return command;
}

absl::StatusOr<std::string> MpirunVersion() {
  // A shell's exit code 127 may mean that mpirun does not exist, or that it lacks a library. So first look for mpirun
  // in PATH.
  RONDA_ASSIGN_OR_RETURN(const Answer path, AskShell("command -v mpirun"));
  if (path.status != 0) {
    return absl::NotFoundError(
        "--mpi, and what else only mpirun can do, need mpirun, and there is none in PATH: install Open MPI (Debian: "
        "openmpi-bin), or give --launcher ssh");
  }
  RONDA_ASSIGN_OR_RETURN(Answer version, AskShell("mpirun --version 2>&1 </dev/null"));
  if (version.status == 0) return std::move(version.text);
  return absl::FailedPreconditionError(absl::StrCat(
      absl::StripAsciiWhitespace(path.text), " is in PATH, but mpirun --version ", DescribeEnd(version.status), ": ",
      absl::StripAsciiWhitespace(version.text), "; make it work, or give --launcher ssh"));
}

std::string ShortMpiVersion(absl::string_view text) {
  const std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  absl::string_view first = lines.front();
  if (absl::ConsumePrefix(&first, "mpirun (Open MPI) ")) return absl::StrCat("Open MPI ", first);
  if (!absl::StartsWith(first, "HYDRA")) return std::string(first);
  for (absl::string_view line : lines) {
    line = absl::StripAsciiWhitespace(line);
    if (absl::ConsumePrefix(&line, "Version:")) return absl::StrCat("MPICH ", absl::StripAsciiWhitespace(line));
  }
  return "MPICH";
}

}  // namespace ronda
