// SPDX-License-Identifier: Apache-2.0

#include "runtime/shm/epoch_search.h"

#include <optional>
#include <string>

#include "gtest/gtest.h"

namespace ronda {
namespace {

TEST(EpochSearchTest, EpochsOfAJobHaveNamesOfTheirOwn) {
  EXPECT_EQ(ShmNameOf("j", 0), "/ronda-j");
  EXPECT_EQ(ShmNameOf("j", 12), "/ronda-j@12");
  for (const int64_t epoch : {0, 1, 12, 999'999'999}) {
    EXPECT_EQ(EpochInLink("/dev/shm" + ShmNameOf("j", epoch), "j"), epoch);
    EXPECT_EQ(EpochInLink("/dev/shm" + ShmNameOf("j", epoch) + " (deleted)", "j"), epoch);
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

}  // namespace
}  // namespace ronda
