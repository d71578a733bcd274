// SPDX-License-Identifier: Apache-2.0

#include "tests/conformance/random_walk.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ronda::testing {
namespace {

constexpr auto kNobodyIsLate = [] {};

}  // namespace

void RandomWalk::Step() {
  DrawGroup();
  DrawBallot();
  count_ = random_() % (size_t{1} << (random_() % 17));
  value_ = static_cast<int32_t>(random_() % 1000);
  switch (random_() % 5) {
    case 0:
      return Reduce();
    case 1:
      return Broadcast();
    case 2:
      return Allgather();
    case 3:
      return Alltoall();
    default:
      return Barrier();
  }
}

void RandomWalk::DrawGroup() {
  std::vector<RankId> ranks;
  const uint64_t bits = random_() % 3 == 0 ? ~uint64_t{0} : random_();
  for (RankId rank = 0; rank < communicator_.size(); ++rank) {
    if ((bits >> rank & 1) != 0) ranks.push_back(rank);
  }
  if (ranks.empty()) ranks.push_back(value_ % communicator_.size());
  group_.emplace(ranks);
  self_ = group_->PositionOf(rank_).value_or(-1);
  names_group_ = group_->size() < communicator_.size() || random_() % 2 == 0;
}

void RandomWalk::DrawBallot() {
  ballot_.reset();
  somebody_leaves_ = false;
  if (names_group_ || random_() % 2 == 0) return;
  const auto ranks = static_cast<uint64_t>(communicator_.size());
  const uint64_t leaver = random_() % (2 * ranks);
  somebody_leaves_ = leaver < ranks;
  const bool leaves = leaver == static_cast<uint64_t>(rank_);
  ballot_.emplace(Ballot{.own = leaves ? Ballot::Vote::kVeto : Ballot::Vote::kApprove, .when_late = kNobodyIsLate});
}

CallInfo RandomWalk::Info(absl::string_view label) const {
  return {.label = label, .group = names_group_ ? &*group_ : nullptr, .limits = {.deadline = absl::Seconds(50)}};
}

CallInfo RandomWalk::InfoWithBallot(absl::string_view label) {
  CallInfo info = Info(label);
  if (ballot_.has_value()) info.ballot = &*ballot_;
  return info;
}

bool RandomWalk::IsVetoedAsDrawn() const {
  const bool vetoed = ballot_.has_value() && ballot_->result == Ballot::Result::kVetoed;
  EXPECT_EQ(vetoed, somebody_leaves_);
  return vetoed;
}

void RandomWalk::Barrier() {
  ASSERT_EQ(communicator_.Barrier(InfoWithBallot("s")), absl::OkStatus());
  IsVetoedAsDrawn();
}

void RandomWalk::Reduce() {
  const int members = group_->size();
  std::vector<int32_t> data(count_, value_ + self_);
  std::vector<int32_t> part(count_, -1);
  const bool has_parts = random_() % 2 == 0;
  const size_t begin = has_parts && self_ >= 0 ? count_ * self_ / members : 0;
  const size_t end = has_parts && self_ >= 0 ? count_ * (self_ + 1) / members : 0;
  Segment segment = {.input = data.data(), .output = has_parts ? part.data() : data.data(), .count = count_};
  segment.part_begin = begin;
  segment.part_count = end - begin;
  if (self_ < 0 || (ballot_.has_value() && ballot_->own == Ballot::Vote::kVeto)) segment = {.count = count_};
  const auto part_of = [&](size_t, int member) {
    const size_t first = count_ * member / members;
    return PartRange{.begin = first, .count = count_ * (member + 1) / members - first};
  };
  const ReduceCall::PartOf known_parts = part_of;
  ASSERT_EQ(communicator_.Reduce({.info = InfoWithBallot("r"),
                                  .segments = {&segment, 1},
                                  .dtype = DType::kInt32,
                                  .delivery = has_parts ? ReduceCall::Delivery::kParts : ReduceCall::Delivery::kAll,
                                  .part_of = has_parts && count_ % 2 == 0 ? &known_parts : nullptr}),
            absl::OkStatus());
  if (IsVetoedAsDrawn()) {
    EXPECT_EQ(data, std::vector<int32_t>(count_, value_ + self_));
    EXPECT_EQ(part, std::vector<int32_t>(count_, -1));
    return;
  }
  if (self_ < 0) return;
  const int32_t sum = members * value_ + members * (members - 1) / 2;
  if (has_parts) {
    data.assign(part.begin(), part.begin() + static_cast<ptrdiff_t>(end - begin));
  }
  EXPECT_EQ(data, std::vector<int32_t>(has_parts ? end - begin : count_, sum));
}

void RandomWalk::Broadcast() {
  const int root = value_ % group_->size();
  std::vector<int32_t> data(count_, value_ + self_);
  ASSERT_EQ(communicator_.Broadcast({.info = Info("b"),
                                     .data = self_ < 0 ? nullptr : data.data(),
                                     .bytes = sizeof(int32_t) * count_,
                                     .root = root}),
            absl::OkStatus());
  EXPECT_EQ(data, std::vector<int32_t>(count_, value_ + (self_ < 0 ? self_ : root)));
}

void RandomWalk::Allgather() {
  std::vector<size_t> bytes;
  std::string all;
  for (int member = 0; member < group_->size(); ++member) {
    bytes.push_back(random_() % (count_ + 1));
    all.append(bytes.back(), static_cast<char>(value_ + member));
  }
  const std::string input(self_ < 0 ? 0 : bytes[self_], static_cast<char>(value_ + self_));
  std::string output(all.size(), '?');
  ASSERT_EQ(communicator_.Allgather(
                {.info = Info("g"), .input = input.data(), .output = output.data(), .bytes_per_rank = bytes}),
            absl::OkStatus());
  EXPECT_TRUE(output == (self_ < 0 ? std::string(all.size(), '?') : all));
}

void RandomWalk::Alltoall() {
  const int members = group_->size();
  std::vector<size_t> bytes;
  for (int i = 0; i < members * members; ++i) bytes.push_back(random_() % 2 == 0 ? 0 : random_() % (count_ + 1));
  const auto piece = [&](int sender, int receiver) {
    return std::string(bytes[sender * members + receiver], static_cast<char>(value_ + sender * 16 + receiver));
  };
  std::string input;
  std::string expected;
  for (int peer = 0; peer < members && self_ >= 0; ++peer) {
    input += piece(self_, peer);
    expected += piece(peer, self_);
  }
  std::string output(expected.size(), '?');
  ASSERT_EQ(communicator_.Alltoall({.info = Info("a"), .input = input.data(), .output = output.data(), .bytes = bytes}),
            absl::OkStatus());
  EXPECT_TRUE(output == expected);
}

}  // namespace ronda::testing
