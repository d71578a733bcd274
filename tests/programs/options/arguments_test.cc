// SPDX-License-Identifier: Apache-2.0

#include "programs/options/arguments.h"

#include <signal.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/programs/options/fake_sources.h"

namespace ronda {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;
using ::testing::SizeIs;
using Action = LaunchOptions::Action;
using Binding = LaunchOptions::Binding;
using Launcher = LaunchOptions::Launcher;
using LinePrefix = LaunchOptions::LinePrefix;
using Words = std::vector<std::string>;

LaunchOptions Parsed(const Words& words, const FakeMachine& machine = {}) {
  const auto options = ParseArguments(words, Sources(machine));
  EXPECT_TRUE(options.ok()) << options.status();
  return options.value_or(LaunchOptions{});
}

// Parses a command line with these options for two ranks on this host.
LaunchOptions With(Words words, const FakeMachine& machine = {}) {
  words.insert(words.begin(), {"-np", "2"});
  words.push_back("x");
  return Parsed(words, machine);
}

LaunchOptions OnTwoHosts(Words words) {
  words.insert(words.begin(), {"-H", "a:1,b:1"});
  return With(words);
}

TEST(ArgumentsTest, NumberOfRanksAndCommandAreEnough) {
  const LaunchOptions options = Parsed({"-np", "4", "./train"});
  EXPECT_EQ(options.action, Action::kRun);
  EXPECT_EQ(options.rank_count, 4);
  EXPECT_THAT(options.command, ElementsAre("./train"));
  EXPECT_THAT(options.hosts, IsEmpty());
  EXPECT_EQ(options.launcher, Launcher::kAutomatic);
  EXPECT_FALSE(options.nodes.has_value());
  EXPECT_THAT(options.devices, IsEmpty());
  EXPECT_EQ(options.binding, Binding::kNone);
  EXPECT_EQ(options.max_restarts, 0);
  EXPECT_THAT(options.signals_to_pass, IsEmpty());
  EXPECT_FALSE(options.verbose);
  EXPECT_FALSE(options.summary);
  EXPECT_TRUE(options.output_directory.empty());
  EXPECT_THAT(options.hidden_streams, IsEmpty());
  EXPECT_EQ(options.line_prefix, LinePrefix::kRank);
  EXPECT_EQ(options.grace_period, absl::Seconds(5));
  EXPECT_THAT(options.settings, IsEmpty());
  EXPECT_THAT(options.notes, IsEmpty());
}

TEST(ArgumentsTest, RanksAreCountedUnderAllNames) {
  for (const char* name : {"-np", "-n", "--num-proc", "--num_proc"}) {
    EXPECT_EQ(Parsed({name, "3", "x"}).rank_count, 3) << name;
  }
}

TEST(ArgumentsTest, LongNamesTakeTheirValueBehindAnEqualsSignToo) {
  const LaunchOptions options = Parsed({"--num-proc=3", "--hosts=localhost:3", "--output-filename=a=b", "x"});
  EXPECT_EQ(options.rank_count, 3);
  EXPECT_THAT(options.hosts, ElementsAre(HostSlots{.host = "localhost", .slots = 3}));
  EXPECT_EQ(options.output_directory, "a=b");
}

TEST(ArgumentsTest, OptionsOfTheCommandAreLeftAlone) {
  EXPECT_THAT(Parsed({"-np", "1", "sh", "-np", "0", "--help"}).command, ElementsAre("sh", "-np", "0", "--help"));
}

TEST(ArgumentsTest, DoubleDashEndsTheOptions) {
  EXPECT_THAT(Parsed({"-np", "1", "--", "--odd-name", "--"}).command, ElementsAre("--odd-name", "--"));
}

TEST(ArgumentsTest, TheLastOfARepeatedOptionCounts) { EXPECT_EQ(Parsed({"-np", "1", "-n", "2", "x"}).rank_count, 2); }

TEST(ArgumentsTest, QuestionsNeedNoCommandAndAreAnsweredBeforeErrors) {
  for (const char* name : {"--help", "-h"}) EXPECT_EQ(Parsed({name, "-np", "x"}).action, Action::kHelp);
  for (const char* name : {"--version", "-v"}) EXPECT_EQ(Parsed({name, "--nope"}).action, Action::kVersion);
  for (const char* name : {"--check-build", "-cb"}) EXPECT_EQ(Parsed({"-np", "2", name}).action, Action::kCheckBuild);
}

TEST(ArgumentsTest, APreflightNeedsNeitherRanksNorACommand) {
  const LaunchOptions options = Parsed({"--check", "-H", "a:4,b:4"});
  EXPECT_EQ(options.action, Action::kPreflight);
  EXPECT_EQ(options.rank_count, 0);
  EXPECT_THAT(options.hosts, SizeIs(2));
  EXPECT_THAT(Parsed({"--check"}).hosts, IsEmpty());
}

TEST(ArgumentsTest, ADryRunIsAJobThatIsNotStarted) {
  const LaunchOptions options = With({"--dry-run"});
  EXPECT_EQ(options.action, Action::kDryRun);
  EXPECT_EQ(options.rank_count, 2);
  EXPECT_THAT(options.command, ElementsAre("x"));
}

TEST(ArgumentsTest, AJobHasANameIfTheUserGivesOne) {
  EXPECT_EQ(With({}).name, "");
  for (const char* option : {"--name", "--job-id", "--job_id", "--rdzv-id"}) {
    EXPECT_EQ(With({option, "resnet50/7"}).name, "resnet50/7");
  }
  for (const std::string& bad : {std::string(), std::string("a b"), std::string("a\x1b[2J"), std::string(65, 'a')}) {
    const absl::Status status = ParseArguments({"-np", "2", "--name=" + bad, "x"}, Sources({})).status();
    EXPECT_THAT(std::string(status.message()), HasSubstr("without blanks, for example --name resnet50")) << bad;
  }
}

TEST(ArgumentsTest, AJobThatGoesOnWhenRanksDieHasRoomForThem) {
  EXPECT_FALSE(With({}).elastic.has_value());
  const ElasticOptions least = With({"--min-np", "1"}).elastic.value();
  EXPECT_EQ(least.min_ranks, 1);
  EXPECT_EQ(least.max_ranks, 2);
  EXPECT_EQ(least.timeout, absl::Seconds(600));
  EXPECT_EQ(least.reset_limit, std::nullopt);
  EXPECT_EQ(With({"--max-num-proc", "3"}).elastic.value().min_ranks, 2);
  const ElasticOptions all = With({"--min-num-proc", "2", "--max-np", "8", "--elastic-timeout", "0.5", "--reset-limit",
                                   "0", "--blacklist-cooldown-range", "1.5", "100", "-H", "alpha:8"})
                                 .elastic.value();
  EXPECT_EQ(all.max_ranks, 8);
  EXPECT_EQ(all.timeout, absl::Seconds(0.5));
  EXPECT_EQ(all.reset_limit, 0);
  EXPECT_EQ(all.cooldown, std::pair(absl::Seconds(1.5), absl::Seconds(100)));
}

TEST(ArgumentsTest, AJobThatGoesOnWhenRanksDieMayBeOnSeveralHosts) {
  const LaunchOptions fixed = With({"--min-np", "1", "-H", "alpha:1,beta:1"});
  EXPECT_THAT(fixed.hosts, ElementsAre(HostSlots{"alpha", 1}, HostSlots{"beta", 1}));
  EXPECT_EQ(fixed.elastic.value().discovery_script, "");
  const ElasticOptions listed =
      With({"--host-discovery-script", "./hosts.sh", "--slots-per-host", "4"}).elastic.value();
  EXPECT_EQ(listed.discovery_script, "./hosts.sh");
  EXPECT_EQ(listed.slots_per_host, 4);
  EXPECT_EQ(listed.min_ranks, 2);
}

TEST(ArgumentsTest, HostsComeFromALineOrAFile) {
  const FakeMachine machine{.files = {{"hosts.txt", "a slots=1\nb slots=2\n"}}};
  for (const char* name : {"-H", "--hosts", "-hosts", "-host", "--host"}) {
    EXPECT_THAT(Parsed({"-np", "3", name, "a:1,b:2", "x"}).hosts, ElementsAre(HostSlots{"a", 1}, HostSlots{"b", 2}));
  }
  for (const char* name : {"-hostfile", "--hostfile"}) {
    EXPECT_THAT(With({name, "hosts.txt"}, machine).hosts, ElementsAre(HostSlots{"a", 1}, HostSlots{"b", 2}));
  }
}

TEST(ArgumentsTest, HostAloneIsPaddlesAddress) {
  for (const char* address : {"10.0.0.1", "alpha", "fd00::1"}) {
    const LaunchOptions options = Parsed({"--host", address, "--nnodes", "2", "--node-rank", "0", "x"});
    EXPECT_THAT(options.hosts, IsEmpty());
    EXPECT_THAT(options.notes, ElementsAre(HasSubstr("--host has no effect: --network-interfaces says")));
  }
  EXPECT_THAT(With({"--host", "alpha:2"}).hosts, ElementsAre(HostSlots{"alpha", 2}));
  EXPECT_THAT(With({"--host", "[fd00::1]:2"}).hosts, ElementsAre(HostSlots{"fd00::1", 2}));
}

TEST(ArgumentsTest, OtherHostsAreReachedAsTheUserSays) {
  const LaunchOptions options =
      OnTwoHosts({"-p", "2222", "-i", "key", "--network-interfaces", "eth0,eth1", "--tcp", "--mpi-args",
                  "--mca 'btl x' y", "--mpi-args=-v", "--binding-args", "-bind-to core", "--launcher", "mpirun"});
  EXPECT_EQ(options.remote.ssh_port, 2222);
  EXPECT_EQ(options.remote.ssh_identity_file, "key");
  EXPECT_THAT(options.remote.network_interfaces, ElementsAre("eth0", "eth1"));
  EXPECT_EQ(options.remote.transport, RemoteOptions::Transport::kTcp);
  EXPECT_THAT(options.remote.mpi_arguments, ElementsAre("--mca", "btl x", "y", "-v"));
  EXPECT_THAT(options.remote.binding_arguments, ElementsAre("-bind-to", "core"));
  EXPECT_EQ(options.launcher, Launcher::kMpirun);
  EXPECT_THAT(options.settings, ElementsAre(Pair("RONDA_NETWORK_INTERFACE", "eth0,eth1")));
  EXPECT_THAT(options.notes, IsEmpty());
  EXPECT_EQ(OnTwoHosts({"--ssh-port", "22"}).remote.ssh_port, 22);
  EXPECT_EQ(OnTwoHosts({"--ssh-identity-file", "k"}).remote.ssh_identity_file, "k");
  EXPECT_THAT(OnTwoHosts({"--network-interface", "eth0"}).remote.network_interfaces, ElementsAre("eth0"));
  EXPECT_EQ(OnTwoHosts({"--launch-agent", "enter"}).remote.agent, "enter");
  EXPECT_EQ(OnTwoHosts({"--launcher", "ssh"}).launcher, Launcher::kSsh);
  EXPECT_EQ(OnTwoHosts({"--launcher", "auto"}).launcher, Launcher::kAutomatic);
}

TEST(ArgumentsTest, MpiIsHadOnOneHostToo) {
  const LaunchOptions options = With({"--mpi", "--mpi-args", "-v"});
  EXPECT_EQ(options.launcher, Launcher::kMpirun);
  EXPECT_THAT(options.settings, ElementsAre(Pair("RONDA_MPI", "1")));
  EXPECT_THAT(options.notes, IsEmpty());
}

TEST(ArgumentsTest, OptionsOfMpirunAreNotedWhereItDoesNotStartTheRanks) {
  for (const Words& words : {Words{"--mpi-args", "-v"}, Words{"--binding-args", "-v"}, Words{"--tcp"}}) {
    EXPECT_THAT(With(words).notes, ElementsAre(HasSubstr(words.front() + " has no effect: rondarun starts")));
    EXPECT_THAT(OnTwoHosts(words).notes, IsEmpty());
    Words on_one_of_two = words;
    on_one_of_two.insert(on_one_of_two.begin(), {"-H", "alpha:2,b:2"});
    EXPECT_THAT(With(on_one_of_two).notes, SizeIs(1));
    Words on_another = words;
    on_another.insert(on_another.begin(), {"-H", "b:2"});
    EXPECT_THAT(With(on_another).notes, IsEmpty());
  }
}

TEST(ArgumentsTest, OutputGoesWhereItIsSent) {
  for (const char* name : {"--output-filename", "--log-dir", "--log_dir"}) {
    EXPECT_EQ(With({name, "logs"}).output_directory, "logs") << name;
  }
  for (const char* name : {"--prefix-output-with-timestamp", "-prefix-timestamp"}) {
    EXPECT_EQ(With({name}).line_prefix, LinePrefix::kTimestampAndRank) << name;
  }
  EXPECT_TRUE(With({"--verbose"}).verbose);
  EXPECT_TRUE(With({"--summary"}).summary);
}

TEST(ArgumentsTest, MonitorListensWhereItIsTold) {
  EXPECT_EQ(With({}).monitor_port, std::nullopt);
  EXPECT_EQ(With({"--monitor"}).monitor_port, 0);
  EXPECT_EQ(With({"--monitor=9464"}).monitor_port, 9464);
}

TEST(ArgumentsTest, RedirectedStreamsAreHiddenUnlessTheyAreCopied) {
  EXPECT_THAT(With({"--log-dir", "d", "-r", "1"}).hidden_streams, ElementsAre(Stream::kStdout));
  EXPECT_THAT(With({"--log-dir", "d", "--redirects", "2"}).hidden_streams, ElementsAre(Stream::kStderr));
  EXPECT_THAT(With({"--log-dir", "d", "-r", "3"}).hidden_streams, ElementsAre(Stream::kStdout, Stream::kStderr));
  EXPECT_THAT(With({"--log-dir", "d", "-r", "3", "-t", "1"}).hidden_streams, ElementsAre(Stream::kStderr));
  EXPECT_THAT(With({"--log-dir", "d", "--tee", "3"}).hidden_streams, IsEmpty());
  EXPECT_THAT(With({"-r", "0", "-t", "0"}).hidden_streams, IsEmpty());
}

TEST(ArgumentsTest, TheJobIsBoundRestartedAndEndedAsTheUserSays) {
  EXPECT_EQ(With({"--binding", "core"}).binding, Binding::kCore);
  EXPECT_EQ(With({"--binding", "numa"}).binding, Binding::kNuma);
  EXPECT_EQ(With({"--binding", "none"}).binding, Binding::kNone);
  EXPECT_EQ(With({"--numa-binding", "node"}).binding, Binding::kNuma);
  EXPECT_EQ(With({"--max-restarts", "3"}).max_restarts, 3);
  EXPECT_EQ(With({"--max_restart", "3"}).max_restarts, 3);
  EXPECT_EQ(With({"--grace-period", "0"}).grace_period, absl::ZeroDuration());
  EXPECT_EQ(With({"--grace-period", "2.5"}).grace_period, absl::Milliseconds(2500));
  EXPECT_THAT(With({"--signals-to-handle", "SIGTERM,SIGUSR1,SIGTERM"}).signals_to_pass, ElementsAre(SIGTERM, SIGUSR1));
  EXPECT_THAT(With({"--gpus", "3,1"}).devices, ElementsAre(3, 1));
  EXPECT_THAT(With({"--devices", "0,1,2"}).devices, ElementsAre(0, 1, 2));
}

TEST(ArgumentsTest, VariablesAreExported) {
  const LaunchOptions options = With({"-x", "PATH", "-x", "DEBUG=1", "-x", "EMPTY=", "-x", "A=b=c", "-x", "DEBUG=2"});
  EXPECT_THAT(options.remote.exports, ElementsAre("PATH", "DEBUG", "EMPTY", "A"));
  EXPECT_THAT(options.settings, ElementsAre(Pair("A", "b=c"), Pair("DEBUG", "2"), Pair("EMPTY", "")));
  EXPECT_THAT(options.notes, IsEmpty());
}

TEST(ArgumentsTest, AVariableThatIsNotSetIsNoted) {
  EXPECT_THAT(With({"-x", "PAHT"}).notes, ElementsAre(HasSubstr("-x PAHT has no effect: the variable is not set")));
}

TEST(ArgumentsTest, SecretsOnTheCommandLineAreWarnedAboutAndNotRepeated) {
  for (const std::string name : {"DB_PASSWORD", "my_token", "AWS_SECRET_ID", "API_KEY"}) {
    const LaunchOptions options = With({"-x", name + "=hunter2"}, {.environment = {{name, "1"}}});
    EXPECT_THAT(options.settings, ElementsAre(Pair(name, "hunter2")));
    EXPECT_THAT(options.notes, ElementsAre(AllOf(HasSubstr("export " + name), Not(HasSubstr("hunter2")))));
    EXPECT_THAT(With({"-x", name}, {.environment = {{name, "1"}}}).notes, IsEmpty());
  }
}

struct Setting {
  Words words;
  std::map<std::string, std::string> settings;
};

class SettingTest : public ::testing::TestWithParam<Setting> {};

TEST_P(SettingTest, ReachesTheRanksAsAVariable) {
  const LaunchOptions options = With(GetParam().words);
  EXPECT_EQ(options.settings, GetParam().settings);
  EXPECT_THAT(options.notes, IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(
    All, SettingTest,
    ::testing::Values(Setting{{"--fusion-threshold-mb", "32"}, {{"RONDA_FUSION_THRESHOLD", "32MiB"}}},
                      Setting{{"--fusion-threshold-mb", "0"}, {{"RONDA_FUSION_THRESHOLD", "0MiB"}}},
                      Setting{{"--fusion-threshold-mb", "0.5"}, {{"RONDA_FUSION_THRESHOLD", "524288"}}},
                      Setting{{"--cycle-time-ms", "2.5"}, {{"RONDA_CYCLE_TIME", "2.5ms"}}},
                      Setting{{"--cycle-time-ms", "3600000"}, {{"RONDA_CYCLE_TIME", "1h"}}},
                      Setting{{"--cycle-time-ms", "0"}, {{"RONDA_CYCLE_TIME", "0"}}},
                      Setting{{"--cache-capacity", "16777216"}, {{"RONDA_CACHE_CAPACITY", "16777216"}}},
                      Setting{{"--autotune"}, {{"RONDA_AUTOTUNE", "1"}}},
                      Setting{{"--autotune", "--no-autotune"}, {{"RONDA_AUTOTUNE", "0"}}},
                      Setting{{"--autotune-log-file", "a.csv"}, {{"RONDA_AUTOTUNE_LOG", "a.csv"}}},
                      Setting{{"--autotune-steps-per-sample", "20"}, {{"RONDA_AUTOTUNE_STEPS_PER_SAMPLE", "20"}}},
                      Setting{{"--check-numbers"}, {{"RONDA_CHECK", "100"}}},
                      Setting{{"--check-numbers=20"}, {{"RONDA_CHECK", "20"}}},
                      Setting{{"--timeline-filename", "t.json"}, {{"RONDA_TIMELINE", "t.json"}}},
                      Setting{{"--start-timeout", "1.5"}, {{"RONDA_START_TIMEOUT", "1.5s"}}},
                      Setting{{"--stall-check-warning-time-seconds", "90"}, {{"RONDA_STALL_WARNING", "1m30s"}}},
                      Setting{{"--stall-check-shutdown-time-seconds", "20"}, {{"RONDA_STALL_DEADLINE", "20s"}}},
                      Setting{{"--stall-check-shutdown-time-seconds", "0", "--stall-check-warning-time-seconds", "5"},
                              {{"RONDA_STALL_DEADLINE", "inf"}, {"RONDA_STALL_WARNING", "5s"}}},
                      Setting{{"--stall-check"}, {}},
                      Setting{{"--no-stall-check", "--stall-check-warning-time-seconds", "5"},
                              {{"RONDA_STALL_DEADLINE", "inf"}, {"RONDA_STALL_WARNING", "inf"}}},
                      Setting{{"--no-stall-check", "--stall-check"}, {}},
                      Setting{{"--log-level", "INFO"}, {{"RONDA_LOG_LEVEL", "info"}}},
                      Setting{{"--log-level", "trace"}, {{"RONDA_LOG_LEVEL", "debug"}}},
                      Setting{{"--log-level", "Fatal"}, {{"RONDA_LOG_LEVEL", "error"}}},
                      Setting{{"--network-interfaces", "eth0"}, {{"RONDA_NETWORK_INTERFACE", "eth0"}}},
                      // These options have no effect on one host, where ranks use shared memory.
                      Setting{{"--hierarchical-allreduce"}, {}}, Setting{{"--no-hierarchical-allreduce"}, {}},
                      Setting{{"-H", "a:2,b:2", "--hierarchical-allreduce"}, {}},
                      Setting{{"-H", "a:1,b:1", "--hierarchical-allreduce"}, {{"RONDA_BACKEND", "hierarchical"}}},
                      Setting{{"-H", "a:1,b:1", "--no-hierarchical-allreduce"}, {{"RONDA_BACKEND", "mpi"}}},
                      // Defaults of rondarun.
                      Setting{{"--no-python", "--disable-cache", "--log-without-timestamp", "--log-hide-timestamp"},
                              {}},
                      Setting{{"--timeline-mark-cycles", "--no-torus-allreduce"}, {}},
                      Setting{{"--rdzv-backend", "static", "--rdzv-backend", "c10d", "--run_mode", "collective"}, {}}));

TEST(ArgumentsTest, OptionWithoutEffectIsNotedWithTheReason) {
  const std::vector<std::pair<Words, std::string>> cases = {
      {{"--no-timeline-mark-cycles"}, "cycles marked"},
      {{"--autotune-warmup-samples", "3"}, "way of its own"},
      {{"--autotune-bayes-opt-max-samples", "20"}, "way of its own"},
      {{"--autotune-gaussian-process-noise", "0.8"}, "way of its own"},
      {{"--hierarchical-allgather"}, "--hierarchical-allreduce"},
      {{"--no-hierarchical-allgather"}, "--hierarchical-allreduce"},
      {{"--torus-allreduce"}, "--hierarchical-allreduce"},
      {{"--num-nccl-streams", "2"}, "NCCL"},
      {{"--thread-affinity", "1"}, "--binding core"},
      {{"--mpi-threads-disable"}, "MPI"},
      {{"--no-mpi-threads-disable"}, "MPI"},
      {{"--log-with-timestamp"}, "--prefix-output-with-timestamp"},
      {{"--no-log-hide-timestamp"}, "--prefix-output-with-timestamp"},
      {{"--monitor-interval", "5"}, "in its own way"},
      {{"--start-method", "spawn"}, "in its own way"},
      {{"--role", "trainer"}, "in its own way"},
      {{"--local-ranks-filter", "0"}, "--redirects"},
      {{"--gloo"}, "Ronda does without Gloo"},
      {{"--gloo-timeout-seconds", "30"}, "--start-timeout"},
      {{"--oversubscribe"}, "outnumber the cores"},
      {{"--allow-run-as-root"}, "root may start jobs"},
      {{"--tag-output"}, "its rank and stream"},
      {{"--rdzv-conf", "timeout=3"}, "--start-timeout"},
      {{"--local-addr", "10.0.0.1"}, "--network-interfaces"}};
  for (const auto& [words, reason] : cases) {
    const LaunchOptions options = With(words);
    EXPECT_THAT(options.notes, ElementsAre(AllOf(HasSubstr(words.front() + " has no effect: "), HasSubstr(reason))));
    EXPECT_THAT(options.settings, IsEmpty());
  }
}

// Parses `words` after a --config-file option whose file has this content.
absl::StatusOr<LaunchOptions> Parse(const std::string& content, Words words) {
  words.insert(words.begin(), {"--config-file", "f.yaml"});
  return ParseArguments(words, Sources({.files = {{"f.yaml", content}}}));
}

LaunchOptions FromFile(const std::string& content, const Words& words) {
  const auto options = Parse(content, words);
  EXPECT_TRUE(options.ok()) << options.status();
  return options.value_or(LaunchOptions{});
}

std::string FileErrorOf(const std::string& content, const Words& words) {
  const auto options = Parse(content, words);
  EXPECT_EQ(options.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(options.status().message());
}

TEST(ConfigArgumentsTest, AnOptionalValueIsASwitchToo) {
  EXPECT_EQ(FromFile("monitor: true\nnum-proc: 1", {"x"}).monitor_port, 0);
  EXPECT_EQ(FromFile("monitor: false\nnum-proc: 1", {"x"}).monitor_port, std::nullopt);
  EXPECT_EQ(FromFile("monitor: 9464\nnum-proc: 1", {"x"}).monitor_port, 9464);
}

TEST(ConfigArgumentsTest, AFileCanSayEverythingButTheCommand) {
  const LaunchOptions options = FromFile(R"(
num_proc: 4
hosts: [a:2, b:2]
verbose: true
params: {fusion_threshold_mb: 32, cycle_time_ms: 10, cache_capacity: 2048, hierarchical_allreduce: true}
autotune:
  enabled: true
  log_file: 'log.csv'
  steps_per_sample: 20
timeline:
stall_check: {enabled: true, warning_time_seconds: 120, shutdown_time_seconds: 240}
logging: {level: INFO}
x: [PATH, MODE=fast]
mpi-args: "--mca btl tcp"
)",
                                         {"./train"});
  EXPECT_EQ(options.rank_count, 4);
  EXPECT_THAT(options.hosts, ElementsAre(HostSlots{"a", 2}, HostSlots{"b", 2}));
  EXPECT_TRUE(options.verbose);
  EXPECT_THAT(options.settings,
              ElementsAre(Pair("MODE", "fast"), Pair("RONDA_AUTOTUNE", "1"), Pair("RONDA_AUTOTUNE_LOG", "log.csv"),
                          Pair("RONDA_AUTOTUNE_STEPS_PER_SAMPLE", "20"), Pair("RONDA_BACKEND", "hierarchical"),
                          Pair("RONDA_CACHE_CAPACITY", "2048"), Pair("RONDA_CYCLE_TIME", "10ms"),
                          Pair("RONDA_FUSION_THRESHOLD", "32MiB"), Pair("RONDA_LOG_LEVEL", "info"),
                          Pair("RONDA_STALL_DEADLINE", "4m"), Pair("RONDA_STALL_WARNING", "2m")));
  EXPECT_THAT(options.remote.exports, ElementsAre("PATH", "MODE"));
  EXPECT_THAT(options.remote.mpi_arguments, ElementsAre("--mca", "btl", "tcp"));
  EXPECT_THAT(options.command, ElementsAre("./train"));
}

TEST(ConfigArgumentsTest, HorovodsControllersAreAccepted) {
  EXPECT_EQ(FromFile("controller: mpi\n", {"-np", "2", "x"}).launcher, Launcher::kMpirun);
  EXPECT_THAT(FromFile("controller: gloo\n", {"-np", "2", "x"}).notes, ElementsAre(HasSubstr("--gloo has no effect")));
}

TEST(ConfigArgumentsTest, AListStandsForTwoWords) {
  const FakeMachine machine{.files = {{"e.yaml", "min-np: 1\nblacklist-cooldown-range: [2, 30]\n"}}};
  EXPECT_EQ(With({"--config-file", "e.yaml"}, machine).elastic.value().cooldown->second, absl::Seconds(30));
}

TEST(ConfigArgumentsTest, TheCommandLineWins) {
  EXPECT_EQ(FromFile("np: 4", {"-np", "2", "x"}).rank_count, 2);
  EXPECT_THAT(FromFile("autotune: {enabled: true}", {"-np", "2", "--no-autotune", "x"}).settings,
              ElementsAre(Pair("RONDA_AUTOTUNE", "0")));
  EXPECT_THAT(FromFile("stall_check: {enabled: false}", {"-np", "2", "--stall-check", "x"}).settings, IsEmpty());
}

TEST(ConfigArgumentsTest, EntryThatContradictsTheCommandLineGivesWay) {
  const LaunchOptions options = FromFile("np: 4\nhosts: a:4\n", {"--nproc-per-node", "2", "x"});
  EXPECT_EQ(options.rank_count, 2);
  EXPECT_THAT(options.hosts, IsEmpty());
}

TEST(ConfigArgumentsTest, EntryThatTheCommandLineReplacesIsNotRead) {
  EXPECT_EQ(FromFile("np: many\n", {"-np", "2", "x"}).rank_count, 2);
}

TEST(ConfigArgumentsTest, OptionsThatAddUpComeFromBoth) {
  EXPECT_THAT(FromFile("x: [A=1, B=1]", {"-np", "2", "-x", "B=2", "-x", "C=2", "x"}).settings,
              ElementsAre(Pair("A", "1"), Pair("B", "2"), Pair("C", "2")));
}

TEST(ConfigArgumentsTest, SecretsInAFileAreTheUsersOwnBusiness) {
  EXPECT_THAT(FromFile("x: API_KEY=1", {"-np", "2", "x"}).notes, IsEmpty());
  EXPECT_THAT(FromFile("autotune: {warmup-samples: 3}", {"-np", "2", "x"}).notes, SizeIs(1));
}

TEST(ConfigArgumentsTest, ErrorsNameTheFileTheLineAndTheKey) {
  EXPECT_EQ(FileErrorOf("params:\n  cycle_time_ms: 1ms\n", {"-np", "2", "x"}),
            "f.yaml:2: params.cycle-time-ms: --cycle-time-ms takes a number of milliseconds from 0 to 3600000, for "
            "example --cycle-time-ms 1; got \"1ms\"");
  EXPECT_THAT(FileErrorOf("num-procs: 2\n", {"x"}), HasSubstr("f.yaml:1: num-procs: no such option"));
  EXPECT_THAT(FileErrorOf("a: [1\n", {"x"}), HasSubstr("f.yaml:2: "));
  EXPECT_THAT(FileErrorOf("controller: nccl\n", {"-np", "2", "x"}), HasSubstr("f.yaml:1: controller: takes mpi"));
  EXPECT_THAT(FileErrorOf("np: 2\nnproc-per-node: 2\n", {"x"}), HasSubstr("f.yaml:2: nproc-per-node: -np and"));
}

TEST(ConfigArgumentsTest, AFileThatCannotBeReadIsNamed) {
  const auto options = ParseArguments({"-np", "2", "--config-file", "g.yaml", "x"}, Sources({}));
  EXPECT_EQ(std::string(options.status().message()), "--config-file g.yaml: No such file or directory");
}

TEST(FindJobWordsTest, NameAndCommandAreFoundWithoutOtherFilesAndTheEnvironment) {
  const auto read_file = [](const std::string& path) -> absl::StatusOr<std::string> {
    if (path == "good.yaml") return "name: of-file\n";
    return absl::NotFoundError(path);
  };
  const JobWords words = FindJobWords({"--hostfile", "/dev/fd/63", "--name", "slurmy", "x", "--name", "y"}, read_file);
  EXPECT_EQ(words.name, "slurmy");
  EXPECT_THAT(words.command, ElementsAre("x", "--name", "y"));
  EXPECT_EQ(FindJobWords({"--config-file", "good.yaml", "x"}, read_file).name, "of-file");
  EXPECT_EQ(FindJobWords({"--config-file", "good.yaml", "--job-id", "of-words", "x"}, read_file).name, "of-words");
  EXPECT_EQ(FindJobWords({"--config-file", "gone.yaml", "--name", "of-words", "x"}, read_file).name, "of-words");
  EXPECT_EQ(FindJobWords({"-np", "2", "x"}, read_file).name, "");
  EXPECT_THAT(FindJobWords({"--no-such-option", "x"}, read_file).command, IsEmpty());
}

}  // namespace
}  // namespace ronda
