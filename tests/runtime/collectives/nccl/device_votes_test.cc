// SPDX-License-Identifier: Apache-2.0

#include "runtime/collectives/nccl/device_votes.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <set>
#include <vector>

#include "tests/testing/fake_cuda/fake_cuda.h"

namespace ronda {
namespace {

using Outcome = OpenVote::Outcome;

class OpenVotesTest : public ::testing::Test {
 protected:
  std::shared_ptr<OpenVote> New() {
    absl::StatusOr<std::shared_ptr<OpenVote>> vote = votes_->New();
    EXPECT_EQ(vote.status(), absl::OkStatus());
    return *std::move(vote);
  }

  // Writes a decision as the device does.
  static void Decide(const OpenVote& vote, uint32_t decision) {
    std::atomic_ref<uint32_t>(*vote.decision()).store(decision);
  }

  testing::FakeCuda cuda_{{.devices = 1}};
  std::shared_ptr<Device> device_ = *Device::Open(cuda_.table(), 0);
  std::unique_ptr<OpenVotes> votes_ = std::make_unique<OpenVotes>(device_);
};

TEST_F(OpenVotesTest, VoteIsOpenUntilTheDeviceDecidesIt) {
  const auto carried_out = New();
  const auto vetoed = New();
  EXPECT_EQ(carried_out->outcome(), Outcome::kOpen);
  Decide(*carried_out, 1);
  EXPECT_EQ(carried_out->outcome(), Outcome::kCarriedOut);
  EXPECT_EQ(vetoed->outcome(), Outcome::kOpen);
  Decide(*vetoed, 2);
  EXPECT_EQ(vetoed->outcome(), Outcome::kVetoed);
}

TEST_F(OpenVotesTest, NothingIsAllocatedOnceAsManyAreInUseAsEverWere) {
  const auto hold_and_decide = [&] {
    std::vector<std::shared_ptr<OpenVote>> held;
    for (int i = 0; i < 100; ++i) {
      held.push_back(New());
      EXPECT_EQ(held.back()->outcome(), Outcome::kOpen);
    }
    for (const auto& vote : held) Decide(*vote, 1);
  };
  hold_and_decide();
  const size_t allocations = cuda_.allocations();
  for (int round = 0; round < 3; ++round) hold_and_decide();
  EXPECT_EQ(cuda_.allocations(), allocations);
}

TEST_F(OpenVotesTest, VoteThatTheDeviceHasStillToDecideIsNotHandedOutAgain) {
  uint32_t* const undecided = New()->decision();
  for (int i = 0; i < 10; ++i) {
    const auto vote = New();
    EXPECT_NE(vote->decision(), undecided);
    Decide(*vote, 1);
  }
  std::atomic_ref<uint32_t>(*undecided).store(2);
  std::set<uint32_t*> later;
  for (int i = 0; i < 20; ++i) {
    const auto vote = New();
    EXPECT_EQ(vote->outcome(), Outcome::kOpen);
    later.insert(vote->decision());
    Decide(*vote, 1);
  }
  EXPECT_EQ(later.count(undecided), 1u);
}

TEST_F(OpenVotesTest, VoteOutlivesItsPool) {
  const auto vote = New();
  votes_.reset();
  device_.reset();
  Decide(*vote, 1);
  EXPECT_EQ(vote->outcome(), Outcome::kCarriedOut);
}

}  // namespace
}  // namespace ronda
