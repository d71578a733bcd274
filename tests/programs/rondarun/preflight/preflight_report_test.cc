// SPDX-License-Identifier: Apache-2.0

#include "programs/rondarun/preflight/preflight_report.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ronda {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;

ProbedHost Host(const std::string& name) {
  return {.host = name,
          .slots = 2,
          .facts = {{"version", "0.4.0"},
                    {"address", "10.0.0.1"},
                    {"port", "4000"},
                    {"cores", "2"},
                    {"numa", "1"},
                    {"memory", "8589934592"},
                    {"mpi", "Open MPI 4.1.4"}}};
}

ProbedHost HostWith(const std::string& name, const std::string& fact, const std::string& value) {
  ProbedHost host = Host(name);
  host.facts[fact] = value;
  return host;
}

TEST(PreflightReportTest, OneHostIsALineOfItsFacts) {
  const PreflightReport report = MakePreflightReport({Host("localhost")});
  EXPECT_EQ(report.text,
            "host       Ronda  address   cores/nodes  memory  MPI             GPUs  CUDA  NCCL  clock\n"
            "localhost  0.4.0  10.0.0.1  2/1          8 GiB   Open MPI 4.1.4  -     -     -     same\n"
            "\n"
            "this host can run a job\n");
  EXPECT_THAT(report.problems, IsEmpty());
}

TEST(PreflightReportTest, HostsThatAreAlikeCanRunAJobTogether) {
  const PreflightReport report = MakePreflightReport({Host("h1"), Host("h2"), Host("h3")});
  EXPECT_THAT(report.problems, IsEmpty());
  EXPECT_THAT(report.text, AllOf(HasSubstr("these 3 hosts can run a job together\n"), Not(HasSubstr("note"))));
}

TEST(PreflightReportTest, TheOddOneIsNamed) {
  const PreflightReport report = MakePreflightReport({Host("h1"), HostWith("h2", "version", "0.3.0"), Host("h3")});
  EXPECT_THAT(report.problems, ElementsAre("h2 has Ronda 0.3.0, the others 0.4.0"));
  EXPECT_THAT(report.text, HasSubstr("problem: h2 has Ronda 0.3.0, the others 0.4.0\n1 problem\n"));
}

TEST(PreflightReportTest, OfTwoThatDifferBothAreNamed) {
  EXPECT_THAT(MakePreflightReport({Host("h1"), HostWith("h2", "mpi", "MPICH 4.0.2")}).problems,
              ElementsAre("h2 has MPICH 4.0.2, h1 Open MPI 4.1.4"));
}

TEST(PreflightReportTest, SeveralOddOnesShareALine) {
  EXPECT_THAT(
      MakePreflightReport({HostWith("h1", "version", "1"), HostWith("h2", "version", "2"), Host("h3"), Host("h4")})
          .problems,
      ElementsAre("h1 has Ronda 1, h2 has Ronda 2, the others 0.4.0"));
}

TEST(PreflightReportTest, MpiIsNeededByAllOfSeveralHostsOrNone) {
  ProbedHost bare = Host("h2");
  bare.facts.erase("mpi");
  EXPECT_THAT(MakePreflightReport({bare}).problems, IsEmpty()) << "one host needs none";
  EXPECT_THAT(MakePreflightReport({Host("h1"), bare, Host("h3")}).problems,
              ElementsAre("h2 has no MPI, the others Open MPI 4.1.4"));
  const PreflightReport without = MakePreflightReport({bare, bare});
  EXPECT_THAT(without.problems, IsEmpty());
  EXPECT_THAT(without.text, HasSubstr("note: there is no MPI: ranks are started over ssh"));
}

TEST(PreflightReportTest, ThePluginForMpiIsNeededByAllOfSeveralHostsOrNone) {
  const ProbedHost bare = HostWith("h2", "no_mpi_plugin", "Ronda's MPI plugin cannot be loaded");
  EXPECT_THAT(MakePreflightReport({bare}).problems, IsEmpty()) << "one host needs none";
  EXPECT_THAT(MakePreflightReport({Host("h1"), bare, Host("h3")}).problems,
              ElementsAre("h2: Ronda's MPI plugin cannot be loaded"));
  const PreflightReport without = MakePreflightReport({bare, bare});
  EXPECT_THAT(without.problems, IsEmpty());
  EXPECT_THAT(without.text, HasSubstr("note: no host has the plugin for its MPI: ranks are started over ssh, and hosts "
                                      "exchange data over TCP; h2: Ronda's MPI plugin cannot be loaded\n"));
}

TEST(PreflightReportTest, RanksThatAgentsStartNeedNoMpi) {
  ProbedHost without = Host("h2");
  without.facts.erase("mpi");
  const ProbedHost bare = HostWith("h3", "no_mpi_plugin", "Ronda's MPI plugin cannot be loaded");
  const PreflightReport report = MakePreflightReport({Host("h1"), without, bare}, Starters::kSsh);
  EXPECT_THAT(report.problems, IsEmpty());
  EXPECT_THAT(report.text, Not(HasSubstr("note: ")));
  EXPECT_THAT(MakePreflightReport({bare, bare}, Starters::kSsh).text, Not(HasSubstr("note: ")));
}

TEST(PreflightReportTest, ThePluginForSeveralHostsIsNeededByEach) {
  const ProbedHost bare = HostWith("h2", "no_hosts_plugin", "libgrpc++.so.1.51 is missing");
  EXPECT_THAT(MakePreflightReport({bare}).problems, IsEmpty());
  EXPECT_THAT(MakePreflightReport({bare, bare}).problems,
              ElementsAre("h2: libgrpc++.so.1.51 is missing", "h2: libgrpc++.so.1.51 is missing"));
}

TEST(PreflightReportTest, AHostThatCannotBeAskedIsNamedWithTheReason) {
  ProbedHost lost = {.host = "h2", .status = absl::UnavailableError("Permission denied (publickey).")};
  const PreflightReport report = MakePreflightReport({Host("h1"), lost});
  EXPECT_THAT(report.problems, ElementsAre("h2 cannot be asked: Permission denied (publickey)."));
  EXPECT_THAT(report.text, HasSubstr("\nh2    (no answer)"));
  EXPECT_THAT(MakePreflightReport({lost}).text, HasSubstr("1 problem\n"));
}

TEST(PreflightReportTest, HostsThatDoNotReachEachOtherAreNamed) {
  ProbedHost host = Host("h1");
  host.unreached = {{.host = "h2 (10.0.0.2)", .reason = "cannot connect: No route to host"}};
  EXPECT_THAT(MakePreflightReport({host, Host("h2")}).problems,
              ElementsAre("h1 does not reach h2 (10.0.0.2): cannot connect: No route to host"));
}

TEST(PreflightReportTest, AnAddressIsNeededByHostsThatAreNotAlone) {
  const ProbedHost host = HostWith("h1", "no_address", "there is no interface ib0");
  EXPECT_THAT(MakePreflightReport({host}).problems, IsEmpty());
  EXPECT_THAT(MakePreflightReport({host, Host("h2")}).problems,
              ElementsAre("h1 has no address for the others: there is no interface ib0"));
}

TEST(PreflightReportTest, OtherDifferencesAreNotesOnly) {
  ProbedHost host = HostWith("h2", "gpus", "7 x NVIDIA H200");
  host.slots = 3;
  const PreflightReport report =
      MakePreflightReport({HostWith("h1", "gpus", "8 x NVIDIA H200"), host, HostWith("h3", "gpus", "8 x NVIDIA H200")});
  EXPECT_THAT(report.problems, IsEmpty());
  EXPECT_THAT(report.text, AllOf(HasSubstr("note: h2 has 7 x NVIDIA H200, the others 8 x NVIDIA H200\n"),
                                 HasSubstr("note: h2 has fewer cores (2) than ranks (3)\n")));
}

TEST(PreflightReportTest, AClockThatIsWrongIsANote) {
  ProbedHost fast = Host("h1"), slow = Host("h2"), unsure = Host("h3");
  fast.clock_skew = absl::Seconds(90);
  slow.clock_skew = absl::Seconds(-2);
  slow.clock_precision = absl::Milliseconds(2);
  unsure.clock_skew = absl::Seconds(2);
  unsure.clock_precision = absl::Seconds(3);
  const PreflightReport report = MakePreflightReport({fast, slow, unsure});
  EXPECT_THAT(report.problems, IsEmpty());
  EXPECT_THAT(report.text,
              AllOf(HasSubstr("note: the clock of h1 is 1m30s fast\n"), HasSubstr("note: the clock of h2 is 2s slow\n"),
                    HasSubstr("+90000 ms\n"), HasSubstr("-2000 ms\n"), Not(HasSubstr("clock of h3"))));
}

HostFacts Parse(const std::string& line) {
  HostFacts facts;
  ParseFact(line, &facts);
  return facts;
}

TEST(HostFactsTest, AreALineEach) {
  EXPECT_EQ(FormatFacts({{"cores", "2"}, {"mpi", "Open MPI 4.1.4"}}), "cores=2\nmpi=Open MPI 4.1.4\n");
}

TEST(HostFactsTest, LineBreaksCannotMakeFacts) {
  EXPECT_EQ(FormatFacts({{"mpi", "a\nversion=9\r"}}), "mpi=a version=9 \n");
}

TEST(HostFactsTest, AreReadAsTheyWereWritten) {
  EXPECT_THAT(Parse("gpus=8 x NVIDIA H200"), ElementsAre(Pair("gpus", "8 x NVIDIA H200")));
  EXPECT_THAT(Parse("memory=1=2\r"), ElementsAre(Pair("memory", "1=2")));
  EXPECT_THAT(Parse("mpi="), ElementsAre(Pair("mpi", "")));
}

TEST(HostFactsTest, OutputOfALoginShellIsLeftOut) {
  for (const char* line : {"", "Welcome to h2!", "Last login: Mon = Tue", "PATH=/bin", "."}) {
    EXPECT_THAT(Parse(line), IsEmpty()) << line;
  }
}

TEST(HostFactsTest, AFactThatIsAbsentIsEmptyAndNoNumber) {
  const HostFacts facts = {{"cores", "2"}, {"mpi", "none"}};
  EXPECT_EQ(FactOr(facts, "cores"), "2");
  EXPECT_EQ(FactOr(facts, "nccl"), "");
  EXPECT_EQ(NumberOf(facts, "cores"), 2);
  EXPECT_EQ(NumberOf(facts, "nccl"), 0);
  EXPECT_EQ(NumberOf(facts, "mpi"), 0);
}

}  // namespace
}  // namespace ronda
