// SPDX-License-Identifier: Apache-2.0

#include "programs/rondarun/plan/mpirun_command.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ronda {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;
using Binding = LaunchOptions::Binding;
using Transport = RemoteOptions::Transport;
using User = MpirunRequest::User;

MpirunRequest Request(Mpirun mpirun) {
  return {.mpirun = mpirun, .rank_count = 3, .hosts = {{"a", 2}, {"b", 1}}, .command = {"./train", "--lr", "0.1"}};
}

MpirunCommand Made(const MpirunRequest& request) {
  const auto command = MakeMpirunCommand(request);
  EXPECT_TRUE(command.ok()) << command.status();
  return command.value_or(MpirunCommand{});
}

// Returns the words of the command, separated, preceded and followed by blanks.
std::string Line(const MpirunRequest& request) { return " " + absl::StrJoin(Made(request).argv, " ") + " "; }

TEST(MpirunCommandTest, OpenMpiStartsTheRanksOnTheHosts) {
  const std::string line = Line(Request(Mpirun::kOpenMpi));
  EXPECT_THAT(line, StartsWith(" mpirun --tag-output -np 3 -H a:2,b:1 -mca orte_keep_fqdn_hostnames 1 -bind-to none "
                               "-map-by slot -mca odls_base_sigkill_timeout 5 /bin/sh -c echo ronda-start $$ >&2; "));
  EXPECT_THAT(line, HasSubstr("\"$OMPI_COMM_WORLD_RANK\" RONDA_RANK RANK HOROVOD_RANK; "));
  EXPECT_THAT(line, Not(HasSubstr("GROUP_RANK")));
  EXPECT_THAT(line, EndsWith(" exec \"$@\" rondarun ./train --lr 0.1 "));
  EXPECT_THAT(Made(Request(Mpirun::kOpenMpi)).environment, IsEmpty());
}

TEST(MpirunCommandTest, HydraStartsTheRanksOnTheHosts) {
  const std::string line = Line(Request(Mpirun::kHydra));
  EXPECT_THAT(line, StartsWith(" mpirun -prepend-pattern [1,%r]<stdout>: -print-all-exitcodes -np 3 -hosts a:2,b:1 "
                               "-bind-to none -launcher ssh /bin/sh -c echo ronda-start $$ >&2; "));
  EXPECT_THAT(line, HasSubstr("\"$PMI_RANK\" RONDA_RANK RANK HOROVOD_RANK; "));
  EXPECT_THAT(line, HasSubstr("\"$MPI_LOCALNRANKS\" RONDA_LOCAL_SIZE LOCAL_WORLD_SIZE HOROVOD_LOCAL_SIZE; "));
  EXPECT_THAT(line, EndsWith(" exec \"$@\" rondarun ./train --lr 0.1 "));
}

TEST(MpirunCommandTest, RanksKnowTheirHostWhereAllHostsAreAlike) {
  MpirunRequest request = Request(Mpirun::kOpenMpi);
  request.ranks_per_host = 3;
  EXPECT_THAT(Line(request), HasSubstr("\"$((OMPI_COMM_WORLD_RANK / 3))\" GROUP_RANK; "));
}

TEST(MpirunCommandTest, OneHostMayHaveMoreRanksThanCores) {
  MpirunRequest request = Request(Mpirun::kOpenMpi);
  request.hosts = {};
  EXPECT_THAT(Line(request), HasSubstr(" -np 3 --oversubscribe "));
  EXPECT_THAT(Line(request), Not(HasSubstr(" -H ")));
  request.mpirun = Mpirun::kHydra;
  EXPECT_THAT(Line(request), Not(HasSubstr(" -hosts ")));
  EXPECT_THAT(Line(request), Not(HasSubstr(" -launcher ")));
}

TEST(MpirunCommandTest, RootIsAllowedOnlyToRoot) {
  MpirunRequest request = Request(Mpirun::kOpenMpi);
  EXPECT_THAT(Line(request), Not(HasSubstr("root")));
  request.user = User::kRoot;
  EXPECT_THAT(Line(request), StartsWith(" mpirun --allow-run-as-root "));
  request.mpirun = Mpirun::kHydra;
  EXPECT_THAT(Line(request), Not(HasSubstr("root")));
}

TEST(MpirunCommandTest, Ipv6AddressesAreInBrackets) {
  MpirunRequest request = Request(Mpirun::kOpenMpi);
  request.hosts = {{"fd00::2", 3}};
  EXPECT_THAT(Line(request), HasSubstr(" -H [fd00::2]:3 "));
}

TEST(MpirunCommandTest, BindingIsTheUsersChoice) {
  for (const Mpirun mpirun : {Mpirun::kOpenMpi, Mpirun::kHydra}) {
    MpirunRequest request = Request(mpirun);
    request.binding = Binding::kCore;
    EXPECT_THAT(Line(request), HasSubstr(" -bind-to core -map-by slot "));
    request.binding = Binding::kNuma;
    EXPECT_THAT(Line(request), HasSubstr(" -bind-to numa -map-by slot "));
    request.remote.binding_arguments = {"-bind-to", "socket"};
    EXPECT_THAT(Line(request), HasSubstr(" -bind-to socket "));
    EXPECT_THAT(Line(request), Not(HasSubstr(" numa ")));
  }
}

TEST(MpirunCommandTest, SshOptionsReachSsh) {
  MpirunRequest request = Request(Mpirun::kOpenMpi);
  request.remote = {.ssh_port = 2222, .ssh_identity_file = "/my keys/id"};
  EXPECT_THAT(Made(request).argv, ::testing::IsSupersetOf({"plm_rsh_args", "-p 2222 -i '/my keys/id'"}));
  request.mpirun = Mpirun::kHydra;
  EXPECT_THAT(Made(request).environment, ElementsAre("HYDRA_LAUNCHER_EXTRA_ARGS=-p 2222 -i '/my keys/id'"));
}

TEST(MpirunCommandTest, AgentTakesTheShellsPlaceOnThisHostOnly) {
  MpirunRequest request = Request(Mpirun::kOpenMpi);
  request.remote.agent = "/opt/enter";
  EXPECT_THAT(Line(request), HasSubstr(" -mca plm_rsh_agent /opt/enter -mca plm_rsh_no_tree_spawn 1 "));
  request.mpirun = Mpirun::kHydra;
  EXPECT_THAT(Line(request), HasSubstr(" -launcher rsh -launcher-exec /opt/enter "));
}

TEST(MpirunCommandTest, NetworkInterfacesAreForDataAndControl) {
  MpirunRequest request = Request(Mpirun::kOpenMpi);
  request.remote.network_interfaces = {"eth0", "ib0"};
  EXPECT_THAT(Line(request), HasSubstr(" -mca btl_tcp_if_include eth0,ib0 -mca oob_tcp_if_include eth0,ib0 "));
  request.mpirun = Mpirun::kHydra;
  EXPECT_THAT(Line(request), HasSubstr(" -iface eth0 "));
}

TEST(MpirunCommandTest, TcpIsOpenMpis) {
  MpirunRequest request = Request(Mpirun::kOpenMpi);
  request.remote.transport = Transport::kTcp;
  EXPECT_THAT(Line(request), HasSubstr(" -mca pml ob1 -mca btl self,vader,tcp "));
  request.mpirun = Mpirun::kHydra;
  const auto command = MakeMpirunCommand(request);
  EXPECT_EQ(command.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(command.status().message()), HasSubstr("--tcp is Open MPI's"));
}

TEST(MpirunCommandTest, VariablesAreGivenByNameOnly) {
  MpirunRequest request = Request(Mpirun::kOpenMpi);
  request.variables = {"PATH", "RONDA_JOB_SECRET"};
  EXPECT_THAT(Line(request), HasSubstr(" -x PATH -x RONDA_JOB_SECRET "));
  request.mpirun = Mpirun::kHydra;
  EXPECT_THAT(Line(request), HasSubstr(" -genvlist PATH,RONDA_JOB_SECRET "));
}

TEST(MpirunCommandTest, GracePeriodIsInWholeSeconds) {
  MpirunRequest request = Request(Mpirun::kOpenMpi);
  request.grace_period = absl::Milliseconds(1200);
  EXPECT_THAT(Line(request), HasSubstr(" odls_base_sigkill_timeout 2 "));
}

TEST(MpirunCommandTest, UsersArgumentsComeLastBeforeTheCommand) {
  for (const Mpirun mpirun : {Mpirun::kOpenMpi, Mpirun::kHydra}) {
    MpirunRequest request = Request(mpirun);
    request.variables = {"PATH"};
    request.remote.mpi_arguments = {"--report-bindings", "-wdir", "/my dir"};
    EXPECT_THAT(Line(request), HasSubstr(" --report-bindings -wdir /my dir /bin/sh -c "));
  }
}

// Open MPI's mpirun exits at once if a parameter is given twice.
TEST(MpirunCommandTest, ParametersThatTheUserSetsAreNotSetTwice) {
  MpirunRequest request = Request(Mpirun::kOpenMpi);
  request.remote = {
      .ssh_port = 2222, .agent = "/opt/enter", .network_interfaces = {"eth0"}, .transport = Transport::kTcp};
  for (const char* name : {"odls_base_sigkill_timeout", "oob_tcp_if_include", "btl_tcp_if_include", "btl", "pml",
                           "plm_rsh_agent", "plm_rsh_args", "orte_keep_fqdn_hostnames"}) {
    EXPECT_THAT(Line(request), HasSubstr(absl::StrCat(" -mca ", name, " ")));
    MpirunRequest other = request;
    other.remote.mpi_arguments = {"--mca", name, "1"};
    EXPECT_THAT(Line(other), HasSubstr(absl::StrCat(" --mca ", name, " 1 ")));
    EXPECT_THAT(Line(other), Not(HasSubstr(absl::StrCat(" -mca ", name, " "))));
  }
}

TEST(MpirunCommandTest, MpirunIsKnownByItsVersion) {
  EXPECT_EQ(DetectMpirun("mpirun (Open MPI) 4.1.4\n\nReport bugs to ...").value(), Mpirun::kOpenMpi);
  EXPECT_EQ(DetectMpirun("mpirun.openmpi (OpenRTE) 4.1.4\n").value(), Mpirun::kOpenMpi);
  EXPECT_EQ(DetectMpirun("HYDRA build details:\n    Version: 4.0.2\n").value(), Mpirun::kHydra);
  const auto other = DetectMpirun("Frob MPI 1\nmore");
  EXPECT_EQ(other.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(other.status().message()),
              StartsWith("mpirun --version says \"Frob MPI 1\": only Open MPI and MPICH (Hydra) are known"));
}

TEST(MpirunCommandTest, MpiSaysItsVersionInItsOwnWay) {
  EXPECT_EQ(ShortMpiVersion("mpirun (Open MPI) 4.1.4\n\nReport bugs to http://www.open-mpi.org/\n"), "Open MPI 4.1.4");
  EXPECT_EQ(ShortMpiVersion("HYDRA build details:\n    Version:           4.0.2\n    Release Date: Thu\n"),
            "MPICH 4.0.2");
  EXPECT_EQ(ShortMpiVersion("HYDRA build details:\n"), "MPICH");
  EXPECT_EQ(ShortMpiVersion("Another MPI 1.0\nmore"), "Another MPI 1.0");
  EXPECT_EQ(ShortMpiVersion(""), "");
}

}  // namespace
}  // namespace ronda
