// The real program, with the smallest of everything: it starts its ranks, finds its peers, measures, and writes files.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "tests/bench/json_check.h"

namespace ronda::bench {
namespace {

struct Outcome {
  int exit_code = -1;
  std::string text;  // stdout and stderr
};

Outcome RunTool(const std::string& arguments) {
  Outcome outcome;
  std::FILE* const pipe = popen(("bench/ronda-bench " + arguments + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return outcome;
  std::array<char, 4096> bytes;
  for (size_t count; (count = std::fread(bytes.data(), 1, bytes.size(), pipe)) > 0;) {
    outcome.text.append(bytes.data(), count);
  }
  const int status = pclose(pipe);
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

std::string ContentsOf(const std::string& path) {
  std::ifstream file(path);
  std::stringstream contents;
  contents << file.rdbuf();
  return contents.str();
}

std::string JsonPath(const std::string& name) { return testing::TempDir() + "/" + name + ".json"; }

int CountOf(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// That the run went well, and that its JSON holds `rows` measurements whose results were right.
void ExpectRows(const Outcome& outcome, const std::string& json_path, int rows) {
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
  const std::string json = ContentsOf(json_path);
  EXPECT_EQ(FindJsonError(json), "") << json;
  EXPECT_EQ(CountOf(json, "\"wrong\":0"), rows) << json << outcome.text;
  EXPECT_EQ(CountOf(json, "\"wrong\":"), rows) << json;
}

TEST(SmokeTest, CollectivesOfEveryKindAreRight) {
  const std::string json = JsonPath("collectives");
  const Outcome outcome =
      RunTool("collectives -np 2 --op all --place in,out -b 4K -e 4K --rounds 1 --block-time 100us --json " + json);
  // Six operations, one of them in two places, and the barrier; in two layers.
  ExpectRows(outcome, json, 16);
  EXPECT_NE(outcome.text.find("#wrong"), std::string::npos) << outcome.text;
}

TEST(SmokeTest, SeveralNumbersOfRanksAreOneRun) {
  const std::string json = JsonPath("ranks");
  const Outcome outcome =
      RunTool("collectives -np 1,3 --layer communicator -b 4K -e 4K --rounds 1 --block-time 100us --json " + json);
  ExpectRows(outcome, json, 2);
  for (const char* ranks : {"1", "3"}) {
    EXPECT_NE(outcome.text.find(std::string("# ") + ranks + " ranks, started by rondarun"), std::string::npos);
    EXPECT_EQ(CountOf(ContentsOf(json), std::string("\"ranks\":") + ranks + ","), 1) << ContentsOf(json);
  }
}

TEST(SmokeTest, BackendsTakeTurns) {
  const std::string json = JsonPath("backends");
  const Outcome outcome = RunTool(
      "collectives -np 3 --op all --layer communicator --backend shm,inprocess -b 4K -e 4K --rounds 1 "
      "--block-time 100us --json " +
      json);
  ExpectRows(outcome, json, 2 * 7);
  EXPECT_EQ(CountOf(ContentsOf(json), "\"contestant\":\"inprocess\""), 7);
  const Outcome mistake = RunTool("collectives --backend shm,mpi");
  EXPECT_EQ(mistake.exit_code, 2);
  EXPECT_NE(mistake.text.find("shm, inprocess"), std::string::npos) << mistake.text;
}

TEST(SmokeTest, ABackendOfTheWholeJobHasARunOfItsOwn) {
  setenv("RONDA_MPI_PLUGIN", "runtime/mpi/libronda_mpi.so", 1);
  for (const std::string backend : {"mpi", "tcp"}) {
    const std::string json = JsonPath(backend + "-job");
    const Outcome outcome =
        RunTool("collectives -np 2 --backend " + backend + " -b 4K -e 4K --rounds 1 --block-time 100us --json " + json);
    if (outcome.text.find("mpirun.openmpi is not here") != std::string::npos) continue;
    ExpectRows(outcome, json, 2);  // in two layers
    const std::string launcher = backend == "mpi" ? "Open MPI's mpirun" : "rondarun";
    EXPECT_NE(outcome.text.find("started by " + launcher), std::string::npos) << outcome.text;
  }
}

TEST(SmokeTest, EveryDtypeAndWireIsCheckedOnThreeRanks) {
  const std::string json = JsonPath("dtypes");
  const Outcome outcome = RunTool(
      "collectives -np 3 --dtype all --wire all --layer client -b 3000 -e 3000 --rounds 1 --block-time 100us --json " +
      json);
  // Seven dtypes; 16-bit wires for two of them, 8-bit ones for four.
  ExpectRows(outcome, json, 7 + 2 * 2 + 2 * 4);
}

TEST(SmokeTest, LatencyPrintsAHistogram) {
  const std::string json = JsonPath("latency");
  const Outcome outcome = RunTool("latency -np 2 --calls 50 --rounds 1 --idle 1ms --json " + json);
  ExpectRows(outcome, json, 2);
  EXPECT_NE(outcome.text.find("####"), std::string::npos) << outcome.text;
  EXPECT_EQ(CountOf(ContentsOf(json), "\"measure\":\"idle\""), 1);
}

TEST(SmokeTest, StartupTimesTheFirstAllreduce) {
  const std::string json = JsonPath("startup");
  const Outcome outcome = RunTool("startup -np 2 --rounds 1 --json " + json);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
  EXPECT_EQ(FindJsonError(ContentsOf(json)), "");
  EXPECT_EQ(CountOf(ContentsOf(json), "\"contestant\":\"ronda\""), 1);
}

class PeerSmokeTest : public testing::TestWithParam<const char*> {};

TEST_P(PeerSmokeTest, APeerIsRightTooOrNamed) {
  const std::string peer = GetParam();
  const std::string json = JsonPath(peer);
  const Outcome outcome = RunTool(
      "collectives -np 2 --op allreduce,alltoall --layer communicator --dtype float16 -b 2K -e 2K --rounds 1 "
      "--block-time 100us --peer " +
      peer + " --json " + json);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
  const bool is_missing = outcome.text.find("cannot be used here") != std::string::npos;
  const std::string results = ContentsOf(json);
  EXPECT_EQ(CountOf(results, "\"kind\":\"peer\""), is_missing ? 0 : 2) << outcome.text;
  EXPECT_EQ(CountOf(results, "\"wrong\":0"), is_missing ? 2 : 4) << outcome.text;
}

// Each MPI in a job of its own, as their launchers have to start it.
INSTANTIATE_TEST_SUITE_P(AllPeers, PeerSmokeTest, testing::Values("mpi", "mpich", "gloo"),
                         [](const auto& info) { return std::string(info.param); });

TEST(SmokeTest, TwoMpisAreRefused) {
  const Outcome outcome = RunTool("collectives --peer mpi,mpich -b 4 -e 4");
  if (outcome.text.find("cannot be used here") != std::string::npos) GTEST_SKIP() << outcome.text;
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_NE(outcome.text.find("runs of their own"), std::string::npos) << outcome.text;
}

TEST(SmokeTest, MistakesAreUsageErrors) {
  for (const char* arguments :
       {"", "nonsense", "collectives --nonsense", "collectives -b 8 -e 4", "latency -np 0", "startup --peer horovod"}) {
    const Outcome outcome = RunTool(arguments);
    EXPECT_EQ(outcome.exit_code, 2) << arguments << ": " << outcome.text;
    EXPECT_NE(outcome.text.find("usage: ronda-bench"), std::string::npos) << outcome.text;
  }
}

TEST(SmokeTest, HelpExplainsEveryCommand) {
  const Outcome help = RunTool("--help");
  EXPECT_EQ(help.exit_code, 0);
  for (const std::string command : {"collectives", "latency", "startup"}) {
    EXPECT_NE(help.text.find("  " + command), std::string::npos) << help.text;
    const Outcome own = RunTool(command + " --help");
    EXPECT_EQ(own.exit_code, 0);
    EXPECT_NE(own.text.find("--json FILE"), std::string::npos) << own.text;
  }
}

}  // namespace
}  // namespace ronda::bench
