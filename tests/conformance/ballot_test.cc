// SPDX-License-Identifier: Apache-2.0

// Tests votes on calls with every communicator. After a veto, the memory of all ranks must be unchanged.
#include <gtest/gtest.h>

#include <atomic>
#include <iostream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/conformance/conformance_suite.h"

namespace ronda::testing {
namespace {

using Vote = Ballot::Vote;
using Result = Ballot::Result;

class BallotConformanceTest : public ConformanceTest {
 protected:
  // Returns reductions with every property that affects the choice of algorithm: sizes around a chunk, partial results,
  // fused or not, in place or not. No case has a narrower wire format, because calls with one never carry a vote
  // (VoteGoesWithData).
  static std::vector<ReduceCase> Cases() {
    std::vector<ReduceCase> cases;
    uint64_t seed = 100;
    for (size_t count : {size_t{0}, size_t{1}, size_t{1000}, size_t{8'011}}) {
      for (DType dtype : {DType::kFloat32, DType::kFloat16, DType::kInt32}) {
        for (Receives receives : {Receives::kAll, Receives::kRows, Receives::kRootAll}) {
          ++seed;
          cases.push_back({.count = count,
                           .dtype = dtype,
                           .receives = receives,
                           .cut = seed % 2 == 0 ? Cut::kWhole : Cut::kPieces,
                           .placement = seed / 2 % 2 == 0 ? Placement::kInPlace : Placement::kOutOfPlace,
                           .seed = seed});
        }
      }
    }
    return cases;
  }

  // Reduces once with `own` as this rank's vote. Expects the result of the case or, after a veto, unchanged memory.
  void Check(const ReduceCase& c, RankId rank, Communicator& communicator, Vote own, Result expected) {
    SCOPED_TRACE(ToString(c));
    const std::string input = MakeInput(c, rank);
    const std::vector<size_t> counts = SegmentCounts(c);
    const bool receives_all = c.receives == Receives::kAll;
    const ScatteredTensor tensor = receives_all
                                       ? ScatteredTensor(input, SizeOf(c.dtype), counts, c.placement)
                                       : ScatteredTensor(input, SizeOf(c.dtype), counts, PartsOf(c, rank, size()));
    const std::string before = tensor.Output();
    const std::vector<Segment> segments = own == Vote::kVeto ? Bufferless(tensor) : tensor.segments();
    const auto when_late = [] { ADD_FAILURE() << "nobody is late"; };
    Ballot ballot = {.own = own, .when_late = when_late};
    ReduceCall call = CallOf(c, Info("tensor"));
    call.info.ballot = &ballot;
    call.segments = segments;
    ASSERT_EQ(communicator.Reduce(call), absl::OkStatus());
    ASSERT_EQ(ballot.result, expected);
    EXPECT_TRUE(tensor.IsUntouchedElsewhere());
    if (expected == Result::kCarriedOut) return;
    EXPECT_TRUE(tensor.Output() == before) << "a vetoed call has written an output";
  }

  // Returns the segments without buffers, for a rank that vetoes because it lacks the tensors.
  static std::vector<Segment> Bufferless(const ScatteredTensor& tensor) {
    std::vector<Segment> segments = tensor.segments();
    for (Segment& segment : segments) segment.input = segment.output = nullptr;
    return segments;
  }

  std::vector<float> AllreduceOnes(RankId rank, Communicator& communicator, size_t count, Ballot& ballot) {
    std::vector<float> data(count, static_cast<float>(rank + 1));
    const Segment segment = {.input = data.data(), .output = data.data(), .count = count};
    CallInfo info = Info("ones");
    info.ballot = &ballot;
    EXPECT_EQ(communicator.Reduce({.info = info, .segments = {&segment, 1}}), absl::OkStatus());
    return data;
  }

  float SumOfRanks() const { return static_cast<float>(size() * (size() + 1) / 2); }
};

RONDA_CONFORMANCE_SUITE(BallotConformanceTest);

TEST_P(BallotConformanceTest, CallThatAllStayInGivesTheSameBitsAsOneWithoutAVote) {
  const ReduceCase cases[] = {{.count = 0, .seed = 1},
                              {.count = 13, .seed = 2},
                              {.count = 8'011, .cut = Cut::kPieces, .seed = 3},
                              {.count = 8'011, .dtype = DType::kFloat16, .cut = Cut::kPieces, .seed = 4},
                              {.count = 8'011, .dtype = DType::kInt32, .placement = Placement::kOutOfPlace, .seed = 5}};
  OnEveryRank([&](RankId rank, Transport& transport) {
    for (const ReduceCase& c : cases) {
      std::vector<std::string> inputs;
      for (RankId member = 0; member < size(); ++member) inputs.push_back(MakeInput(c, member));
      const ScatteredTensor tensor(inputs[rank], SizeOf(c.dtype), SegmentCounts(c), c.placement);
      const auto when_late = [] { ADD_FAILURE() << "nobody is late"; };
      Ballot ballot = {.when_late = when_late, .result = Result::kVetoed};
      ReduceCall call = CallOf(c, Info("tensor"));
      call.info.ballot = &ballot;
      call.segments = tensor.segments();
      ASSERT_EQ(transport.communicator->Reduce(call), absl::OkStatus()) << ToString(c);
      EXPECT_EQ(ballot.result, Result::kCarriedOut);
      EXPECT_EQ(CheckResult(c, inputs, tensor.Output()), "") << ToString(c);
    }
  });
}

// Each rank in turn vetoes a call alone, then all ranks veto one, then none. A vetoed call must not disturb the next
// call.
TEST_P(BallotConformanceTest, OneVetoKeepsTheOutputsOfAllRanks) {
  const std::vector<ReduceCase> cases = Cases();
  OnEveryRank([&](RankId rank, Transport& transport) {
    int turn = 0;
    for (const ReduceCase& c : cases) {
      const int vetoing = turn++ % (size() + 2);  // a rank, or all, or none
      const bool all = vetoing == size();
      const Vote own = all || vetoing == rank ? Vote::kVeto : Vote::kApprove;
      Check(c, rank, *transport.communicator, own, vetoing == size() + 1 ? Result::kCarriedOut : Result::kVetoed);
    }
  });
}

TEST_P(BallotConformanceTest, BarriersVoteToo) {
  OnEveryRank([&](RankId rank, Transport& transport) {
    for (int vetoing = 0; vetoing <= size(); ++vetoing) {
      const auto when_late = [] { ADD_FAILURE() << "nobody is late"; };
      Ballot ballot = {.own = vetoing == rank ? Vote::kVeto : Vote::kApprove, .when_late = when_late};
      CallInfo info = Info("barrier");
      info.ballot = &ballot;
      ASSERT_EQ(transport.communicator->Barrier(info), absl::OkStatus());
      EXPECT_EQ(ballot.result, vetoing == size() ? Result::kCarriedOut : Result::kVetoed);
    }
  });
}

// Makes calls with and without a vote in random order, without pauses. A rank that has vetoed may run ahead and veto
// again before the other ranks have read its first veto.
TEST_P(BallotConformanceTest, RandomVetoesAreSeenByAllRanks) {
  const uint64_t seed = std::random_device()();
  std::cout << "seed " << seed << "\n";
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  constexpr int kCalls = 120;
  OnEveryRank([&](RankId rank, Transport& transport) {
    std::mt19937_64 random(seed);  // all ranks draw the same numbers
    for (int i = 0; i < kCalls && !HasFatalFailure(); ++i) {
      const size_t count = random() % (size_t{1} << (random() % 14));
      const uint64_t vetoing = (random() % 2 == 0 ? random() : 0) & ((uint64_t{1} << size()) - 1);
      const auto when_late = [] {};
      Ballot ballot = {.own = (vetoing >> rank & 1) != 0 ? Vote::kVeto : Vote::kApprove, .when_late = when_late};
      const std::vector<float> data = AllreduceOnes(rank, *transport.communicator, count, ballot);
      ASSERT_EQ(ballot.result, vetoing == 0 ? Result::kCarriedOut : Result::kVetoed) << "call " << i;
      const float expected = vetoing == 0 ? SumOfRanks() : static_cast<float>(rank + 1);
      ASSERT_EQ(data, std::vector<float>(count, expected)) << "call " << i;
    }
  });
}

// Any flag may be missing on any rank, and some calls are vetoed. Small and large calls cover every algorithm of a
// backend.
TEST_P(BallotConformanceTest, FlagsThatAllRanksHaveSubmittedTravelWithTheVote) {
  const uint64_t seed = std::random_device()();
  std::cout << "seed " << seed << "\n";
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  constexpr int kCalls = 200;
  OnEveryRank([&](RankId rank, Transport& transport) {
    std::mt19937_64 random(seed);  // all ranks draw the same numbers
    for (int i = 0; i < kCalls && !HasFatalFailure(); ++i) {
      const size_t count = random() % (size_t{1} << (random() % 14));
      const RankId vetoing = random() % 8 == 0 ? static_cast<RankId>(random() % static_cast<uint64_t>(size())) : -1;
      std::vector<Flags> flags(static_cast<size_t>(size()));
      Flags expected = {.submitted = (1 << kFlagCount) - 1, .raised = 0};
      for (Flags& of_rank : flags) {
        of_rank.submitted = static_cast<uint8_t>(random() % 4 == 0 ? random() & 3 : 3);
        of_rank.raised = static_cast<uint8_t>(random() & random() & of_rank.submitted);
        expected.submitted &= of_rank.submitted;
        expected.raised |= of_rank.raised;
      }
      expected.raised &= expected.submitted;
      const auto when_late = [] {};
      Ballot ballot = {.own = vetoing == rank ? Vote::kVeto : Vote::kApprove,
                       .own_flags = flags[static_cast<size_t>(rank)],
                       .when_late = when_late};
      AllreduceOnes(rank, *transport.communicator, count, ballot);
      ASSERT_EQ(ballot.result, vetoing < 0 ? Result::kCarriedOut : Result::kVetoed) << "call " << i;
      ASSERT_EQ(ballot.flags, vetoing < 0 ? expected : Flags()) << "call " << i << " of " << count << " elements";
    }
  });
}

TEST_P(BallotConformanceTest, FlagsTravelWithBarriersToo) {
  OnEveryRank([&](RankId rank, Transport& transport) {
    for (int lacking = 0; lacking <= size(); ++lacking) {
      const auto when_late = [] { ADD_FAILURE() << "nobody is late"; };
      Ballot ballot = {.own_flags = {.submitted = static_cast<uint8_t>(lacking == rank ? 1 : 3),
                                     .raised = static_cast<uint8_t>(rank == 0 ? 1 : 0)},
                       .when_late = when_late};
      CallInfo info = Info("barrier");
      info.ballot = &ballot;
      ASSERT_EQ(transport.communicator->Barrier(info), absl::OkStatus());
      EXPECT_EQ(ballot.flags, (Flags{.submitted = static_cast<uint8_t>(lacking == size() ? 3 : 1), .raised = 1}));
    }
  });
}

// If a bucket is in GPU memory, a barrier carries the votes on it.
TEST_P(BallotConformanceTest, TensorsAreAdjacentIfTheyAreOnAllRanks) {
  OnEveryRank([&](RankId rank, Transport& transport) {
    for (int apart = 0; apart <= size(); ++apart) {
      for (int moved = 0; moved <= size(); ++moved) {
        const auto when_late = [] { ADD_FAILURE() << "nobody is late"; };
        Ballot ballot = {.own_layout = apart == rank   ? BucketLayout::kAny
                                       : moved == rank ? BucketLayout::kMoved
                                                       : BucketLayout::kAdjacent,
                         .when_late = when_late};
        CallInfo info = Info("barrier");
        info.ballot = &ballot;
        ASSERT_EQ(transport.communicator->Barrier(info), absl::OkStatus());
        const BucketLayout without_apart = moved < size() ? BucketLayout::kMoved : BucketLayout::kAdjacent;
        EXPECT_EQ(ballot.layout, apart < size() ? BucketLayout::kAny : without_apart) << apart << " " << moved;
      }
    }
  });
}

TEST_P(BallotConformanceTest, TensorsOfAVetoedBucketAreNotAdjacent) {
  OnEveryRank([&](RankId rank, Transport& transport) {
    const auto when_late = [] { ADD_FAILURE() << "nobody is late"; };
    Ballot ballot = {.own = rank == size() - 1 ? Vote::kVeto : Vote::kApprove,
                     .own_layout = BucketLayout::kAdjacent,
                     .when_late = when_late};
    CallInfo info = Info("barrier");
    info.ballot = &ballot;
    ASSERT_EQ(transport.communicator->Barrier(info), absl::OkStatus());
    EXPECT_EQ(ballot.layout, BucketLayout::kAny);
  });
}

// The last rank makes its call only after all others have been told that a rank is late. It then vetoes or approves.
TEST_P(BallotConformanceTest, ALongWaitIsReportedOnceAndTheVoteGoesOn) {
  if (size() == 1) GTEST_SKIP() << "nobody to wait for";
  // Some backends connect in their first call, and wait there for all ranks without a vote. So the first call is a
  // barrier that carries no vote.
  OnEveryRank([](RankId, Transport& transport) {
    ASSERT_EQ(transport.communicator->Barrier(Info("first")), absl::OkStatus());
  });
  for (Vote late_vote : {Vote::kVeto, Vote::kApprove}) {
    std::atomic<int> told{0};
    OnEveryRank([&](RankId rank, Transport& transport) {
      const bool is_late = rank == size() - 1;
      while (is_late && told.load() < size() - 1) std::this_thread::yield();
      int times = 0;
      const auto when_late = [&] {
        // This call shows that the callback can use the job's control plane.
        transport.control->RequestUnlock(1);
        told.fetch_add(1);
        ++times;
      };
      Ballot ballot = {.own = is_late ? late_vote : Vote::kApprove, .when_late = when_late};
      CallInfo info = Info("late");
      info.limits.warning = absl::Milliseconds(20);
      info.ballot = &ballot;
      ASSERT_EQ(transport.communicator->Barrier(info), absl::OkStatus());
      EXPECT_EQ(ballot.result, late_vote == Vote::kVeto ? Result::kVetoed : Result::kCarriedOut);
      EXPECT_TRUE(is_late || times == 1) << times;
      std::vector<float> data(100, 1.0f);
      const Segment segment = {.input = data.data(), .output = data.data(), .count = data.size()};
      ASSERT_EQ(transport.communicator->Reduce({.info = Info("after"), .segments = {&segment, 1}}), absl::OkStatus());
      EXPECT_EQ(data, std::vector<float>(100, static_cast<float>(size())));
    });
  }
}

}  // namespace
}  // namespace ronda::testing
