#include "client/session.h"

#include <memory>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tests/testing/run_ranks.h"

namespace ronda {
namespace {

std::unique_ptr<Runtime> Join(RankId rank, int size, Transport transport) {
  return Runtime::Create({}, {.rank = rank, .size = size, .local_rank = rank, .local_size = size},
                         std::move(transport));
}

TEST(SessionTest, BarriersOfSeveralThreadsMeetThoseThatOneThreadMakesInTurn) {
  static constexpr int kRounds = 10;
  testing::RunRanks(2, [](RankId rank, Transport transport) {
    Session session(Join(rank, 2, std::move(transport)));
    const auto wait = [&session](int times) {
      for (int i = 0; i < times; ++i) {
        const auto barrier = session.SubmitBarrier();
        ASSERT_TRUE(barrier.ok()) << barrier.status();
        EXPECT_TRUE((*barrier)->Wait().ok());
      }
    };
    if (rank == 0) {
      std::thread other(wait, kRounds);
      wait(kRounds);
      other.join();
    } else {
      wait(2 * kRounds);
    }
    EXPECT_TRUE(session.runtime().Shutdown().ok());
  });
}

TEST(SessionTest, TooManyBarriersAtOnceAreRefusedWithoutLosingCount) {
  testing::RunRanks(2, [](RankId rank, Transport transport) {
    Session session(Join(rank, 2, std::move(transport)));
    std::vector<std::shared_ptr<Handle>> barriers;
    if (rank == 0) {
      // Rank 1 does not take part in barriers before it has seen this tensor: until then none completes.
      for (uint64_t i = 0; i < Session::kConcurrentBarriers; ++i) barriers.push_back(*session.SubmitBarrier());
      EXPECT_EQ(session.SubmitBarrier().status().code(), absl::StatusCode::kAlreadyExists);
    }
    float go = 0;
    const auto started =
        session.runtime().Submit({.name = "go", .op = OpType::kBroadcast, .shape = {}, .output = &go, .root = 0});
    ASSERT_TRUE((*started)->Wait().ok());
    while (barriers.size() < Session::kConcurrentBarriers) barriers.push_back(*session.SubmitBarrier());
    for (const auto& barrier : barriers) EXPECT_TRUE(barrier->Wait().ok());
    EXPECT_TRUE((*session.SubmitBarrier())->Wait().ok());
    EXPECT_TRUE(session.runtime().Shutdown().ok());
  });
}

}  // namespace
}  // namespace ronda
