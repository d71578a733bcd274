#include "runtime/launch/host_facts.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ronda {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

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
  EXPECT_THAT(Parse("shm_size=1=2\r"), ElementsAre(Pair("shm_size", "1=2")));
  EXPECT_THAT(Parse("mpi="), ElementsAre(Pair("mpi", "")));
}

TEST(HostFactsTest, WhatALoginShellPrintsIsLeftOut) {
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
