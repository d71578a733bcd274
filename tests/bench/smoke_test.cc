// SPDX-License-Identifier: Apache-2.0

// Tests the real ronda-bench with minimal settings: it starts its ranks, finds the peer libraries, measures, and writes
// files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "nlohmann/json.hpp"
#include "runtime/base/files.h"
#include "runtime/base/types.h"

namespace ronda::bench {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Json = nlohmann::json;

struct Outcome {
  int exit_code = -1;
  std::string text;  // stdout and stderr
};

Outcome RunProgram(const std::string& program, const std::string& arguments) {
  Outcome outcome;
  std::FILE* const pipe = popen((program + " " + arguments + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return outcome;
  std::array<char, 4096> bytes;
  for (size_t count; (count = std::fread(bytes.data(), 1, bytes.size(), pipe)) > 0;) {
    outcome.text.append(bytes.data(), count);
  }
  const int status = pclose(pipe);
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

Outcome RunTool(const std::string& arguments) { return RunProgram("bench/ronda-bench", arguments); }

std::string Contents(const std::string& path) { return ReadFile(path).value_or(""); }

std::string PathOf(const std::string& name) { return testing::TempDir() + "/" + name; }

// Returns the rows of a JSON file, or no rows if the file is not JSON.
Json RowsOf(const std::string& path) {
  const Json document = Json::parse(Contents(path), nullptr, /*allow_exceptions=*/false);
  EXPECT_TRUE(document.is_object()) << path;
  return document.is_object() ? document.at("rows") : Json::array();
}

int CountOf(const Json& rows, const std::string& field, const Json& value) {
  int count = 0;
  for (const Json& row : rows) count += row.contains(field) && row.at(field) == value ? 1 : 0;
  return count;
}

// Expects that the program has succeeded, and has made `rows` measurements without a wrong element.
void ExpectRows(const Outcome& outcome, const std::string& path, int rows) {
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
  int measured = 0;
  for (const Json& row : RowsOf(path)) measured += row.contains("wrong") ? 1 : 0;
  EXPECT_EQ(measured, rows) << outcome.text;
  EXPECT_EQ(CountOf(RowsOf(path), "wrong", 0), rows) << outcome.text;
}

TEST(SmokeTest, CollectivesOfEveryKindAreRight) {
  const std::string json = PathOf("collectives.json");
  const Outcome outcome =
      RunTool("collectives -np 2 --op all --place in,out -b 4K -e 4K --rounds 1 --block-time 100us --json " + json);
  // Six operations, one of which is measured both in place and out of place, and the barrier make eight cases. Each
  // case is measured in two layers.
  ExpectRows(outcome, json, 16);
  EXPECT_NE(outcome.text.find("#wrong"), std::string::npos) << outcome.text;
}

TEST(SmokeTest, MessagesThatAreTooSmallOrTooLargeAreExplained) {
  const Outcome none = RunTool("collectives -b 0 -e 0");
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_THAT(none.text, HasSubstr("there is nothing to measure: no element fits into --max-bytes (-e)"));
  const Outcome huge = RunTool("collectives -np 1 --layer communicator -b 64T -e 64T");
  EXPECT_NE(huge.exit_code, 0);
  EXPECT_THAT(huge.text,
              HasSubstr("a rank has no memory for a buffer of 64 TiB: choose smaller messages (--max-bytes"));
}

TEST(SmokeTest, IterationsAreThoseOfNcclsTests) {
  const std::string json = PathOf("iterations.json");
  const Outcome outcome =
      RunTool("collectives -np 2 --layer communicator -b 4K -e 16K -n 7 -w 2 --rounds 1 --json " + json);
  ExpectRows(outcome, json, 2);
  EXPECT_EQ(CountOf(RowsOf(json), "iterations", 7), 2) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr("\n# Avg bus bandwidth    : "));
}

TEST(SmokeTest, SeveralNumbersOfRanksAreOneRun) {
  const std::string json = PathOf("ranks.json");
  const Outcome outcome =
      RunTool("collectives -np 1,3 --layer communicator -b 4K -e 4K --rounds 1 --block-time 100us --json " + json);
  ExpectRows(outcome, json, 2);
  for (const int ranks : {1, 3}) {
    EXPECT_NE(outcome.text.find("# " + std::to_string(ranks) + " ranks, started by rondarun"), std::string::npos);
    EXPECT_EQ(CountOf(RowsOf(json), "ranks", ranks), 1);
  }
}

TEST(SmokeTest, BackendsAreInterleaved) {
  const std::string json = PathOf("backends.json");
  const Outcome outcome = RunTool(
      "collectives -np 3 --op all --layer communicator --backend shm,inprocess -b 4K -e 4K --rounds 1 "
      "--block-time 100us --json " +
      json);
  ExpectRows(outcome, json, 2 * 7);
  EXPECT_EQ(CountOf(RowsOf(json), "contestant", "inprocess"), 7);
  const Outcome mistake = RunTool("collectives --backend shm,mpi");
  EXPECT_EQ(mistake.exit_code, 2);
  EXPECT_NE(mistake.text.find("shm, inprocess"), std::string::npos) << mistake.text;
}

TEST(SmokeTest, ABackendOfTheWholeJobHasARunOfItsOwn) {
  setenv("RONDA_MPI_PLUGIN", "runtime/mpi/libronda_mpi.so", 1);
  for (const std::string backend : {"mpi", "tcp"}) {
    const std::string json = PathOf(backend + ".json");
    const Outcome outcome =
        RunTool("collectives -np 2 --backend " + backend + " -b 4K -e 4K --rounds 1 --block-time 100us --json " + json);
    if (outcome.text.find("mpirun.openmpi is not here") != std::string::npos) continue;
    ExpectRows(outcome, json, 2);  // in two layers
    const std::string launcher = backend == "mpi" ? "Open MPI's mpirun" : "rondarun";
    EXPECT_NE(outcome.text.find("started by " + launcher), std::string::npos) << outcome.text;
  }
}

TEST(SmokeTest, EveryDtypeAndWireIsCheckedOnThreeRanks) {
  const std::string json = PathOf("dtypes.json");
  const Outcome outcome = RunTool(
      "collectives -np 3 --dtype all --wire all --layer client -b 3000 -e 3000 --rounds 1 --block-time 100us --json " +
      json);
  // The two 16-bit wire formats apply to two dtypes each, and the two 8-bit formats to four each.
  ExpectRows(outcome, json, kDTypeCount + 2 * 2 + 2 * 4);
}

TEST(SmokeTest, LatencyPrintsAHistogram) {
  const std::string json = PathOf("latency.json");
  const Outcome outcome = RunTool("latency -np 2 --calls 50 --rounds 1 --idle 1ms --json " + json);
  ExpectRows(outcome, json, 2);
  EXPECT_NE(outcome.text.find("####"), std::string::npos) << outcome.text;
  EXPECT_EQ(CountOf(RowsOf(json), "measure", "idle"), 1);
}

TEST(SmokeTest, StartupTimesTheFirstAllreduce) {
  const std::string json = PathOf("startup.json");
  const Outcome outcome = RunTool("startup -np 2 --rounds 1 --peer mpi,mpich --json " + json);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
  for (const char* name : {"ronda", "openmpi", "mpich"}) EXPECT_EQ(CountOf(RowsOf(json), "contestant", name), 1);
  EXPECT_THAT(Contents(json), AllOf(HasSubstr("\"Open MPI v"), HasSubstr("\"MPICH Version")));
}

TEST(SmokeTest, ScaleTakesJobsFromTheirStartToADeath) {
  const std::string json = PathOf("scale.json");
  const Outcome outcome = RunTool("scale -np 2,12 --json " + json);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
  const Json rows = RowsOf(json);
  EXPECT_EQ(CountOf(rows, "kind", "threads"), 2) << outcome.text;
  EXPECT_EQ(CountOf(rows, "kind", "processes"), 2) << outcome.text;
  for (const Json& row : rows) {
    for (const char* field : {"start_s", "negotiated_ms", "locked_ms", "known_s", "ended_s", "cpu_ms", "own_mib"}) {
      EXPECT_GT(row.at(field), 0) << field << " of " << row;
    }
  }
  std::istringstream lines(outcome.text);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_THAT(line, AnyOf(StartsWith("#"), StartsWith(" threads "), StartsWith(" processes ")))
        << "no line of the table";
  }
  const Outcome alone = RunTool("scale -np 1");
  EXPECT_EQ(alone.exit_code, 2);
  EXPECT_THAT(alone.text, HasSubstr("-np"));
}

TEST(SmokeTest, ScaleKeepsTheOutputOfAJobThatFailsBeforeTheDeath) {
  const std::filesystem::path folder = PathOf("scale");
  std::filesystem::create_directories(folder);
  const std::string tool = "TMPDIR=" + folder.string() + " bench/ronda-bench";
  EXPECT_EQ(RunProgram(tool, "scale -np 2").exit_code, 0);
  EXPECT_TRUE(std::filesystem::is_empty(folder)) << "the files of a job that goes as planned";
  const Outcome failed = RunProgram("RONDA_BACKEND=nowhere " + tool, "scale -np 2 --as processes");
  EXPECT_EQ(failed.exit_code, 1);
  const auto kept = std::filesystem::directory_iterator(folder);
  ASSERT_NE(kept, std::filesystem::directory_iterator()) << failed.text;
  const std::string output = kept->path() / "output";
  EXPECT_THAT(failed.text, HasSubstr("ronda-bench: 2 ranks as processes: rank 0 has not come to the end; the end of "
                                     "their output in " +
                                     output + ":\n"));
  EXPECT_THAT(failed.text, HasSubstr("RONDA_BACKEND=\"nowhere\": should be"));
  EXPECT_THAT(Contents(output), HasSubstr("RONDA_BACKEND=\"nowhere\": should be"));
}

TEST(SmokeTest, ElasticKillsRanksAndTimesWhatFollows) {
  const std::string json = PathOf("elastic.json");
  const Outcome outcome = RunTool("elastic -np 3 --kills 2 -b 4KiB --json " + json);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
  const Json rows = RowsOf(json);
  ASSERT_EQ(CountOf(rows, "contestant", "ronda"), 1) << outcome.text;
  EXPECT_EQ(rows[0]["replaced_s"].size(), 2) << outcome.text;
}

TEST(SmokeTest, ElasticTimesStepsThatEndInDifferentWays) {
  const std::string json = PathOf("elastic_steps.json");
  const Outcome outcome =
      RunTool("elastic -np 2 --measure step --compute 0,10us --rounds 2 --steps 10 -b 4KiB --json " + json);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
  const Json rows = RowsOf(json);
  for (const std::string ending : {"nothing", "should_stop()", "step_done()"}) {
    EXPECT_EQ(CountOf(rows, "ending", ending), 2) << outcome.text;
  }
  ASSERT_EQ(rows.size(), 6) << outcome.text;
  EXPECT_EQ(rows[2]["extra_ns"].size(), 2) << outcome.text;
  EXPECT_GT(rows[2]["marks_ns"], 0) << outcome.text;
}

// Runs a real trainer, and predicts from its measurements. advice_test checks the predictions themselves.
TEST(SmokeTest, AdviseRunsATrainerAndPredictsMoreRanks) {
  const std::string json = PathOf("advise.json");
  const std::string trainer = " -- examples/lenet_mnist/lenet_mnist --batch-size 16 --steps 60";
  const Outcome run = RunTool("advise --ranks 2,3 --batch 16 --json " + json + trainer);
  ASSERT_EQ(run.exit_code, 0) << run.text;
  EXPECT_THAT(run.text, AllOf(HasSubstr("# 10 gradients of 0.247 MB in all"), HasSubstr("\n3 ranks: ")));
  const Json rows = RowsOf(json);
  EXPECT_EQ(CountOf(rows, "ranks", 2), 3) << run.text;
  EXPECT_EQ(CountOf(rows, "ranks", 3), 3) << run.text;
  for (const Json& row : rows) {
    EXPECT_GT(row.at("sync_s"), 0) << run.text;
    EXPECT_GE(row.at("step_s"), row.at("compute_s")) << run.text;
  }
  const Outcome link = RunTool("advise --link-gbit 0.01 --link-latency 1ms --csv " + PathOf("link.csv") + trainer);
  ASSERT_EQ(link.exit_code, 0) << link.text;
  EXPECT_THAT(link.text, HasSubstr("16 ranks: ")) << link.text;
}

TEST(SmokeTest, AdviseNamesWhatIsWrongWithAProgram) {
  const Outcome failed = RunTool("advise -- examples/lenet_mnist/lenet_mnist --epochs many");
  EXPECT_EQ(failed.exit_code, 1);
  EXPECT_THAT(failed.text, AllOf(HasSubstr("--epochs many failed alone"), HasSubstr("not \"many\"")));
  const Outcome idle = RunTool("advise -- /bin/true");
  EXPECT_EQ(idle.exit_code, 1);
  EXPECT_THAT(idle.text, HasSubstr("/bin/true has not begun a job of Ronda's"));
  const Outcome none = RunTool("advise --ranks 2");
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_THAT(none.text, HasSubstr("advise needs a program"));
  const Outcome hosts = RunTool("advise --hosts alpha:2,beta:1 -- /bin/true");
  EXPECT_EQ(hosts.exit_code, 2);
  EXPECT_THAT(hosts.text, HasSubstr("as many slots for each host"));
  const Outcome few = RunTool("advise --hosts alpha:2,beta:2 --ranks 2 -- /bin/true");
  EXPECT_THAT(few.text, HasSubstr("--ranks 2 fit on one host of 2 ranks"));
}

class PeerSmokeTest : public testing::TestWithParam<const char*> {};

TEST_P(PeerSmokeTest, APeerIsRightToo) {
  const std::string peer = GetParam();
  const std::string json = PathOf(peer + ".json");
  const Outcome outcome = RunTool(
      "collectives -np 2 --op allreduce,alltoall --layer communicator --dtype float16 -b 2002 -e 2002 --rounds 1 "
      "--block-time 100us --peer " +
      peer + " --json " + json);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
  const Json results = RowsOf(json);
  EXPECT_EQ(CountOf(results, "kind", "peer"), 2) << outcome.text;
  EXPECT_EQ(CountOf(results, "wrong", 0), 4) << outcome.text;
  const Json document = Json::parse(Contents(json));
  EXPECT_EQ(document.at("peers").size(), 1U) << "the peer's version";
  EXPECT_EQ(document.at("busy_cores").size(), 2U);
}

// Each MPI implementation has its own job, because its own launcher must start it.
INSTANTIATE_TEST_SUITE_P(AllPeers, PeerSmokeTest, testing::Values("mpi", "mpich", "gloo"),
                         [](const auto& info) { return std::string(info.param); });

// If the user names a peer that is missing, the run must fail, and its output must not look like a comparison.
TEST(SmokeTest, APeerThatIsMissingIsAnError) {
  const std::filesystem::path folder = PathOf("alone");
  std::filesystem::create_directories(folder);
  const std::string tool = (folder / "ronda-bench").string();
  for (const std::string program : {"bench/ronda-bench", "programs/rondarun/rondarun"}) {
    std::filesystem::copy(program, folder, std::filesystem::copy_options::overwrite_existing);
  }
  for (const std::string arguments : {"collectives --peer gloo", "latency --peer mpi", "startup --peer mpich",
                                      "submission --peer gloo", "step --peer mpi", "elastic --peer torchrun"}) {
    const Outcome outcome = RunProgram(tool, arguments);
    EXPECT_EQ(outcome.exit_code, 1) << arguments << ": " << outcome.text;
    EXPECT_THAT(outcome.text, AllOf(HasSubstr("ronda-bench: --peer "), HasSubstr(": there is no "),
                                    HasSubstr("make install and make deb build it")));
  }
}

TEST(SmokeTest, APeerWhoseLauncherIsAnotherIsAnError) {
  const Outcome outcome = RunProgram("programs/rondarun/rondarun", "-np 1 bench/ronda-bench latency --peer mpi");
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_THAT(outcome.text, HasSubstr("--peer mpi: Open MPI's mpirun has to start Open MPI's ranks"));
}

TEST(SmokeTest, TwoMpisAreRefused) {
  const Outcome outcome = RunTool("collectives --peer mpi,mpich -b 4 -e 4");
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_NE(outcome.text.find("runs of their own"), std::string::npos) << outcome.text;
}

TEST(SmokeTest, SubmissionsOfGroupsOptimizersAndHandlesAreTimed) {
  const std::string json = PathOf("submission.json");
  const Outcome run = RunTool("submission -np 2 --tensors 40 --steps 2 --rounds 1 --json " + json);
  EXPECT_EQ(run.exit_code, 0) << run.text;
  const Json rows = RowsOf(json);
  EXPECT_EQ(CountOf(rows, "contestant", "group"), 1) << run.text;
  EXPECT_EQ(CountOf(rows, "contestant", "optimizer"), 1) << run.text;
  EXPECT_EQ(CountOf(rows, "contestant", "handles"), 1) << run.text;
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
  for (const std::string command : {"collectives", "latency", "submission", "startup", "scale", "elastic", "advise"}) {
    EXPECT_NE(help.text.find("  " + command), std::string::npos) << help.text;
    const Outcome own = RunTool(command + " --help");
    EXPECT_EQ(own.exit_code, 0);
    EXPECT_NE(own.text.find("--json FILE"), std::string::npos) << own.text;
  }
}

TEST(StepSmokeTest, LeNetOnTwoRanksWithInterleavedSettings) {
  const std::string json = PathOf("step.json");
  const Outcome run = RunTool(
      "step -np 2 --preset lenet --compute 0,1ms --wire none,fp8_e4m3 --backend all --lock on "
      "--rounds 1 --steps 2 --warm-up 6 --json " +
      json);
  ASSERT_EQ(run.exit_code, 0) << run.text;
  EXPECT_THAT(run.text, HasSubstr("# lenet: 10 tensors, 61706 elements, 0.2 MB of fp32; 2 ranks"));
  const Json rows = RowsOf(json);
  EXPECT_EQ(CountOf(rows, "contestant", "ronda"), 2 * 2 * 2);
  EXPECT_EQ(CountOf(rows, "wrong", 0), static_cast<int>(rows.size()));
}

TEST(StepSmokeTest, OneRankRunsAlone) {
  const Outcome run = RunTool("step -np 1 --preset lenet --rounds 1 --steps 1 --warm-up 0");
  EXPECT_EQ(run.exit_code, 0) << run.text;
}

TEST(StepSmokeTest, SeveralNumbersOfRanksAreOneRun) {
  const std::string csv = PathOf("ranks.csv");
  const Outcome run = RunTool("step -np 1,2 --preset lenet --rounds 1 --steps 1 --warm-up 0 --csv " + csv);
  ASSERT_EQ(run.exit_code, 0) << run.text;
  EXPECT_THAT(run.text, AllOf(HasSubstr("0.2 MB of fp32; 1 ranks"), HasSubstr("0.2 MB of fp32; 2 ranks")));
  EXPECT_THAT(Contents(csv), AllOf(HasSubstr("lenet,10,61706,246824,1,"), HasSubstr("lenet,10,61706,246824,2,")));
}

TEST(StepSmokeTest, AFileThatIsNoListOfShapesIsAUsageError) {
  const std::string path = PathOf("broken.txt");
  std::ofstream(path) << "weight 3\nbias many\n";
  const Outcome run = RunTool("step --shapes " + path);
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(run.text, HasSubstr(path + ":2: a dimension is a number of 1 or more, not \"many\""));
}

// Creates a report from a real run of ronda-bench.
TEST(ReportSmokeTest, WritesThePageThePicturesAndTheTables) {
  const std::filesystem::path folder = PathOf("report");
  std::filesystem::create_directories(folder);
  const Outcome run = RunTool("collectives -np 2 -b 4K -e 16K --rounds 1 --block-time 100us --json " +
                              (folder / "collectives.json").string());
  ASSERT_EQ(run.exit_code, 0) << run.text;
  const std::filesystem::path page = folder / "results.md";
  std::ofstream(page) << "<!-- results: written by ronda-bench report -->\n<!-- end of results -->\n";
  const std::filesystem::path speed = folder / "speed.svg";
  const Outcome report =
      RunTool("report " + folder.string() + " --markdown " + page.string() + " --speed " + speed.string());
  ASSERT_EQ(report.exit_code, 0) << report.text;
  EXPECT_THAT(report.text, HasSubstr("index.html: 1 runs, 1 figures\n"));
  EXPECT_THAT(Contents(folder / "index.html"), AllOf(HasSubstr("<svg"), HasSubstr("ronda client")));
  EXPECT_THAT(Contents(folder / "bandwidth-allreduce-float32-2-ranks-collectives.svg"), HasSubstr("<svg"));
  EXPECT_THAT(Contents(speed), AllOf(HasSubstr(">Ronda</text>"), HasSubstr("bus bandwidth, GB/s")));
  EXPECT_THAT(Contents(page), HasSubstr("| 16 KiB |"));
}

TEST(ReportSmokeTest, AFolderWithoutResultsIsAnError) {
  const std::filesystem::path folder = PathOf("empty");
  std::filesystem::create_directories(folder);
  const Outcome empty = RunTool("report " + folder.string());
  EXPECT_EQ(empty.exit_code, 1);
  EXPECT_THAT(empty.text, HasSubstr("there is no file *.json in this folder"));
  const Outcome mistake = RunTool("report");
  EXPECT_EQ(mistake.exit_code, 2);
  EXPECT_THAT(mistake.text, HasSubstr("report needs one folder"));
}

}  // namespace
}  // namespace ronda::bench
