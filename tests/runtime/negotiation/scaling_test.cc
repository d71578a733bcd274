// SPDX-License-Identifier: Apache-2.0

// Tests that the sizes of a report and of a response list do not grow with the number of ranks. So a rank other than
// rank 0 sends and receives bytes only for its own tensors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>

#include "runtime/negotiation/messages.h"
#include "runtime/negotiation/reporter.h"
#include "tests/runtime/negotiation/negotiator_driver.h"

namespace ronda {
namespace {

constexpr int kTensors = 100;
constexpr size_t kCacheCapacity = 1024;

// A large job. Unless a test says otherwise, all ranks submit the same tensors at the same time.
class LargeJob {
 public:
  explicit LargeJob(int ranks) : negotiator_({.world_size = ranks, .cache_capacity = kCacheCapacity}) {
    ResponseList first;
    first.settings = {.cache_capacity = kCacheCapacity};
    for (RankId rank = 0; rank < ranks; ++rank) {
      reporters_.push_back(std::make_unique<Reporter>(Reporter::Options{.rank = rank, .world_size = ranks}));
      EXPECT_TRUE(reporters_.back()->Apply(first).ok());
    }
  }

  // Makes every rank submit, carries the messages in both directions, and returns the bytes of the largest report and
  // of the list.
  std::pair<size_t, size_t> Step(const std::function<void(RankId, Reporter*)>& submit) {
    size_t largest = 0;
    for (RankId rank = 0; rank < static_cast<RankId>(reporters_.size()); ++rank) {
      submit(rank, reporters_[rank].get());
      const std::string bytes = Encode(reporters_[rank]->TakeReport());
      largest = std::max(largest, bytes.size());
      EXPECT_TRUE(negotiator_.Add(rank, *DecodeRankReport(bytes, kCacheCapacity), kStart).ok());
    }
    last_ = negotiator_.TakeResponses();
    const std::string bytes = Encode(last_);
    for (const auto& reporter : reporters_)
      EXPECT_TRUE(reporter->Apply(*DecodeResponseList(bytes, kCacheCapacity)).ok());
    return {largest, bytes.size()};
  }

  const ResponseList& last() const { return last_; }

 private:
  Negotiator negotiator_;
  std::vector<std::unique_ptr<Reporter>> reporters_;
  ResponseList last_;
};

void SubmitGradients(RankId, Reporter* reporter) {
  for (int i = 0; i < kTensors; ++i) reporter->Submit(Allreduce("gradient" + std::to_string(i)));
}

// Submits all gradients. Each rank starts with a different gradient.
void SubmitGradientsInAnotherOrder(RankId rank, Reporter* reporter) {
  for (int i = 0; i < kTensors; ++i) {
    reporter->Submit(Allreduce("gradient" + std::to_string((i + rank) % kTensors)));
  }
}

TEST(Scaling, StepsCostTheSameBytesInAnyJob) {
  LargeJob small(2), large(500);
  EXPECT_EQ(small.Step(SubmitGradients), large.Step(SubmitGradients)) << "the first step";
  EXPECT_EQ(small.Step(SubmitGradients), large.Step(SubmitGradients)) << "a cached step";
  EXPECT_EQ(small.Step(SubmitGradientsInAnotherOrder), large.Step(SubmitGradientsInAnotherOrder));
}

TEST(Scaling, CachedStepIsAFewBytesInWhateverOrder) {
  LargeJob job(50);
  job.Step(SubmitGradients);
  const auto [report, list] = job.Step(SubmitGradientsInAnotherOrder);
  EXPECT_LE(report, 8u);
  EXPECT_LE(list, 24u);
}

TEST(Scaling, OneNewTensorCostsItselfAlone) {
  LargeJob job(50);
  job.Step(SubmitGradients);
  const auto [cached_report, cached_list] = job.Step(SubmitGradients);
  const auto [report, list] = job.Step([](RankId rank, Reporter* reporter) {
    SubmitGradients(rank, reporter);
    reporter->Submit(Allreduce("new"));
  });
  const size_t request = Encode(Report({Allreduce("new")})).size();
  EXPECT_LE(report, cached_report + request);
  EXPECT_LE(list, cached_list + request + 16);
}

// In a large job, a rank number takes a byte or two more, but the lists of ranks do not grow.
TEST(Scaling, ErrorsJoinsAndProcessSetsNameRangesOfRanks) {
  constexpr size_t kSlack = 16;
  LargeJob small(4), large(500);
  const auto same = [&](const std::function<std::function<void(RankId, Reporter*)>(int ranks)>& submit) {
    const auto [small_report, small_list] = small.Step(submit(4));
    const auto [large_report, large_list] = large.Step(submit(500));
    EXPECT_LE(large_report, small_report + kSlack);
    EXPECT_LE(large_list, small_list + kSlack);
  };
  same([](int) {
    return [](RankId rank, Reporter* reporter) { reporter->Submit(Allreduce("bad", {rank == 1 ? 4 : 3})); };
  });
  EXPECT_EQ(large.last().errors.at(0).ranks.size(), 500u);
  same([](int ranks) {
    return [ranks](RankId, Reporter* reporter) {
      std::vector<RankId> members;
      for (RankId member = 1; member < ranks; ++member) members.push_back(member);
      reporter->Submit(AddSet(members));
    };
  });
  same([](int) {
    return [](RankId rank, Reporter* reporter) {
      if (rank > 1) reporter->Submit(JoinOf());
      if (rank <= 1) reporter->Submit(Allreduce("a"));
    };
  });
  EXPECT_EQ(large.last().buckets.at(0).joined.size(), 498u);
}

}  // namespace
}  // namespace ronda
