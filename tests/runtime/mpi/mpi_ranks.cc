// SPDX-License-Identifier: Apache-2.0

// The program that each rank of mpirun_test runs: mpi_ranks PLUGIN open_mpi|mpich SEED [gtest's arguments].
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "runtime/collectives/messages/message_communicator.h"
#include "runtime/mpi/mpi_session.h"
#include "tests/conformance/one_rank.h"

namespace ronda::testing {
namespace {

// State that all tests of the process share, because MPI can be started and ended only once.
struct Program {
  std::shared_ptr<MpiSession> session;
  uint64_t seed = 0;
};

Program& Self() {
  static auto* const program = new Program;
  return *program;
}

std::vector<RankId> AllRanks() {
  std::vector<RankId> ranks(static_cast<size_t>(Self().session->size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

std::unique_ptr<PointToPoint> Connect(const std::vector<RankId>& ranks, int tag = 0) {
  absl::StatusOr<std::unique_ptr<PointToPoint>> messages = Self().session->Connect(ranks, tag);
  EXPECT_TRUE(messages.ok()) << messages.status();
  return messages.ok() ? *std::move(messages) : nullptr;
}

std::unique_ptr<Communicator> ConnectCommunicator() {
  MessageCommunicator::Options options = {.messages = Connect(AllRanks())};
  for (RankId rank : AllRanks()) options.peers.push_back({.rank = rank, .host = "here", .pid = rank});
  options.flights = std::make_shared<FlightBoard>(Self().session->size());
  options.job_failure = [] { return absl::OkStatus(); };
  return std::make_unique<MessageCommunicator>(std::move(options));
}

void AwaitAll(PointToPoint& messages, std::vector<PointToPoint::Request> requests) {
  for (;;) {
    const absl::StatusOr<bool> is_complete = messages.Test(absl::MakeSpan(requests));
    ASSERT_TRUE(is_complete.ok()) << is_complete.status();
    if (*is_complete) return;
  }
}

TEST(MpiSessionRanks, KnowTheirRankAndTheLibrary) {
  const MpiSession& session = *Self().session;
  EXPECT_GE(session.rank(), 0);
  EXPECT_LT(session.rank(), session.size());
  EXPECT_TRUE(absl::StrContains(session.library(), "Open MPI v") || absl::StrContains(session.library(), "MPICH Ver"))
      << session.library();
}

TEST(MpiSessionRanks, BroadcastGivesAllTheTextOfRank0) {
  MpiSession& session = *Self().session;
  for (const std::string& text : {std::string("10.0.0.1:5"), std::string(), std::string(100'000, 'x')}) {
    EXPECT_EQ(*session.Broadcast(session.rank() == 0 ? text : "another rank's"), text);
  }
}

TEST(MpiSessionRanks, MessagesAreInOrderAndMayBeEmpty) {
  const std::unique_ptr<PointToPoint> messages = Connect(AllRanks());
  const int size = messages->size();
  const RankId to = (messages->rank() + 1) % size;
  const RankId from = (messages->rank() + size - 1) % size;
  const std::vector<size_t> lengths = {5, 0, 3'000'000, 1};
  std::vector<std::string> received;
  std::vector<PointToPoint::Request> requests;
  received.reserve(lengths.size());
  std::vector<std::string> sent;
  sent.reserve(lengths.size());
  for (size_t i = 0; i < lengths.size() && size > 1; ++i) {
    sent.emplace_back(lengths[i], static_cast<char>('a' + i));
    received.emplace_back(lengths[i], '?');
    requests.push_back(*messages->Receive(received.back().data(), lengths[i], from));
    requests.push_back(*messages->Send(sent.back().data(), lengths[i], to));
  }
  AwaitAll(*messages, requests);
  EXPECT_EQ(received, sent);
}

TEST(MpiSessionRanks, ConnectionsDoNotMixTheirMessages) {
  const RankId rank = Self().session->rank();
  const std::unique_ptr<PointToPoint> all = Connect(AllRanks());
  if (rank > 1 || all->size() < 2) return;
  const std::unique_ptr<PointToPoint> pair = Connect({0, 1}, /*tag=*/7);
  EXPECT_EQ(pair->size(), 2);
  char first = 'f';
  char second = 's';
  if (rank == 0) {
    AwaitAll(*all, {*all->Send(&first, 1, 1)});
    AwaitAll(*pair, {*pair->Send(&second, 1, 1)});
  } else {
    char of_pair = '?';
    char of_all = '?';
    AwaitAll(*pair, {*pair->Receive(&of_pair, 1, 0)});
    AwaitAll(*all, {*all->Receive(&of_all, 1, 0)});
    EXPECT_EQ(of_pair, 's');
    EXPECT_EQ(of_all, 'f');
  }
}

TEST(MpiSessionRanks, PlacesInAConnectionCountItsMembers) {
  const RankId last = Self().session->size() - 1;
  if (Self().session->rank() != last) return;
  const std::unique_ptr<PointToPoint> alone = Connect({last});
  EXPECT_EQ(alone->rank(), 0);
  EXPECT_EQ(alone->size(), 1);
}

TEST(MessageCommunicatorRanks, ReduceToTheBitsOfTheKernels) {
  CheckReductions(Self().seed, /*hosts=*/{}, *ConnectCommunicator());
}

TEST(MessageCommunicatorRanks, OperationsDoNotDisturbEachOther) {
  CheckRandomWalk(Self().seed, *ConnectCommunicator());
}

TEST(MessageCommunicatorRanks, VotesReachAll) { CheckVotes(Self().seed, *ConnectCommunicator()); }

int Main(int argc, char** argv) {
  // Bazel sets these variables for the test that starts the ranks. They name the cases to run and the files to write. A
  // rank must not read them.
  for (const char* variable : {"GTEST_TOTAL_SHARDS", "GTEST_SHARD_INDEX", "TEST_PREMATURE_EXIT_FILE",
                               "TEST_SHARD_STATUS_FILE", "XML_OUTPUT_FILE"}) {
    unsetenv(variable);
  }
  ::testing::InitGoogleTest(&argc, argv);
  if (argc != 4) return 2;
  const MpiFlavor flavor = std::string(argv[2]) == "mpich" ? MpiFlavor::kMpich : MpiFlavor::kOpenMpi;
  absl::StatusOr<std::shared_ptr<MpiSession>> session = MpiSession::Start({.flavor = flavor, .plugin = argv[1]});
  if (!session.ok()) {
    std::printf("%s\n", session.status().ToString().c_str());
    return 1;
  }
  Self().session = *std::move(session);
  Self().seed = std::strtoull(argv[3], nullptr, 10);
  const int result = RUN_ALL_TESTS();
  Self().session.reset();
  return result;
}

}  // namespace
}  // namespace ronda::testing

int main(int argc, char** argv) { return ronda::testing::Main(argc, argv); }
