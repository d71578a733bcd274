// SPDX-License-Identifier: Apache-2.0

#include "tests/conformance/one_rank.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "tests/conformance/random_walk.h"
#include "tests/conformance/reduce_case.h"
#include "tests/conformance/scattered_tensor.h"

namespace ronda::testing {
namespace {

// With the deadline, a call that hangs fails the test with a message.
CallInfo Info(absl::string_view label) { return {.label = label, .limits = {.deadline = absl::Seconds(50)}}; }

void CheckReduction(const ReduceCase& c, const HostMap& hosts, Communicator& communicator) {
  SCOPED_TRACE(ToString(c));
  const int size = communicator.size();
  std::vector<std::string> inputs;
  for (RankId rank = 0; rank < size; ++rank) inputs.push_back(MakeInput(c, rank));
  const RankId self = communicator.rank();
  const bool receives_all = c.receives == Receives::kAll;
  const std::vector<size_t> counts = SegmentCounts(c);
  const ScatteredTensor tensor = receives_all
                                     ? ScatteredTensor(inputs[self], SizeOf(c.dtype), counts, c.placement)
                                     : ScatteredTensor(inputs[self], SizeOf(c.dtype), counts, PartsOf(c, self, size));
  ASSERT_EQ(communicator.Reduce({.info = Info("tensor"),
                                 .segments = tensor.segments(),
                                 .wire = c.wire,
                                 .delivery = receives_all ? ReduceCall::Delivery::kAll : ReduceCall::Delivery::kParts}),
            absl::OkStatus());
  const std::string whole = ExpectedBits(c, inputs, receives_all ? hosts : HostMap());
  EXPECT_TRUE(tensor.Output() == (receives_all ? whole : ReceivedBy(c, whole, self, size)));
  EXPECT_TRUE(tensor.IsUntouchedElsewhere());
}

}  // namespace

void CheckReductions(uint64_t seed, const HostMap& hosts, Communicator& communicator) {
  for (size_t count : {size_t{0}, size_t{1}, size_t{13}, size_t{4096}, size_t{300'001}}) {
    for (WireFormat wire : {WireFormat::kNone, WireFormat::kFloat16, WireFormat::kFp8E4M3}) {
      for (Receives receives : {Receives::kAll, Receives::kRootAll, Receives::kRows, Receives::kAnyPart}) {
        ++seed;
        CheckReduction({.count = count,
                        .wire = wire,
                        .receives = receives,
                        .cut = seed % 2 == 0 ? Cut::kWhole : Cut::kPieces,
                        .placement = seed / 2 % 2 == 0 ? Placement::kInPlace : Placement::kOutOfPlace,
                        .seed = seed},
                       hosts, communicator);
      }
    }
  }
}

void CheckRandomWalk(uint64_t seed, Communicator& communicator) {
  constexpr int kOperations = 400;
  RandomWalk walk(seed, communicator.rank(), communicator);
  for (int i = 0; i < kOperations && !::testing::Test::HasFailure(); ++i) walk.Step();
}

void CheckVotes(uint64_t seed, Communicator& communicator) {
  constexpr int kVotes = 100;
  const int size = communicator.size();
  std::mt19937_64 random(seed);
  for (int i = 0; i < kVotes; ++i) {
    std::vector<float> data(random() % 40'000, 1.0f);
    const RankId vetoing = static_cast<RankId>(random() % 2 == 0 ? random() % static_cast<uint64_t>(size) : size);
    const auto when_late = [] {};
    Ballot ballot = {.own = vetoing == communicator.rank() ? Ballot::Vote::kVeto : Ballot::Vote::kApprove,
                     .when_late = when_late};
    const Segment segment = {.input = data.data(), .output = data.data(), .count = data.size()};
    CallInfo info = Info("vote");
    info.ballot = &ballot;
    ASSERT_EQ(communicator.Reduce({.info = info, .segments = {&segment, 1}}), absl::OkStatus());
    const bool is_vetoed = vetoing < size;
    EXPECT_EQ(ballot.result, is_vetoed ? Ballot::Result::kVetoed : Ballot::Result::kCarriedOut);
    const float expected = is_vetoed ? 1.0f : static_cast<float>(size);
    EXPECT_EQ(data, std::vector<float>(data.size(), expected));
  }
}

}  // namespace ronda::testing
