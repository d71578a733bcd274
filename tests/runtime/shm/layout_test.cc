// SPDX-License-Identifier: Apache-2.0

#include "runtime/shm/layout.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace ronda {
namespace {

TEST(FailureRecordTest, IsEmptyAtFirst) {
  const FailureRecord record;
  EXPECT_FALSE(record.IsSet());
  EXPECT_EQ(record.Get(), absl::OkStatus());
}

TEST(FailureRecordTest, FirstFailureStays) {
  FailureRecord record;
  EXPECT_TRUE(record.Set(1, absl::AbortedError("first")));
  EXPECT_FALSE(record.Set(0, absl::InternalError("second")));
  EXPECT_EQ(record.Get(), absl::AbortedError("first"));
}

TEST(FailureRecordTest, LongTextIsCut) {
  FailureRecord record;
  record.Set(0, absl::InternalError(std::string(100000, 'x')));
  const absl::Status failure = record.Get();
  EXPECT_EQ(failure.code(), absl::StatusCode::kInternal);
  EXPECT_GE(failure.message().size(), 1000u);
}

TEST(FailureRecordTest, DeathOfTheWriterIsTakenOver) {
  FailureRecord record;
  // If a rank dies after the compare-and-swap, but before it has written the text, the record keeps 2 + its rank. The
  // value 5 means that rank 3 has died.
  reinterpret_cast<std::atomic<uint32_t>&>(record).store(5);
  EXPECT_FALSE(record.Set(0, absl::InternalError("x")));
  EXPECT_FALSE(record.SetAfterDeathOf(2, 0, "rank 2 died"));
  EXPECT_FALSE(record.IsSet());
  EXPECT_TRUE(record.SetAfterDeathOf(3, 0, "rank 3 died"));
  EXPECT_EQ(record.Get(), absl::UnavailableError("rank 3 died"));
}

TEST(FailureRecordTest, DamageIsReportedAsSuch) {
  FailureRecord record;
  record.Set(0, absl::InternalError("x"));
  // The second 32-bit word of the record is the status code.
  std::memset(reinterpret_cast<char*>(&record) + 4, 0x77, 4);
  EXPECT_EQ(record.Get().code(), absl::StatusCode::kInternal);
  EXPECT_NE(record.Get().message().find("damaged"), absl::string_view::npos);
}

TEST(FailureRecordTest, OneOfManyWritersWinsAndAllReadItsText) {
  FailureRecord record;
  std::atomic<int> winners{0};
  std::vector<std::thread> writers;
  for (int rank = 0; rank < 4; ++rank) {
    writers.emplace_back([&, rank] {
      if (!record.Set(rank, absl::AbortedError(std::string(500, static_cast<char>('a' + rank))))) return;
      winners.fetch_add(1);
      EXPECT_EQ(record.Get().message()[0], 'a' + rank);
    });
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(winners.load(), 1);
  const std::string text(record.Get().message());
  EXPECT_EQ(text, std::string(500, text[0]));
}

}  // namespace
}  // namespace ronda
