// SPDX-License-Identifier: Apache-2.0

// Tests operations that only move bytes, on every communicator and in groups of every shape.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <iostream>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/conformance/conformance_suite.h"

namespace ronda::testing {
namespace {

constexpr size_t kLengths[] = {0, 1, 13, 127, 4096, 1'000'003};

// Returns bytes that depend on their position and on `salt`.
std::string Pattern(size_t bytes, int salt) {
  std::string pattern(bytes, '\0');
  for (size_t i = 0; i < bytes; ++i) pattern[i] = static_cast<char>(i * 31 + i / 256 + static_cast<size_t>(salt) * 7);
  return pattern;
}

class ExchangeConformanceTest : public ConformanceTest {
 protected:
  // Runs body(position, members, group, communicator) on every rank, in groups of every shape. `position` is -1 on
  // ranks outside the group.
  template <typename Body>
  void InEveryGroup(const Body& body) {
    for (const Group& group : Groups()) {
      OnEveryRank([&](RankId rank, Transport& transport) {
        body(group.PositionOf(rank).value_or(-1), group.size(), &group, *transport.communicator);
      });
    }
  }

  // Checks one allgather in which member i sends bytes[i] bytes.
  static void CheckAllgather(const std::vector<size_t>& bytes, std::optional<int> receiver, int self,
                             const Group* group, Communicator& communicator) {
    std::string all;
    for (size_t i = 0; i < bytes.size(); ++i) all += Pattern(bytes[i], static_cast<int>(i));
    GuardedBytes input(self < 0 ? "" : Pattern(bytes[self], self));
    const bool receives = self >= 0 && receiver.value_or(self) == self;
    GuardedBytes output(receives ? all.size() : 0);
    ASSERT_EQ(communicator.Allgather({.info = Info("g", group),
                                      .input = input.data(),
                                      .output = receives ? output.data() : nullptr,
                                      .bytes_per_rank = bytes,
                                      .receiver = receiver}),
              absl::OkStatus());
    EXPECT_TRUE(!receives || output.content() == all);
    EXPECT_TRUE(output.IsUntouchedElsewhere());
  }

  // Checks one alltoall. bytes[s * members + r] is the length of the piece from sender s to receiver r.
  static void CheckAlltoall(const std::vector<size_t>& bytes, int self, int members, const Group* group,
                            Communicator& communicator) {
    const auto piece = [&](int sender, int receiver) {
      return Pattern(bytes[sender * members + receiver], sender * 50 + receiver);
    };
    std::string sent;
    std::string expected;
    for (int peer = 0; peer < members && self >= 0; ++peer) {
      sent += piece(self, peer);
      expected += piece(peer, self);
    }
    GuardedBytes input(sent);
    GuardedBytes output(expected.size());
    ASSERT_EQ(communicator.Alltoall({.info = Info("a", group),
                                     .input = self < 0 ? nullptr : input.data(),
                                     .output = self < 0 ? nullptr : output.data(),
                                     .bytes = bytes}),
              absl::OkStatus());
    EXPECT_TRUE(self < 0 || output.content() == expected);
    EXPECT_TRUE(output.IsUntouchedElsewhere());
    EXPECT_TRUE(input.content() == sent && input.IsUntouchedElsewhere());
  }

  static std::vector<size_t> LengthsOf(int members, const std::function<size_t(int)>& length) {
    std::vector<size_t> bytes;
    for (int i = 0; i < members; ++i) bytes.push_back(length(i));
    return bytes;
  }
};

RONDA_CONFORMANCE_SUITE(ExchangeConformanceTest);

TEST_P(ExchangeConformanceTest, BroadcastFromEachRoot) {
  InEveryGroup([](int self, int members, const Group* group, Communicator& communicator) {
    for (size_t bytes : kLengths) {
      for (int root = 0; root<members; root += bytes> 10'000 ? 3 : 1) {
        const std::string sent = Pattern(bytes, root);
        GuardedBytes data(self == root ? sent : std::string(self < 0 ? 0 : bytes, '?'));
        ASSERT_EQ(
            communicator.Broadcast(
                {.info = Info("w", group), .data = self < 0 ? nullptr : data.data(), .bytes = bytes, .root = root}),
            absl::OkStatus());
        EXPECT_TRUE(self < 0 || data.content() == sent) << bytes << " bytes from member " << root;
        EXPECT_TRUE(data.IsUntouchedElsewhere());
      }
    }
  });
}

TEST_P(ExchangeConformanceTest, AllgatherOfEqualLengths) {
  InEveryGroup([](int self, int members, const Group* group, Communicator& communicator) {
    for (size_t bytes : {size_t{0}, size_t{1}, size_t{1000}, size_t{4096}, size_t{50'001}}) {
      CheckAllgather(LengthsOf(members, [&](int) { return bytes; }), std::nullopt, self, group, communicator);
    }
  });
}

TEST_P(ExchangeConformanceTest, AllgatherOfDifferentLengthsToAllOrToOne) {
  InEveryGroup([](int self, int members, const Group* group, Communicator& communicator) {
    const auto odd_members_only = [](int i) { return i % 2 == 0 ? size_t{0} : static_cast<size_t>(i) * 5003; };
    const auto last_member_much = [&](int i) { return i == members - 1 ? size_t{70'001} : static_cast<size_t>(i); };
    for (const std::function<size_t(int)>& length :
         std::vector<std::function<size_t(int)>>{odd_members_only, last_member_much}) {
      const std::vector<size_t> bytes = LengthsOf(members, length);
      CheckAllgather(bytes, std::nullopt, self, group, communicator);
      for (int receiver = 0; receiver < members; ++receiver) {
        CheckAllgather(bytes, receiver, self, group, communicator);
      }
    }
  });
}

TEST_P(ExchangeConformanceTest, AlltoallOfEqualPieces) {
  InEveryGroup([](int self, int members, const Group* group, Communicator& communicator) {
    for (size_t bytes : {size_t{0}, size_t{1}, size_t{13}, size_t{4096}, size_t{20'011}}) {
      CheckAlltoall(LengthsOf(members * members, [&](int) { return bytes; }), self, members, group, communicator);
    }
  });
}

TEST_P(ExchangeConformanceTest, AlltoallOfAnyPieces) {
  const uint64_t seed = std::random_device()();
  std::cout << "seed " << seed << "\n";
  InEveryGroup([&](int self, int members, const Group* group, Communicator& communicator) {
    std::mt19937_64 random(seed);
    for (int round = 0; round < 12; ++round) {
      const auto length = [&](int) { return random() % 3 == 0 ? 0 : random() % (size_t{1} << random() % 16); };
      CheckAlltoall(LengthsOf(members * members, length), self, members, group, communicator);
    }
  });
}

// Tests alltoalls in which only one member sends: a scatter, and a message to the last member.
TEST_P(ExchangeConformanceTest, AlltoallInWhichFewHaveSomethingToSend) {
  InEveryGroup([](int self, int members, const Group* group, Communicator& communicator) {
    for (int root = 0; root < members; ++root) {
      const auto scatter = [&](int i) { return i / members == root ? 9001 + static_cast<size_t>(i % members) : 0; };
      CheckAlltoall(LengthsOf(members * members, scatter), self, members, group, communicator);
      const auto message = [&](int i) { return i == root * members + members - 1 ? size_t{30'000} : 0; };
      CheckAlltoall(LengthsOf(members * members, message), self, members, group, communicator);
    }
  });
}

TEST_P(ExchangeConformanceTest, NoRankPassesABarrierBeforeAllHaveArrived) {
  constexpr int kRounds = 20;
  for (const Group& group : Groups()) {
    std::atomic<int> arrivals{0};
    OnEveryRank([&](RankId rank, Transport& transport) {
      for (int round = 1; round <= kRounds; ++round) {
        if (group.Contains(rank)) arrivals.fetch_add(1);
        ASSERT_EQ(transport.communicator->Barrier(Info("b", &group)), absl::OkStatus());
        EXPECT_TRUE(!group.Contains(rank) || arrivals.load() >= round * group.size());
      }
    });
  }
}

// The members of a group do not wait for ranks outside the group, which can make the call later.
TEST_P(ExchangeConformanceTest, AGroupDoesNotWaitForRanksOutside) {
  if (size() < 4) GTEST_SKIP() << "two groups of two need four ranks";
  const Group first({0, 1});
  const Group second({2, 3});
  std::atomic<int> first_is_done{0};
  OnEveryRank([&](RankId rank, Transport& transport) {
    // The second group's operation is first in call order, but its members call it only when the first group's
    // operation is done.
    if (!first.Contains(rank)) {
      while (first_is_done.load() < first.size()) std::this_thread::yield();
    }
    for (const Group* group : {&second, &first}) {
      std::vector<float> data(500, static_cast<float>(rank));
      const Segment own = {.input = data.data(), .output = data.data(), .count = data.size()};
      const Segment outside = {.count = data.size()};
      ASSERT_EQ(transport.communicator->Reduce(
                    {.info = Info("r", group), .segments = {group->Contains(rank) ? &own : &outside, 1}}),
                absl::OkStatus());
      const float sum = group == &first ? 1 : 5;
      EXPECT_EQ(data, std::vector<float>(500, group->Contains(rank) ? sum : static_cast<float>(rank)));
    }
    if (first.Contains(rank)) first_is_done.fetch_add(1);
  });
}

}  // namespace
}  // namespace ronda::testing
