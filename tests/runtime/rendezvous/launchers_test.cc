// SPDX-License-Identifier: Apache-2.0

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/config.h"
#include "runtime/rendezvous/launchers.h"
#include "tests/runtime/backends/variables.h"

// Tests how ReadConfig reads the environment variables of other launchers.

namespace ronda {
namespace {

using ::testing::HasSubstr;

using MpiLauncher = MpiEnvironment::Launcher;

Variables OpenMpi(const Variables& changes = {}) {
  return With({{"OMPI_COMM_WORLD_RANK", "3"},
               {"OMPI_COMM_WORLD_SIZE", "4"},
               {"OMPI_COMM_WORLD_LOCAL_RANK", "3"},
               {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
               {"PMIX_NAMESPACE", "344588289"},
               {"PMIX_RANK", "3"}},
              changes);
}

Variables Mpich(const Variables& changes = {}) {
  return With({{"PMI_RANK", "1"}, {"PMI_SIZE", "4"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}}, changes);
}

Variables Paddle(const Variables& changes = {}) {
  return With({{"PADDLE_TRAINER_ID", "1"},
               {"PADDLE_TRAINERS_NUM", "2"},
               {"PADDLE_TRAINER_ENDPOINTS", "10.0.0.1:6170,10.0.0.2:6171"},
               {"PADDLE_CURRENT_ENDPOINT", "10.0.0.2:6171"}},
              changes);
}

Variables Slurm(const Variables& changes = {}) {
  return With({{"SLURM_PROCID", "3"},
               {"SLURM_NTASKS", "5"},
               {"SLURM_LOCALID", "1"},
               {"SLURM_NODEID", "1"},
               {"SLURM_STEP_TASKS_PER_NODE", "2(x2),1"},
               {"SLURM_STEP_NODELIST", "n[07-08,11]"},
               {"SLURM_JOB_ID", "12003"},
               {"SLURM_STEP_ID", "2"}},
              changes);
}

struct Expected {
  const char* what;
  Variables variables;
  std::string source;
  int rank;
  int size;
  std::optional<int> local_rank;
  std::optional<int> local_size;
  std::string job_id;
  std::string master;  // "address port"
  MpiLauncher mpi = MpiLauncher::kNone;
};

std::string MasterOf(const JobEnvironment& job) {
  return job.master_address.empty() ? "" : job.master_address + " " + std::to_string(job.master_port);
}

void ExpectRead(const Expected& expected) {
  SCOPED_TRACE(expected.what);
  const absl::StatusOr<Config> config = Read(expected.variables);
  ASSERT_TRUE(config.ok()) << config.status();
  const JobEnvironment& job = config->job;
  EXPECT_EQ(job.source, expected.source);
  EXPECT_EQ(job.rank, expected.rank);
  EXPECT_EQ(job.size, expected.size);
  EXPECT_EQ(job.local_rank, expected.local_rank);
  EXPECT_EQ(job.local_size, expected.local_size);
  EXPECT_EQ(job.job_id, expected.job_id);
  EXPECT_EQ(MasterOf(job), expected.master);
  EXPECT_EQ(job.mpi.launcher, expected.mpi);
}

constexpr char kOpenMpiSource[] = "mpirun of Open MPI";
constexpr char kMpichSource[] = "mpiexec of MPICH";
constexpr char kPaddleSource[] = "Paddle-style variables";
constexpr char kSlurmSource[] = "srun of Slurm";

TEST(LaunchersTest, MpirunOfOpenMpi) {
  ExpectRead({"one host", OpenMpi(), kOpenMpiSource, 3, 4, 3, 4, "ompi-344588289", "", MpiLauncher::kOpenMpi});
  ExpectRead({"two hosts", OpenMpi({{"OMPI_COMM_WORLD_LOCAL_RANK", "1"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}),
              kOpenMpiSource, 3, 4, 1, 2, "", "", MpiLauncher::kOpenMpi});
  ExpectRead({"an id of the user's", OpenMpi({{"RONDA_JOB_ID", "mine"}}), kOpenMpiSource, 3, 4, 3, 4, "mine", "",
              MpiLauncher::kOpenMpi});
  ExpectRead({"a namespace that names no file", OpenMpi({{"PMIX_NAMESPACE", "a/b"}}), kOpenMpiSource, 3, 4, 3, 4, "",
              "", MpiLauncher::kOpenMpi});
}

// Frameworks copy the rank from the launcher's variables to torchrun's variables, which then do not say where the ranks
// meet.
TEST(LaunchersTest, APlaceThatIsCopiedToTorchrunsNamesIsTheLaunchers) {
  const Variables copied = {{"RANK", "3"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "3"}};
  ExpectRead({"of Open MPI", OpenMpi(copied), kOpenMpiSource, 3, 4, 3, 4, "ompi-344588289", "", MpiLauncher::kOpenMpi});
  ExpectRead({"of Slurm", Slurm({{"RANK", "3"}, {"WORLD_SIZE", "5"}}), kSlurmSource, 3, 5, 1, 2, "", "n07 20005"});
  const Variables elsewhere = With(copied, {{"MASTER_ADDR", "alpha"}, {"MASTER_PORT", "29500"}});
  ExpectRead({"with an address of the user's", OpenMpi(elsewhere), "torchrun-style variables", 3, 4, 3, std::nullopt,
              "", "alpha 29500", MpiLauncher::kOpenMpi});
  ExpectRead({"another place", OpenMpi({{"RANK", "0"}, {"WORLD_SIZE", "4"}}), "torchrun-style variables", 0, 4,
              std::nullopt, std::nullopt, "", "", MpiLauncher::kOpenMpi});
}

TEST(LaunchersTest, MpiexecOfMpich) {
  ExpectRead({"two hosts", Mpich(), kMpichSource, 1, 4, 1, 2, "", "", MpiLauncher::kMpich});
  ExpectRead({"in an allocation of Slurm, whose srun has started the agents", With(Slurm(), Mpich()), kMpichSource, 1,
              4, 1, 2, "", "", MpiLauncher::kMpich});
  ExpectRead({"another process manager", Mpich({{"MPI_LOCALRANKID", "-"}, {"MPI_LOCALNRANKS", "-"}}),
              "a process manager with PMI", 1, 4, std::nullopt, std::nullopt, "", "", MpiLauncher::kMpich});
}

TEST(LaunchersTest, PodsOfAnIndexedJobOfKubernetes) {
  const Variables pod = {
      {"JOB_COMPLETION_INDEX", "2"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "train-0.train"}, {"MASTER_PORT", "29500"}};
  ExpectRead({"a rank a pod", pod, "torchrun-style variables", 2, 4, {}, {}, "", "train-0.train 29500"});
  ExpectRead({"a rank is known already",
              With(pod, {{"RANK", "3"}}),
              "torchrun-style variables",
              3,
              4,
              {},
              {},
              "",
              "train-0.train 29500"});
  ExpectRead(
      {"in Ronda's words",
       {{"JOB_COMPLETION_INDEX", "1"}, {"RONDA_SIZE", "2"}, {"RONDA_MASTER_ADDR", "t"}, {"RONDA_MASTER_PORT", "9"}},
       "rondarun",
       1,
       2,
       {},
       {},
       "",
       "t 9"});
  ExpectRead(
      {"pods that do not belong together", {{"JOB_COMPLETION_INDEX", "2"}}, "single process", 0, 1, {}, {}, "", ""});
}

TEST(LaunchersTest, PaddleStyle) {
  ExpectRead({"as paddle.distributed.launch sets them", Paddle(), kPaddleSource, 1, 2, {}, {}, "", "10.0.0.1 6170"});
  ExpectRead({"the number follows from the endpoints",
              Paddle({{"PADDLE_TRAINERS_NUM", "-"}, {"PADDLE_CURRENT_ENDPOINT", "-"}}),
              kPaddleSource,
              1,
              2,
              {},
              {},
              "",
              "10.0.0.1 6170"});
  ExpectRead({"IPv6",
              Paddle({{"PADDLE_TRAINER_ENDPOINTS", "[fd00::1]:6170,[fd00::2]:6170"},
                      {"PADDLE_CURRENT_ENDPOINT", "[fd00::2]:6170"}}),
              kPaddleSource,
              1,
              2,
              {},
              {},
              "",
              "fd00::1 6170"});
  ExpectRead(
      {"one trainer", {{"PADDLE_TRAINER_ID", "0"}, {"PADDLE_TRAINERS_NUM", "1"}}, kPaddleSource, 0, 1, {}, {}, "", ""});
  ExpectRead(
      {"a port of Ronda's own", Paddle({{"RONDA_MASTER_PORT", "99"}}), kPaddleSource, 1, 2, {}, {}, "", "10.0.0.1 99"});
}

TEST(LaunchersTest, SrunOfSlurm) {
  ExpectRead({"three hosts", Slurm(), kSlurmSource, 3, 5, 1, 2, "", "n07 20005"});
  const Variables one_host = {
      {"SLURM_STEP_TASKS_PER_NODE", "5"}, {"SLURM_STEP_NODELIST", "n07"}, {"SLURM_NODEID", "0"}};
  ExpectRead({"one host", Slurm(one_host), kSlurmSource, 3, 5, 1, 5, "slurm-12003-2", "n07 20005"});
  ExpectRead({"hosts unknown", Slurm({{"SLURM_STEP_TASKS_PER_NODE", "-"}}), kSlurmSource, 3, 5, 1, std::nullopt, "",
              "n07 20005"});
  ExpectRead({"through MPI, which needs no secret", Slurm({{"RONDA_MPI", "1"}, {"PMIX_RANK", "3"}}), kSlurmSource, 3, 5,
              1, 2, "", "", MpiLauncher::kOpenMpi});
}

TEST(LaunchersTest, ShellInAnAllocationOfSlurmIsNoStep) {
  const char* const kBatchScript = "-";
  for (const char* step : {kBatchScript, "4294967290", "4294967291"}) {
    ExpectRead({step, Slurm({{"SLURM_STEP_ID", step}}), "single process", 0, 1, {}, {}, "", ""});
  }
}

TEST(LaunchersTest, FirstOfSeveralLaunchersInOrderCounts) {
  Variables all = With(With(Slurm(), Mpich()), OpenMpi());
  ExpectRead({"mpirun before srun", all, kOpenMpiSource, 3, 4, 3, 4, "ompi-344588289", "", MpiLauncher::kOpenMpi});
  all = With(all, Paddle());
  ExpectRead({"Paddle before mpirun", all, kPaddleSource, 1, 2, {}, {}, "", "10.0.0.1 6170", MpiLauncher::kOpenMpi});
  all = With(all, {{"RANK", "0"}, {"WORLD_SIZE", "3"}, {"MASTER_PORT", "1"}});
  ExpectRead({"torchrun before Paddle",
              all,
              "torchrun-style variables",
              0,
              3,
              {},
              {},
              "",
              "127.0.0.1 1",
              MpiLauncher::kOpenMpi});
  all = With(all, {{"RONDA_RANK", "6"}, {"RONDA_SIZE", "7"}, {"RONDA_JOB_ID", "j"}});
  ExpectRead({"rondarun before all", all, "rondarun", 6, 7, {}, {}, "j", "", MpiLauncher::kOpenMpi});
}

absl::StatusOr<Place> PlaceOf(const Variables& values) {
  const EnvironmentReader environment = [&values](const char* name) -> std::optional<std::string> {
    const auto it = values.find(name);
    return it == values.end() ? std::nullopt : std::optional(it->second);
  };
  return ReadPlace(EnvironmentVariables(environment));
}

std::string StoreOf(const Variables& values) {
  const absl::StatusOr<Place> place = PlaceOf(values);
  EXPECT_TRUE(place.ok()) << place.status();
  return place->store_address.empty() ? "" : place->store_address + " " + std::to_string(place->store_port);
}

TEST(PlaceTest, IsToldWithItsLauncherAlsoWhereTheRanksCannotMeet) {
  struct Case {
    Variables variables;
    Launcher launcher;
    int rank;
  };
  const std::vector<Case> cases = {{{}, Launcher::kNone, 0},
                                   {{{"MASTER_PORT", "1"}}, Launcher::kNone, 0},
                                   {{{"RONDA_RANK", "1"}, {"RONDA_SIZE", "2"}}, Launcher::kRondarun, 1},
                                   {{{"RANK", "1"}, {"WORLD_SIZE", "2"}}, Launcher::kTorchrun, 1},
                                   {{{"JOB_COMPLETION_INDEX", "3"}, {"WORLD_SIZE", "4"}}, Launcher::kTorchrun, 3},
                                   {{{"JOB_COMPLETION_INDEX", "3"}}, Launcher::kNone, 0},
                                   {Paddle(), Launcher::kPaddle, 1},
                                   {OpenMpi(), Launcher::kOpenMpi, 3},
                                   {Mpich(), Launcher::kMpich, 1},
                                   {Slurm(), Launcher::kSlurm, 3},
                                   {{{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}, Launcher::kPmi, 1}};
  for (const Case& one : cases) {
    const absl::StatusOr<Place> place = PlaceOf(one.variables);
    ASSERT_TRUE(place.ok()) << place.status();
    EXPECT_EQ(place->launcher, one.launcher) << place->job.source;
    EXPECT_EQ(place->job.rank, one.rank) << place->job.source;
  }
  EXPECT_EQ(PlaceOf(Slurm())->job.local_size, 2);
  EXPECT_THAT(std::string(PlaceOf({{"RANK", "1"}}).status().message()), HasSubstr("WORLD_SIZE is not set"));
}

TEST(PlaceTest, TheStoreOfAnotherLibraryFollowsFromTheNameOfTheJob) {
  const std::string store = StoreOf(OpenMpi());
  EXPECT_EQ(StoreOf(OpenMpi({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}})), store);
  EXPECT_THAT(store, ::testing::MatchesRegex("127\\.0\\.0\\.1 1[0-9][0-9][0-9][0-9]"));
  EXPECT_NE(StoreOf(OpenMpi({{"PMIX_NAMESPACE", "344588290"}})), store);
  EXPECT_EQ(StoreOf(OpenMpi({{"OMPI_COMM_WORLD_LOCAL_RANK", "1"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}})), "")
      << "the first of several hosts is not known";
  EXPECT_EQ(StoreOf(Slurm()), "n07 12005");
  EXPECT_EQ(StoreOf(Slurm({{"SLURM_STEP_TASKS_PER_NODE", "5"}, {"SLURM_NODEID", "0"}})), "127.0.0.1 12005");
  EXPECT_EQ(StoreOf(Slurm({{"SLURM_STEP_NODELIST", "-"}})), "");
  EXPECT_EQ(StoreOf(Mpich()), "");
  EXPECT_EQ(StoreOf({{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}}), "")
      << "MASTER_ADDR and MASTER_PORT say it";
}

TEST(LaunchersTest, UseOfMpiIsRead) {
  EXPECT_EQ(Read(OpenMpi())->job.mpi.use, MpiEnvironment::Use::kAutomatic);
  EXPECT_EQ(Read(OpenMpi({{"RONDA_MPI", "0"}}))->job.mpi.use, MpiEnvironment::Use::kNever);
  EXPECT_EQ(Read(OpenMpi({{"RONDA_MPI", "1"}}))->job.mpi.use, MpiEnvironment::Use::kAlways);
  const absl::StatusOr<Config> foreign = Read({{"RONDA_MPI", "1"}, {"RONDA_MPI_PLUGIN", "/opt/libmpi_of_mine.so"}});
  ASSERT_TRUE(foreign.ok()) << foreign.status();
  EXPECT_EQ(foreign->job.mpi.plugin, "/opt/libmpi_of_mine.so");
  EXPECT_TRUE(foreign->job.mpi.IsUsable());
}

struct BadCase {
  const char* what;
  Variables variables;
  std::vector<std::string> mentions;  // all must be in the error's text
};

TEST(LaunchersTest, TheEpochIsReadUnderAnyLauncher) {
  const auto epoch_of = [](const Variables& variables) {
    const absl::StatusOr<Config> config = Read(variables);
    return config.ok() ? std::to_string(config->job.epoch) : std::string(config.status().message());
  };
  EXPECT_EQ(epoch_of(Paddle()), "0");
  EXPECT_EQ(epoch_of(Paddle({{"RONDA_EPOCH", "999999999"}})), "999999999");
  EXPECT_EQ(epoch_of({{"RONDA_EPOCH", "7"}}), "7");
  for (const char* wrong : {"-1", "1000000000", "next", ""}) {
    EXPECT_THAT(epoch_of(Paddle({{"RONDA_EPOCH", wrong}})),
                HasSubstr(std::string("RONDA_EPOCH=\"") + wrong + "\": should be an integer from 0 to 999999999"));
  }
}

TEST(LaunchersTest, MasterAddressIsAnAddressAlone) {
  const auto error_of = [](const char* variable, const char* address) {
    const absl::StatusOr<Config> config = Read(
        {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "1"}, {"RONDA_MASTER_PORT", "1"}, {variable, address}});
    return std::string(config.status().message());
  };
  EXPECT_EQ(error_of("MASTER_ADDR", "alpha:29500"),
            "MASTER_ADDR=\"alpha:29500\": should be alpha alone; the port is a variable of its own, MASTER_PORT=29500");
  EXPECT_EQ(error_of("RONDA_MASTER_ADDR", "[fd00::1]:29500"),
            "RONDA_MASTER_ADDR=\"[fd00::1]:29500\": should be fd00::1 alone; the port is a variable of its own, "
            "RONDA_MASTER_PORT=29500");
  for (const char* wrong : {"", " alpha", "alpha ", "alpha beta", "alpha\n", "alpha:", "alpha:x", "[fd00::1]"}) {
    EXPECT_THAT(
        error_of("MASTER_ADDR", wrong),
        HasSubstr("\": should be a host name, an IPv4 address or an IPv6 address, without blanks and brackets"));
  }
  for (const char* right : {"alpha", "10.0.0.1", "fd00::1"}) EXPECT_EQ(error_of("MASTER_ADDR", right), "") << right;
}

TEST(LaunchersTest, PartialAndContradictorySettingsAreRefused) {
  const std::vector<BadCase> cases = {
      {"size alone",
       {{"OMPI_COMM_WORLD_SIZE", "4"}},
       {"OMPI_COMM_WORLD_RANK is not set", "OMPI_COMM_WORLD_SIZE=\"4\""}},
      {"rank too high", OpenMpi({{"OMPI_COMM_WORLD_RANK", "4"}}), {"OMPI_COMM_WORLD_RANK=\"4\"", "from 0 to 3"}},
      {"no MPI allowed to meet",
       OpenMpi({{"RONDA_MPI", "0"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}}),
       {"OMPI_COMM_WORLD_SIZE=\"4\"", "RONDA_MPI=0", "RONDA_MASTER_ADDR"}},
      {"hydra without a rank", {{"MPI_LOCALNRANKS", "2"}}, {"PMI_RANK is not set", "MPI_LOCALNRANKS=\"2\""}},
      {"more ranks here than in the job", Mpich({{"MPI_LOCALNRANKS", "5"}}), {"MPI_LOCALNRANKS=\"5\"", "from 1 to 4"}},
      {"no endpoints",
       {{"PADDLE_TRAINER_ID", "1"}},
       {"PADDLE_TRAINER_ENDPOINTS is not set", "PADDLE_TRAINER_ID=\"1\""}},
      {"no id", Paddle({{"PADDLE_TRAINER_ID", "-"}}), {"PADDLE_TRAINER_ID is not set", "PADDLE_TRAINERS_NUM=\"2\""}},
      {"too few endpoints",
       Paddle({{"PADDLE_TRAINER_ENDPOINTS", "10.0.0.1:6170"}}),
       {"PADDLE_TRAINER_ENDPOINTS=\"10.0.0.1:6170\"", "each of the 2 trainers"}},
      {"another endpoint than the list's",
       Paddle({{"PADDLE_CURRENT_ENDPOINT", "10.0.0.1:6170"}}),
       {"PADDLE_CURRENT_ENDPOINT=\"10.0.0.1:6170\"", "10.0.0.2:6171, as number 1"}},
      {"no port",
       Paddle({{"PADDLE_TRAINER_ENDPOINTS", "a,b"}, {"PADDLE_CURRENT_ENDPOINT", "-"}}),
       {"PADDLE_TRAINER_ENDPOINTS=\"a,b\"", "10.0.0.1:6170"}},
      {"step without tasks", {{"SLURM_STEP_ID", "0"}}, {"SLURM_PROCID is not set", "SLURM_STEP_ID=\"0\""}},
      {"hosts that cannot be read",
       Slurm({{"SLURM_STEP_NODELIST", "n["}}),
       {"SLURM_STEP_NODELIST=\"n[\"", "n[01-03,7]"}},
      {"counts that cannot be read",
       Slurm({{"SLURM_STEP_TASKS_PER_NODE", "2(3)"}}),
       {"SLURM_STEP_TASKS_PER_NODE=\"2(3)\"", "2(x3),1"}},
      {"counts that do not add up",
       Slurm({{"SLURM_STEP_TASKS_PER_NODE", "2(x2)"}}),
       {"SLURM_STEP_TASKS_PER_NODE=\"2(x2)\"", "add up to 5"}},
      {"node out of range", Slurm({{"SLURM_NODEID", "3"}}), {"SLURM_NODEID=\"3\"", "from 0 to 2"}},
      {"list of hosts that is none", Slurm({{"SLURM_STEP_NODELIST", "n[3-1]"}}), {"SLURM_STEP_NODELIST=\"n[3-1]\""}},
      {"a number among processes that nobody has counted",
       {{"PMIX_RANK", "1"}, {"PMIX_NAMESPACE", "prterun-host-1@1"}},
       {"PMIX_RANK=\"1\"", "rondarun or mpirun", "unset PMIX_RANK"}},
      {"job that is no number", Slurm({{"SLURM_JOB_ID", "x"}}), {"SLURM_JOB_ID=\"x\""}},
  };
  for (const BadCase& bad : cases) {
    const absl::StatusOr<Config> config = Read(bad.variables);
    ASSERT_FALSE(config.ok()) << bad.what;
    EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument) << bad.what;
    for (const std::string& mention : bad.mentions) {
      EXPECT_THAT(std::string(config.status().message()), HasSubstr(mention)) << bad.what;
    }
  }
}

}  // namespace
}  // namespace ronda
