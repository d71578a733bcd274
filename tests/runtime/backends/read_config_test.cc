// SPDX-License-Identifier: Apache-2.0

#include "runtime/backends/read_config.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runtime/backends/variables.h"

namespace ronda {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

Variables Rondarun() {
  return {{"RONDA_RANK", "5"},
          {"RONDA_SIZE", "8"},
          {"RONDA_LOCAL_RANK", "1"},
          {"RONDA_LOCAL_SIZE", "4"},
          {"RONDA_CROSS_RANK", "1"},
          {"RONDA_CROSS_SIZE", "2"},
          {"RONDA_JOB_ID", "job-7"},
          {"RONDA_JOB_SECRET", "s3cret"},
          {"RONDA_MASTER_ADDR", "node0"},
          {"RONDA_MASTER_PORT", "4711"}};
}

Variables Torchrun() {
  return {{"RANK", "1"},
          {"WORLD_SIZE", "2"},
          {"LOCAL_RANK", "1"},
          {"LOCAL_WORLD_SIZE", "2"},
          {"MASTER_ADDR", "localhost"},
          {"MASTER_PORT", "29500"}};
}

TEST(ConfigTest, EmptyEnvironmentIsAJobOfOneRankWithDefaults) {
  const absl::StatusOr<Config> config = Read({});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->job.rank, 0);
  EXPECT_EQ(config->job.size, 1);
  EXPECT_EQ(config->job.source, "single process");
  EXPECT_EQ(config->job.local_rank, std::nullopt);
  EXPECT_EQ(config->tunables.cycle_time, absl::ZeroDuration());
  EXPECT_EQ(config->tunables.fusion_threshold, size_t{64} << 20);
  EXPECT_EQ(config->tunables.min_bucket_bytes, size_t{1} << 20);
  EXPECT_EQ(config->tunables.chunk_bytes, 0u);
  EXPECT_EQ(config->tunables.cache_capacity, 1024u);
  EXPECT_EQ(config->tunables.lock_after, 4);
  EXPECT_EQ(config->tunables.stall_warning, absl::Seconds(60));
  EXPECT_EQ(config->tunables.stall_deadline, absl::Minutes(10));
  EXPECT_EQ(config->tunables.start_timeout, absl::Seconds(30));
  EXPECT_EQ(config->tunables.autotune, Tunables::Autotune::kOff);
  EXPECT_EQ(config->tunables.autotune_log, "");
  EXPECT_EQ(config->backend, "");
  EXPECT_TRUE(config->network.interfaces.empty());
  EXPECT_EQ(config->network.heartbeat, absl::Seconds(1));
  EXPECT_EQ(config->network.heartbeat_timeout, absl::Seconds(10));
  EXPECT_FALSE(config->job.mpi.IsUsable());
  EXPECT_EQ(config->log_level, LogLevel::kWarning);
}

TEST(ConfigTest, RondarunVariablesAreRead) {
  const absl::StatusOr<Config> config = Read(Rondarun());
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->job.rank, 5);
  EXPECT_EQ(config->job.size, 8);
  EXPECT_EQ(config->job.local_rank, 1);
  EXPECT_EQ(config->job.local_size, 4);
  EXPECT_EQ(config->job.cross_rank, 1);
  EXPECT_EQ(config->job.cross_size, 2);
  EXPECT_EQ(config->job.job_id, "job-7");
  EXPECT_EQ(config->job.job_secret, "s3cret");
  EXPECT_EQ(config->job.master_address, "node0");
  EXPECT_EQ(config->job.master_port, 4711);
  EXPECT_EQ(config->job.source, "rondarun");
}

TEST(ConfigTest, TorchrunVariablesAreRead) {
  const absl::StatusOr<Config> config = Read(Torchrun());
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->job.rank, 1);
  EXPECT_EQ(config->job.size, 2);
  EXPECT_EQ(config->job.local_rank, 1);
  EXPECT_EQ(config->job.local_size, 2);
  EXPECT_EQ(config->job.cross_rank, std::nullopt);
  EXPECT_EQ(config->job.job_id, "");
  EXPECT_EQ(config->job.master_address, "localhost");
  EXPECT_EQ(config->job.master_port, 29500);
  EXPECT_EQ(config->job.source, "torchrun-style variables");
}

TEST(ConfigTest, RondarunVariablesWinOverTorchrunVariables) {
  const absl::StatusOr<Config> config = Read(With(Torchrun(), Rondarun()));
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->job.rank, 5);
  EXPECT_EQ(config->job.source, "rondarun");
  EXPECT_EQ(config->job.master_address, "node0");
}

TEST(ConfigTest, JobIdOnOneHostNeedsNoMeetingPoint) {
  const absl::StatusOr<Config> config =
      Read(With(Torchrun(), {{"RONDA_RANK", "1"}, {"RONDA_SIZE", "2"}, {"RONDA_JOB_ID", "a"}, {"MASTER_PORT", "-"}}));
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->job.job_id, "a");
  EXPECT_EQ(config->job.master_address, "");
}

TEST(ConfigTest, RondaMasterVariablesReplaceOneOfTorchrunsAlone) {
  const absl::StatusOr<Config> config = Read(With(Torchrun(), {{"RONDA_MASTER_PORT", "4000"}}));
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->job.master_address, "localhost");
  EXPECT_EQ(config->job.master_port, 4000);
}

TEST(ConfigTest, RondaMasterVariablesWinSoThatTorchrunKeepsItsPort) {
  const absl::StatusOr<Config> config =
      Read(With(Torchrun(), {{"RONDA_MASTER_ADDR", "::1"}, {"RONDA_MASTER_PORT", "4000"}}));
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->job.master_address, "::1");
  EXPECT_EQ(config->job.master_port, 4000);
}

TEST(ConfigTest, MasterAddressIsLoopbackByDefault) {
  const absl::StatusOr<Config> config = Read(With(Torchrun(), {{"MASTER_ADDR", "-"}}));
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->job.master_address, "127.0.0.1");
}

TEST(ConfigTest, OneRankNeedsNoMeetingPoint) {
  const absl::StatusOr<Config> config = Read({{"RANK", "0"}, {"WORLD_SIZE", "1"}});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->job.size, 1);
}

TEST(ConfigTest, NumbersWithoutAUnitAreSeconds) {
  const absl::StatusOr<Config> config = Read({{"RONDA_STALL_WARNING", "5"},
                                              {"RONDA_STALL_DEADLINE", "1.5e2"},
                                              {"RONDA_START_TIMEOUT", "8"},
                                              {"RONDA_HEARTBEAT", "0.5"},
                                              {"RONDA_HEARTBEAT_TIMEOUT", "20"}});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->tunables.stall_warning, absl::Seconds(5));
  EXPECT_EQ(config->tunables.stall_deadline, absl::Seconds(150));
  EXPECT_EQ(config->tunables.start_timeout, absl::Seconds(8));
  EXPECT_EQ(config->network.heartbeat, absl::Milliseconds(500));
  EXPECT_EQ(config->network.heartbeat_timeout, absl::Seconds(20));
}

TEST(ConfigTest, TunablesAreRead) {
  const absl::StatusOr<Config> config = Read({{"RONDA_CYCLE_TIME", "1.5ms"},
                                              {"RONDA_FUSION_THRESHOLD", "512KiB"},
                                              {"RONDA_MIN_BUCKET_BYTES", "2MiB"},
                                              {"RONDA_CHUNK_BYTES", "128KiB"},
                                              {"RONDA_CACHE_CAPACITY", "0"},
                                              {"RONDA_LOCK_AFTER", "0"},
                                              {"RONDA_STALL_WARNING", "5s"},
                                              {"RONDA_STALL_DEADLINE", "inf"},
                                              {"RONDA_START_TIMEOUT", "2m"},
                                              {"RONDA_NEGOTIATION_LOG", "/tmp/log"},
                                              {"RONDA_AUTOTUNE", "1"},
                                              {"RONDA_AUTOTUNE_LOG", "/tmp/tuning.csv"},
                                              {"RONDA_AUTOTUNE_STEPS_PER_SAMPLE", "20"},
                                              {"RONDA_TIMELINE", "/tmp/t.json"},
                                              {"RONDA_TIMELINE_MAX_MB", "3"},
                                              {"RONDA_LOG_LEVEL", "debug"},
                                              {"RONDA_BACKEND", "hierarchical"},
                                              {"RONDA_CUDA_PLUGIN", "/opt/libronda_cuda.so"},
                                              {"RONDA_NCCL_LIBRARY", "/opt/libnccl.so.2"},
                                              {"RONDA_DEVICE_BACKEND", "staged"},
                                              {"RONDA_REPRODUCIBLE", "1"},
                                              {"NCCL_HOSTID", "rank3"},
                                              {"CUDA_HOME", "/opt/cuda"},
                                              {"CONDA_PREFIX", "/opt/conda"},
                                              {"VIRTUAL_ENV", "/home/me/env"},
                                              {"RONDA_CONTROL", "mpi"},
                                              {"RONDA_NETWORK_INTERFACE", "ib0,eth0"},
                                              {"RONDA_HEARTBEAT", "100ms"},
                                              {"RONDA_HEARTBEAT_TIMEOUT", "inf"}});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->tunables.cycle_time, absl::Microseconds(1500));
  EXPECT_EQ(config->tunables.fusion_threshold, size_t{512} << 10);
  EXPECT_EQ(config->tunables.min_bucket_bytes, size_t{2} << 20);
  EXPECT_EQ(config->tunables.chunk_bytes, size_t{128} << 10);
  EXPECT_EQ(config->tunables.cache_capacity, 0u);
  EXPECT_EQ(config->tunables.lock_after, 0);
  EXPECT_EQ(config->tunables.stall_warning, absl::Seconds(5));
  EXPECT_EQ(config->tunables.stall_deadline, absl::InfiniteDuration());
  EXPECT_EQ(config->tunables.start_timeout, absl::Minutes(2));
  EXPECT_EQ(config->tunables.negotiation_log, "/tmp/log");
  EXPECT_EQ(config->tunables.autotune, Tunables::Autotune::kOn);
  EXPECT_EQ(config->tunables.autotune_log, "/tmp/tuning.csv");
  EXPECT_EQ(config->tunables.autotune_steps_per_sample, 20);
  EXPECT_EQ(config->timeline.path, "/tmp/t.json");
  EXPECT_EQ(config->timeline.most_bytes, size_t{3} << 20);
  EXPECT_EQ(config->log_level, LogLevel::kDebug);
  EXPECT_EQ(config->backend, "hierarchical");
  EXPECT_EQ(config->devices.cuda_plugin, "/opt/libronda_cuda.so");
  EXPECT_EQ(config->devices.nccl_library, "/opt/libnccl.so.2");
  EXPECT_EQ(config->devices.backend, "staged");
  EXPECT_TRUE(config->devices.reproducible);
  EXPECT_EQ(config->devices.nccl_host, "rank3");
  EXPECT_EQ(config->devices.cuda_home, "/opt/cuda");
  EXPECT_EQ(config->devices.python, "/home/me/env");
  EXPECT_EQ(config->network.control, NetworkSettings::Control::kMpi);
  EXPECT_THAT(config->network.interfaces, ElementsAre("ib0", "eth0"));
  EXPECT_EQ(config->network.heartbeat, absl::Milliseconds(100));
  EXPECT_EQ(config->network.heartbeat_timeout, absl::InfiniteDuration());
}

TEST(ConfigTest, ReductionsInPlaceAreOffUnlessRequested) {
  EXPECT_FALSE(Read({})->devices.reduce_in_place);
  EXPECT_TRUE(Read({{"RONDA_REDUCE_IN_PLACE", "1"}})->devices.reduce_in_place);
}

TEST(ConfigTest, WindowsOfNcclAreOffUnlessRequested) {
  EXPECT_FALSE(Read({})->devices.nccl_windows);
  EXPECT_TRUE(Read({{"RONDA_NCCL_WINDOWS", "1"}})->devices.nccl_windows);
}

TEST(ConfigTest, MemoryOfLanesIsOffUnlessRequested) {
  EXPECT_EQ(Read({})->devices.lane_memory_mb, 0);
  EXPECT_EQ(Read({{"RONDA_LANE_MEMORY_MB", "512"}})->devices.lane_memory_mb, 512);
  EXPECT_EQ(Read({})->devices.gradient_memory_mb, 0);
  EXPECT_EQ(Read({{"RONDA_GRADIENT_MEMORY_MB", "512"}})->devices.gradient_memory_mb, 512);
  EXPECT_FALSE(Read({{"RONDA_LANE_MEMORY_MB", "-1"}}).ok());
}

TEST(ConfigTest, AutotuneCanBeSwitchedOff) {
  const absl::StatusOr<Config> config = Read({{"RONDA_AUTOTUNE", "0"}});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->tunables.autotune, Tunables::Autotune::kOff);
}

TEST(ConfigTest, BytesComeWithAndWithoutUnits) {
  const std::vector<std::pair<std::string, size_t>> cases = {{"0", 0},
                                                             {"1", 1},
                                                             {"67108864", 67108864},
                                                             {"3KiB", 3072},
                                                             {"64MiB", size_t{64} << 20},
                                                             {"2GiB", size_t{2} << 30}};
  for (const auto& [text, bytes] : cases) {
    const absl::StatusOr<Config> config = Read({{"RONDA_FUSION_THRESHOLD", text}});
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_EQ(config->tunables.fusion_threshold, bytes) << text;
  }
}

TEST(ConfigTest, StreamsMayGoOnAfterAFailure) {
  const auto grace = [](const char* text) { return Read({{"RONDA_FAILURE_GRACE", text}})->devices.failure_grace; };
  EXPECT_EQ(grace("1500ms"), absl::Milliseconds(1500));
  EXPECT_EQ(grace("continue"), std::nullopt);
  EXPECT_EQ(grace("inf"), absl::InfiniteDuration());
  EXPECT_EQ(grace("0"), absl::ZeroDuration());
}

TEST(ConfigTest, ShortDeadlineShortensTheDefaultWarning) {
  const absl::StatusOr<Config> config = Read({{"RONDA_STALL_DEADLINE", "10s"}});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->tunables.stall_warning, absl::Seconds(10));
}

struct BadCase {
  const char* what;
  Variables variables;
  std::vector<std::string> mentions;  // all must be in the error's text
};

void ExpectRefused(const std::vector<BadCase>& cases) {
  for (const BadCase& bad : cases) {
    const absl::StatusOr<Config> config = Read(bad.variables);
    ASSERT_FALSE(config.ok()) << bad.what;
    EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument) << bad.what;
    for (const std::string& mention : bad.mentions) {
      EXPECT_THAT(std::string(config.status().message()), HasSubstr(mention)) << bad.what;
    }
  }
}

TEST(ConfigTest, NonsenseIsRefusedWithVariableAndValue) {
  std::vector<BadCase> cases;
  const std::vector<std::pair<std::string, std::vector<std::string>>> nonsense = {
      {"RONDA_CYCLE_TIME", {"", "1", "fast", "-1ms", "inf", "2h", "1ms "}},
      {"RONDA_FUSION_THRESHOLD",
       {"", "-1", "64MB", "64 MiB x", "MiB", "1.5MiB", "9223372036854775808", "9999999999GiB"}},
      {"RONDA_MIN_BUCKET_BYTES", {"", "-1", "1MB"}},
      {"RONDA_CHUNK_BYTES", {"", "-1", "own"}},
      {"RONDA_CACHE_CAPACITY", {"", "-1", "many", "1e3", "99999999999"}},
      {"RONDA_LOCK_AFTER", {"", "-1", "never", "1001"}},
      {"RONDA_STALL_WARNING", {"", "0", "-1s", "-60", "soon", "nan", "1e400"}},
      {"RONDA_STALL_DEADLINE", {"", "0", "0s", "-inf", "600 s"}},
      {"RONDA_START_TIMEOUT", {"", "0", "inf", "25h", "86401"}},
      {"RONDA_NEGOTIATION_LOG", {""}},
      {"RONDA_AUTOTUNE", {"", "yes", "2", "true"}},
      {"RONDA_AUTOTUNE_LOG", {""}},
      {"RONDA_AUTOTUNE_STEPS_PER_SAMPLE", {"", "3", "1001", "ten"}},
      {"RONDA_TIMELINE", {""}},
      {"RONDA_TIMELINE_MAX_MB", {"", "0", "64MiB", "1048577"}},
      {"RONDA_LOG_LEVEL", {"", "verbose", "WARNING", "2"}},
      {"RONDA_FAILURE_GRACE", {"", "-1s", "end", "Continue"}},
      {"RONDA_BACKEND", {"", "nccl", "SHM"}},
      {"RONDA_DEVICE_BACKEND", {"", "shm", "NCCL"}},
      {"RONDA_CUDA_PLUGIN", {""}},
      {"RONDA_NCCL_LIBRARY", {""}},
      {"RONDA_CONTROL", {"", "shm", "MPI", "GRPC"}},
      {"RONDA_HEARTBEAT", {"", "0", "0.001", "2h", "inf"}},
      {"RONDA_HEARTBEAT_TIMEOUT", {"", "0"}},
      {"RONDA_NETWORK_INTERFACE", {"", "eth0,", ",eth0"}},
      {"RONDA_HOSTS_PLUGIN", {""}},
      {"RONDA_MPI", {"", "yes", "2"}},
      {"RONDA_MPI_PLUGIN", {""}},
  };
  for (const auto& [name, values] : nonsense) {
    for (const std::string& value : values) {
      cases.push_back({"nonsense", {{name, value}}, {name + "=\"" + value + "\"", "should be"}});
    }
  }
  ExpectRefused(cases);
}

TEST(ConfigTest, NonsenseInAJobIsRefusedWithVariableAndValue) {
  std::vector<BadCase> cases;
  const std::vector<std::pair<std::string, std::vector<std::string>>> ronda = {
      {"RONDA_RANK", {"", "-1", "8", "one", "0x1", "4294967296"}},
      {"RONDA_SIZE", {"", "0", "-8", "eight", "1048577"}},
      {"RONDA_LOCAL_RANK", {"4", "-1", "x"}},
      {"RONDA_LOCAL_SIZE", {"0", "9", "x"}},
      {"RONDA_CROSS_RANK", {"2", "-1"}},
      {"RONDA_CROSS_SIZE", {"0", "9"}},
      {"RONDA_JOB_ID", {"", "../etc", ".hidden", "a b", std::string(65, 'x')}},
  };
  for (const auto& [name, values] : ronda) {
    for (const std::string& value : values) {
      cases.push_back({"rondarun", With(Rondarun(), {{name, value}}), {name + "=\"" + value + "\"", "should be"}});
    }
  }
  const std::vector<std::pair<std::string, std::vector<std::string>>> torchrun = {
      {"RANK", {"", "2", "x"}},
      {"WORLD_SIZE", {"", "0", "x"}},
      {"LOCAL_RANK", {"2"}},
      {"LOCAL_WORLD_SIZE", {"3"}},
      {"MASTER_PORT", {"", "0", "65536", "http"}},
      {"MASTER_ADDR", {"", "a b", "http://a", "[::1]"}},
      {"RONDA_MASTER_PORT", {"0"}},
      {"RONDA_MASTER_ADDR", {"*"}},
  };
  for (const auto& [name, values] : torchrun) {
    for (const std::string& value : values) {
      cases.push_back({"torchrun", With(Torchrun(), {{name, value}}), {name + "=\"" + value + "\"", "should be"}});
    }
  }
  ExpectRefused(cases);
}

TEST(ConfigTest, PartialAndContradictorySettingsAreRefused) {
  ExpectRefused({
      {"RANK alone", {{"RANK", "3"}}, {"WORLD_SIZE is not set", "RANK=\"3\""}},
      {"WORLD_SIZE alone", {{"WORLD_SIZE", "3"}}, {"RANK is not set", "WORLD_SIZE=\"3\""}},
      {"MASTER_ADDR alone", {{"MASTER_ADDR", "host"}}, {"RANK is not set", "MASTER_ADDR=\"host\""}},
      {"RONDA_RANK alone", {{"RONDA_RANK", "3"}}, {"RONDA_SIZE is not set", "RONDA_RANK=\"3\""}},
      {"RONDA_JOB_ID alone", {{"RONDA_JOB_ID", "a"}}, {"RONDA_RANK is not set", "RONDA_JOB_ID=\"a\""}},
      {"half rondarun, full torchrun", With(Torchrun(), {{"RONDA_RANK", "1"}}), {"RONDA_SIZE is not set"}},
      {"no meeting point", {{"RANK", "0"}, {"WORLD_SIZE", "2"}}, {"WORLD_SIZE=\"2\"", "MASTER_ADDR", "rondarun"}},
      {"several hosts, no meeting point",
       With(Rondarun(), {{"RONDA_MASTER_ADDR", "-"}, {"RONDA_MASTER_PORT", "-"}}),
       {"RONDA_SIZE=\"8\"", "RONDA_MASTER_ADDR", "mpirun"}},
      {"no port for an address of Ronda's",
       With(Rondarun(), {{"RONDA_MASTER_PORT", "-"}}),
       {"RONDA_MASTER_PORT is not set"}},
      {"heartbeats too rare",
       {{"RONDA_HEARTBEAT", "6s"}},
       {"RONDA_HEARTBEAT_TIMEOUT is 10s", "at least twice RONDA_HEARTBEAT", "6s"}},
      {"MPI without its launcher", With(Torchrun(), {{"RONDA_MPI", "1"}}), {"RONDA_MPI=\"1\"", "rondarun --mpi"}},
      {"no port", With(Torchrun(), {{"MASTER_PORT", "-"}}), {"MASTER_PORT is not set", "MASTER_ADDR=\"localhost\""}},
      {"warning after deadline",
       {{"RONDA_STALL_WARNING", "20s"}, {"RONDA_STALL_DEADLINE", "10s"}},
       {"RONDA_STALL_WARNING=\"20s\"", "RONDA_STALL_DEADLINE", "10s"}},
      {"warning after default deadline", {{"RONDA_STALL_WARNING", "20m"}}, {"RONDA_STALL_WARNING=\"20m\"", "10m"}},
      {"empty secret", With(Rondarun(), {{"RONDA_JOB_SECRET", ""}}), {"RONDA_JOB_SECRET is set but empty"}},
  });
}

TEST(ConfigTest, SecretIsNeverShown) {
  for (const Variables& bad :
       {Variables{{"RONDA_RANK", "9"}}, Variables{{"RONDA_JOB_ID", "/"}}, Variables{{"RONDA_SIZE", "x"}}}) {
    const absl::StatusOr<Config> config = Read(With(Rondarun(), bad));
    ASSERT_FALSE(config.ok());
    EXPECT_THAT(std::string(config.status().message()), Not(HasSubstr("s3cret")));
  }
}

TEST(ConfigTest, LongAndUnprintableValuesAreShownCutAndEscaped) {
  const absl::StatusOr<Config> config = Read({{"RONDA_CACHE_CAPACITY", "\n\x1b" + std::string(5000, 'x')}});
  ASSERT_FALSE(config.ok());
  EXPECT_THAT(std::string(config.status().message()), AllOf(HasSubstr("\\n\\x1b"), HasSubstr("...")));
  EXPECT_LT(config.status().message().size(), 300u);
}

TEST(ConfigTest, ProcessEnvironmentTellsUnsetFromEmpty) {
  ASSERT_EQ(setenv("RONDA_TEST_EMPTY", "", 1), 0);
  ASSERT_EQ(unsetenv("RONDA_TEST_UNSET"), 0);
  const EnvironmentReader environment = ProcessEnvironment();
  EXPECT_EQ(environment("RONDA_TEST_EMPTY"), "");
  EXPECT_EQ(environment("RONDA_TEST_UNSET"), std::nullopt);
}

}  // namespace
}  // namespace ronda
