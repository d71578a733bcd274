// SPDX-License-Identifier: Apache-2.0

// Tests how a process reads the state of ranks in other processes. Tests create some of the ranks themselves; others
// are in real jobs.
#include "programs/monitor/jobs/rank_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/ronda.hpp"
#include "runtime/base/unique_fd.h"
#include "runtime/monitor/flight_recorder.h"
#include "runtime/monitor/rank_meter.h"
#include "runtime/monitor/summary_file.h"
#include "tests/testing/await.h"
#include "tests/testing/process_world.h"

namespace ronda {
namespace {

using testing::Await;
using testing::ExpectRankProgramSucceeds;
using testing::ForkedChild;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Returns a job id that no other test process uses.
std::string OwnJob(absl::string_view name) { return absl::StrCat("rank-reader-test-", name, "-", getpid()); }

class RankReaderTest : public ::testing::Test {
 protected:
  static std::unique_ptr<RankMeter> MakeRank(const std::string& job) {
    return RankMeter::Create({.job = job, .topology = {.rank = 1, .size = 4, .local_size = 4, .hostname = "node"}});
  }
  static void CarryOut(RankMeter& rank, FlightTime begin) {
    rank.EnterBucket(begin, begin);
    rank.LeaveBucket({.tensors = 2, .payload_bytes = 100, .wire_bytes = 50}, begin + absl::Microseconds(1));
  }
};

TEST_F(RankReaderTest, FindsARankAndReadsItsWords) {
  const std::string job = OwnJob("words");
  const auto rank = MakeRank(job);
  CarryOut(*rank, absl::Microseconds(10));
  CarryOut(*rank, absl::Microseconds(20));
  rank->EnterBucket(absl::Microseconds(30), absl::Microseconds(30));
  const auto found = FindRanks(OfJob(job));
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0]->identity().topology.rank, 1);
  EXPECT_EQ(found[0]->identity().topology.size, 4);
  EXPECT_EQ(found[0]->identity().topology.hostname, "node");
  EXPECT_EQ(found[0]->identity().process.pid, getpid());
  EXPECT_TRUE(found[0]->IsAlive());
  const RankSample sample = found[0]->Read();
  EXPECT_EQ(sample.counts.tensors, 4u);
  EXPECT_EQ(sample.counts.wire_bytes, 100u);
  EXPECT_EQ(sample.buckets, 3u);
  EXPECT_EQ(sample.current, 3u);
  EXPECT_EQ(sample.current_since, absl::Microseconds(30));
  EXPECT_EQ(sample.entries, (std::vector<BucketEntry>{{.bucket = 1, .time = 10'000, .left = 11'000},
                                                      {.bucket = 2, .time = 20'000, .left = 21'000},
                                                      {.bucket = 3, .time = 30'000}}));
  EXPECT_FALSE(sample.last.has_value()) << "this rank has no flight recorder in a file";
}

TEST_F(RankReaderTest, ChildrenOfARankAreNoRanks) {
  const std::string job = OwnJob("children");
  const auto rank = MakeRank(job);
  ForkedChild child([](const ForkedChild::SayReady& say_ready) -> std::string {
    say_ready();
    pause();
    return "";
  });
  child.WaitUntilReady();
  const auto found = FindRanks(OfJob(job));
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0]->identity().process.pid, getpid());
}

TEST_F(RankReaderTest, StoppedRankCanBeReadAndAKilledOneLeavesNothingButItsReaders) {
  const std::string job = OwnJob("stopped");
  ForkedChild child([&](const ForkedChild::SayReady& say_ready) -> std::string {
    const auto rank = MakeRank(job);
    CarryOut(*rank, absl::Microseconds(10));
    say_ready();
    pause();
    return "";
  });
  child.WaitUntilReady();
  child.Kill(SIGSTOP);
  siginfo_t info;
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child.pid()), &info, WSTOPPED | WNOWAIT), 0);
  const auto found = FindRanks(OfJob(job));
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(ReadProcessStat(child.pid())->state, 'T');
  EXPECT_EQ(ReadProcessStat(child.pid())->parent, getpid());
  EXPECT_EQ(found[0]->Read().counts.tensors, 2u);
  child.Kill(SIGKILL);
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child.pid()), &info, WEXITED | WNOWAIT), 0);
  EXPECT_FALSE(found[0]->IsAlive());
  EXPECT_EQ(found[0]->Read().counts.tensors, 2u) << "the last counts stay with the reader";
  EXPECT_THAT(FindRanks(OfJob(job)), IsEmpty());
}

TEST_F(RankReaderTest, ReadsTheWordsThatARankHasLeft) {
  const SummaryFile file;
  auto rank = MakeRank("left");
  CarryOut(*rank, absl::Microseconds(10));
  rank.reset();
  const std::vector<std::string> words = file.Read();
  ASSERT_THAT(words, SizeIs(1));
  const auto reader = RankReader::OfFinalWords(words[0]);
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ((*reader)->identity().job, "left");
  EXPECT_EQ((*reader)->identity().topology.rank, 1);
  EXPECT_EQ((*reader)->Read().counts.tensors, 2u);
  EXPECT_FALSE((*reader)->IsAlive());
  EXPECT_THAT((*reader)->Events(), IsEmpty());
  EXPECT_EQ(RankReader::OfFinalWords(words[0].substr(1)).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(RankReader::OfFinalWords("").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(RankReaderTest, NamesOfTensorsAreFitForATerminal) {
  const std::string job = OwnJob("names");
  constexpr size_t kBytes = sizeof(FlightRecorder);
  const UniqueFd file(memfd_create("recorder", MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(file.get(), kBytes), 0);
  void* const base = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  ASSERT_NE(base, MAP_FAILED);
  (new (base) FlightRecorder)->Record(FlightKind::kSubmitted, OpType::kAllreduce, "a\x1b[2J\nb", 4);
  const auto rank = RankMeter::Create({.job = job, .recorder = {.descriptor = file.get(), .offset = 0}});
  const auto found = FindRanks(OfJob(job));
  ASSERT_THAT(found, SizeIs(1));
  const RankSample sample = found[0]->Read();
  ASSERT_TRUE(sample.last.has_value());
  EXPECT_EQ(sample.last->name, "a?[2J?b");
  munmap(base, kBytes);
}

TEST_F(RankReaderTest, RankThatHasItsFileOpenTwiceIsOne) {
  const std::string job = OwnJob("twice");
  const auto rank = MakeRank(job);
  const auto found = FindRanks(OfJob(job));
  ASSERT_THAT(found, SizeIs(1));
  const auto again = found[0]->OpenToWrite();
  ASSERT_TRUE(again.ok());
  EXPECT_THAT(FindRanks(OfJob(job)), SizeIs(1));
}

TEST_F(RankReaderTest, JobInAnyEpochIsThatOfOneName) {
  const RankFilter is_one = OfJobInAnyEpoch("a");
  for (const std::string job : {"a", "a@1", "a@999999999"}) EXPECT_TRUE(is_one({.job = job})) << job;
  for (const std::string job : {"b", "ab", "ab@1", "a@", "a@0", "a@01", "a@ 1", "a@-1", "a@x", "a@1@2", "@1", ""}) {
    EXPECT_FALSE(is_one({.job = job})) << job;
  }
}

// The file has the content that an older version of the library would write.
TEST_F(RankReaderTest, ShorterWordsOfAnotherLayoutAreRefusedByTheirVersion) {
  const auto words = std::make_unique<RankWords>();
  words->magic = RankWords::kMagic;
  words->version = 1;
  const UniqueFd file(memfd_create(kRankFileName, MFD_CLOEXEC));
  ASSERT_EQ(write(file.get(), words.get(), 1000), 1000);
  EXPECT_THAT(std::string(RankReader::Open(getpid(), file.get()).status().message()),
              HasSubstr("the rank's library keeps its counters in layout 1, and this program reads layout"));
}

TEST_F(RankReaderTest, WordsOfAnotherLayoutAreRefused) {
  const auto words = std::make_unique<RankWords>();
  words->bytes = sizeof(RankWords);
  std::strcpy(words->job, "j");
  const auto check = [&](size_t bytes = sizeof(RankWords)) {
    return std::string(CheckRankWords(*words, bytes).message());
  };
  EXPECT_THAT(check(), HasSubstr("not the words of a rank"));
  words->magic = RankWords::kMagic;
  EXPECT_EQ(check(), "");
  EXPECT_THAT(check(8), HasSubstr("not the words of a rank"));
  EXPECT_THAT(check(sizeof(RankWords) - 1), HasSubstr("bytes of words"));
  words->version = RankWords::kVersion + 1;
  EXPECT_THAT(check(), HasSubstr(absl::StrCat("this program reads layout ", RankWords::kVersion,
                                              ": use the program that came with that library")));
  words->version = RankWords::kVersion;
  words->rank = 1;
  EXPECT_THAT(check(), HasSubstr("rank 1 of 1"));
  words->rank = 0;
  std::strcpy(words->job, "a\x1b[2J");
  EXPECT_THAT(check(), HasSubstr("bytes that no name has"));
  std::memset(words->job, 'x', sizeof(words->job));
  EXPECT_EQ(check(), "") << "a text without an end is its bytes";
}

// -- Real jobs --

constexpr int kSteps = 20;

void Step() {
  float value = 1;
  allreduce(tensor("gradient", &value), {Op::Sum});
}

// Rank 0 stops rank 1, so that all others wait for it, and reads its state.
void LooksAtAStoppedRank() {
  init();
  for (int i = 0; i < kSteps; ++i) Step();
  barrier();
  if (rank() == 0) {
    const auto ranks = FindRanks(OfJob(std::getenv("RONDA_JOB_ID")));
    ASSERT_THAT(ranks, SizeIs(size()));
    const RankReader& other = *ranks[1];
    const pid_t pid = other.identity().process.pid;
    ASSERT_EQ(kill(pid, SIGSTOP), 0);
    EXPECT_TRUE(Await([&] { return ReadProcessStat(pid)->state == 'T'; }));
    const RankSample sample = other.Read();
    EXPECT_GE(sample.counts.steps, static_cast<uint64_t>(kSteps - 1));
    EXPECT_GE(sample.counts.tensors, static_cast<uint64_t>(kSteps));
    EXPECT_GE(sample.counts.schedules_begun, 1u);
    ASSERT_TRUE(sample.last.has_value()) << "its flight recorder lies in the job's memory";
    // Buckets have the same numbers on all ranks, and no rank has left a bucket that another has not entered.
    const RankSample own = ranks[0]->Read();
    EXPECT_LE(own.buckets, sample.buckets + 1);
    kill(pid, SIGCONT);
  }
  Step();
  shutdown();
}

TEST(RanksOfAJob, CanBeReadWhileStopped) { ExpectRankProgramSucceeds("looks_at_a_stopped_rank", 3); }

// Returns whether a rank has completed `tensors` tensors, has submitted the next one, and is waiting for other ranks.
bool Waits(const RankReader& rank, uint64_t tensors) {
  const RankSample sample = rank.Read();
  if (sample.counts.tensors != tensors || !sample.last.has_value()) return false;
  return sample.last->kind == FlightKind::kReported || sample.last->kind == FlightKind::kStarted;
}

// Rank 1 is late: it enters each bucket when the other rank is already waiting there. The records must show that rank 1
// was later.
void OneIsLate() {
  init();
  barrier();  // all are there to be found
  const auto found = FindRanks(OfJob(std::getenv("RONDA_JOB_ID")));
  ASSERT_THAT(found, SizeIs(2));
  for (uint64_t i = 1; i <= kSteps; ++i) {
    if (rank() == 1) {
      ASSERT_TRUE(Await([&] { return Waits(*found[0], i); }));
    }
    Step();
  }
  barrier();
  if (rank() == 0) {
    const auto ranks = FindRanks(OfJob(std::getenv("RONDA_JOB_ID")));
    ASSERT_THAT(ranks, SizeIs(2));
    const auto first = ranks[0]->Read().entries, second = ranks[1]->Read().entries;
    ASSERT_GT(first.size(), static_cast<size_t>(kSteps));
    ASSERT_GT(second.size(), static_cast<size_t>(kSteps));
    for (size_t i = 1; i <= kSteps; ++i) {
      ASSERT_EQ(first[i].bucket, second[i].bucket);
      EXPECT_GT(second[i].time, first[i].time) << "bucket " << first[i].bucket;
    }
  }
  barrier();
  shutdown();
}

// Each process opens the other's file, as readers briefly do. It must not be mistaken for the rank whose file it opens.
void OpensTheOthersFile() {
  init();
  barrier();
  const auto ranks = FindRanks(OfJob(std::getenv("RONDA_JOB_ID")));
  ASSERT_THAT(ranks, SizeIs(2));
  const absl::StatusOr<UniqueFd> file = ranks[static_cast<size_t>(1 - rank())]->OpenToWrite();
  ASSERT_TRUE(file.ok()) << file.status();
  barrier();
  EXPECT_THAT(FindRanks(OfJob(std::getenv("RONDA_JOB_ID"))), SizeIs(2));
  barrier();
  shutdown();
}

// The processes are ranks of two jobs, one after the other.
void BeginsAgain() {
  init();
  for (uint64_t i = 1; i <= kSteps; ++i) Step();
  const auto before = FindRanks(OfJob(std::getenv("RONDA_JOB_ID")));
  ASSERT_THAT(before, SizeIs(2));
  const RankReader& own = *before[static_cast<size_t>(rank())];
  EXPECT_TRUE(own.IsAlive());
  shutdown();
  EXPECT_FALSE(own.IsAlive()) << "the rank has ended, and its process has not";
  const uint64_t tensors = own.Read().counts.tensors;
  EXPECT_GE(tensors, static_cast<uint64_t>(kSteps)) << "its last words";
  init();
  barrier();  // all are there to be found
  const auto after = FindRanks(OfJob(std::getenv("RONDA_JOB_ID")));
  ASSERT_THAT(after, SizeIs(2));
  EXPECT_LT(after[static_cast<size_t>(rank())]->Read().counts.tensors, tensors) << "a new rank's";
  EXPECT_EQ(own.Read().counts.tensors, tensors);
  barrier();
  shutdown();
}

TEST(RanksOfAJob, IsFoundOnceWhereOthersHaveItsFileOpen) { ExpectRankProgramSucceeds("opens_the_others_file", 2); }

TEST(RanksOfAJob, ProcessThatBeginsAgainHasNewWords) { ExpectRankProgramSucceeds("begins_again", 2); }

TEST(RanksOfAJob, LateRankHasTheLaterEntryNegotiatedAndScheduled) {
  ExpectRankProgramSucceeds("one_is_late", 2);
  ExpectRankProgramSucceeds("one_is_late", 2, {.env = {{"RONDA_LOCK_AFTER", "0"}}});
}

}  // namespace
}  // namespace ronda

int main(int argc, char** argv) {
  return ronda::testing::RankProgramMain(argc, argv,
                                         {{"looks_at_a_stopped_rank", ronda::LooksAtAStoppedRank},
                                          {"opens_the_others_file", ronda::OpensTheOthersFile},
                                          {"begins_again", ronda::BeginsAgain},
                                          {"one_is_late", ronda::OneIsLate}});
}
