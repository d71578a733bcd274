// SPDX-License-Identifier: Apache-2.0

#include "runtime/shm/epoch_search.h"

#include <optional>
#include <string>

#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace ronda {
namespace {

TEST(EpochSearchTest, EpochsOfAJobHaveNamesOfTheirOwn) {
  EXPECT_EQ(ShmNameOf("j", 0), "/ronda-j");
  EXPECT_EQ(ShmNameOf("j", 12), "/ronda-j@12");
  for (const int64_t epoch : {0, 1, 12, 999'999'999}) {
    EXPECT_EQ(EpochInLink("/dev/shm" + ShmNameOf("j", epoch), "j"), epoch);
    EXPECT_EQ(EpochInLink("/dev/shm" + ShmNameOf("j", epoch) + " (deleted)", "j"), epoch);
    EXPECT_EQ(EpochInLink("/memfd:ronda-shm" + ShmNameOf("j", epoch) + " (deleted)", "j"), epoch);
    EXPECT_EQ(EpochInLink("/var/tmp" + ShmNameOf("j", epoch), "j"), epoch);
  }
}

TEST(EpochSearchTest, MemoryOfAnotherJobHasNoEpoch) {
  for (const char* target : {"", "/dev/null", "socket:[17]", "/dev/shm/ronda-", "/dev/shm/ronda-jj",
                             "/dev/shm/ronda-j-0", "/dev/shm/ronda-i@1", "/dev/shm/ronda-j@", "/dev/shm/ronda-j@-1",
                             "/dev/shm/ronda-j@1x", "/dev/shm/ronda-j@1@2", "/tmp/ronda-j@1/x"}) {
    EXPECT_EQ(EpochInLink(target, "j"), std::nullopt) << target;
  }
}

// Returns how often all ranks of a job together search for the newest epoch in their first `seconds` of waiting.
int LooksOf(int size, int seconds) {
  const absl::Time end = absl::UnixEpoch() + absl::Seconds(seconds);
  int looks = 0;
  for (int rank = 0; rank < size; ++rank) {
    EpochSearch search("no-such-job", 0, {.rank = rank, .size = size}, absl::UnixEpoch());
    for (; search.next() <= end; ++looks) search.LookIfDue(search.next());
  }
  return looks;
}

TEST(EpochSearchTest, ManyRanksTakeTurns) {
  EXPECT_GE(LooksOf(2, 10), 2 * 5) << "few ranks look every two seconds";
  EXPECT_LE(LooksOf(1000, 10), 85) << "120 milliseconds between two looks of a thousand ranks";
  EXPECT_GE(LooksOf(1000, 10), 75);
}

// If a job starts slowly, its ranks wait for about a second. Each search for the newest epoch costs several system
// calls per process on the host.
TEST(EpochSearchTest, LooksOfTheFirstSecondDoNotGrowWithTheNumberOfRanks) {
  for (const int size : {32, 64, 128, 256}) EXPECT_LE(LooksOf(size, 1), 40) << size;
}

}  // namespace
}  // namespace ronda
