// SPDX-License-Identifier: Apache-2.0

#include <atomic>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "client/session.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/collectives/self/self_communicator.h"
#include "runtime/engine/callback_thread.h"
#include "tests/testing/run_ranks.h"

namespace ronda {
namespace {

using ::testing::HasSubstr;

Submission Barrier() { return {.request = {.name = "ronda/barrier", .op = OpType::kBarrier}}; }

std::unique_ptr<Runtime> Join(RankId rank, int size, Transport transport) {
  return Runtime::Create({}, {.rank = rank, .size = size, .local_rank = rank, .local_size = size},
                         std::move(transport));
}

TEST(SessionTest, BarriersOfSeveralThreadsMeetThoseThatOneThreadMakesInTurn) {
  static constexpr int kRounds = 10;
  testing::RunRanks(2, [](RankId rank, Transport transport) {
    Session session(Join(rank, 2, std::move(transport)), {});
    const auto wait = [&session](int times) {
      for (int i = 0; i < times; ++i) {
        const auto barrier = session.SubmitNumbered(Barrier());
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
    Session session(Join(rank, 2, std::move(transport)), {});
    std::vector<std::shared_ptr<Handle>> barriers;
    if (rank == 0) {
      // Rank 1 takes part in barriers only after it has received the tensor "go", so no barrier completes before that.
      for (uint64_t i = 0; i < Session::kConcurrentOfAKind; ++i) barriers.push_back(*session.SubmitNumbered(Barrier()));
      const absl::Status refused = session.SubmitNumbered(Barrier()).status();
      EXPECT_EQ(refused.code(), absl::StatusCode::kAlreadyExists);
      EXPECT_EQ(refused.message(), "barrier: 64 are in flight already in this process set: wait for the first of them");
    }
    float go = 0;
    const auto started = session.runtime().Submit({.request = {.name = "go", .op = OpType::kBroadcast}, .output = &go});
    ASSERT_TRUE((*started)->Wait().ok());
    while (barriers.size() < Session::kConcurrentOfAKind) barriers.push_back(*session.SubmitNumbered(Barrier()));
    for (const auto& barrier : barriers) EXPECT_TRUE(barrier->Wait().ok());
    EXPECT_TRUE((*session.SubmitNumbered(Barrier()))->Wait().ok());
    EXPECT_TRUE(session.runtime().Shutdown().ok());
  });
}

TEST(SessionTest, TooManyMessagesAtOnceAreRefusedWithTheirRanks) {
  testing::RunRanks(2, [](RankId rank, Transport transport) {
    Session session(Join(rank, 2, std::move(transport)), {});
    const auto message = [rank](float* value) {
      Submission submission{
          .request = {.name = "ronda/sendrecv/1-0/7", .op = OpType::kSendRecv, .root = 1, .receiver = 0}};
      if (rank == 1) submission.input = value;
      if (rank == 0) submission.output = value;
      return submission;
    };
    float values[Session::kConcurrentOfAKind] = {}, go = 0;
    std::vector<std::shared_ptr<Handle>> messages;
    if (rank == 1) {
      // Rank 0 receives no message before it has received the tensor "go", which is sent below.
      for (float& value : values) messages.push_back(*session.SubmitNumbered(message(&value)));
      EXPECT_EQ(
          session.SubmitNumbered(message(&go)).status().message(),
          "send/recv: 64 are in flight already from rank 1 to rank 0 with this tag: wait for the first of them, or "
          "use more tags");
    }
    const auto started = session.runtime().Submit({.request = {.name = "go", .op = OpType::kBroadcast}, .output = &go});
    ASSERT_TRUE((*started)->Wait().ok());
    if (rank == 0) {
      for (float& value : values) messages.push_back(*session.SubmitNumbered(message(&value)));
    }
    for (const auto& sent : messages) EXPECT_TRUE(sent->Wait().ok());
    EXPECT_TRUE(session.runtime().Shutdown().ok());
  });
}

TEST(SessionTest, KindsAreNumberedApart) {
  testing::RunRanks(1, [](RankId rank, Transport transport) {
    Session session(Join(rank, 1, std::move(transport)), {});
    ASSERT_TRUE((*session.SubmitNumbered(Barrier()))->Wait().ok());
    const auto added = session.SubmitNumbered(
        {.request = {.name = "ronda/add_process_set", .op = OpType::kAddProcessSet, .members = {0}}});
    ASSERT_TRUE(added.ok()) << added.status();
    ASSERT_TRUE((*added)->Wait().ok());
    EXPECT_EQ((*added)->result().number, 1);
    Submission of_the_set = Barrier();
    of_the_set.request.process_set = 1;
    EXPECT_TRUE((*session.SubmitNumbered(of_the_set))->Wait().ok());
    EXPECT_TRUE(session.runtime().Shutdown().ok());
  });
}

TEST(SessionTest, ASubmissionThatIsRefusedUsesNoNumberUp) {
  testing::RunRanks(1, [](RankId rank, Transport transport) {
    Session session(Join(rank, 1, std::move(transport)), {});
    Submission wrong = Barrier();
    wrong.request.process_set = 9;
    EXPECT_EQ(session.SubmitNumbered(wrong).status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_TRUE((*session.SubmitNumbered(Barrier()))->Wait().ok());
    EXPECT_TRUE(session.runtime().Shutdown().ok());
  });
}

// Assigns the next number of the sequence to `operation`.
void Begin(NumberSequence& sequence, const std::shared_ptr<Handle>& operation) {
  sequence.Next();
  sequence.Record(operation);
}

std::shared_ptr<Handle> Operation() {
  return std::make_shared<Handle>(CallbackThread::Create({}), nullptr, std::make_shared<const std::string>("t"));
}

TEST(NumberSequenceTest, CountsWhatIsTaken) {
  NumberSequence sequence;
  EXPECT_EQ(sequence.Next(), 0u);
  EXPECT_EQ(sequence.Next(), 0u) << "not taken: its submission failed";
  Begin(sequence, Operation());
  EXPECT_EQ(sequence.Next(), 1u);
}

TEST(NumberSequenceTest, NumberOfAnUnattendedOperationIsHeldAgain) {
  NumberSequence sequence;
  const auto first = Operation(), second = Operation();
  Begin(sequence, first);
  Begin(sequence, second);
  first->Complete(absl::DeadlineExceededError("rank 1 is missing"));
  EXPECT_EQ(sequence.Next(), 0u);
  Begin(sequence, Operation());
  EXPECT_EQ(sequence.Next(), 2u);
}

TEST(NumberSequenceTest, TheSmallestNumberComesFirst) {
  NumberSequence sequence;
  const auto first = Operation(), second = Operation();
  Begin(sequence, first);
  Begin(sequence, second);
  second->Complete(absl::DeadlineExceededError("rank 1 is missing"));
  first->Complete(absl::DeadlineExceededError("rank 1 is missing"));
  EXPECT_EQ(sequence.Next(), 0u);
  Begin(sequence, Operation());
  EXPECT_EQ(sequence.Next(), 1u);
}

TEST(NumberSequenceTest, OtherEndsUseANumberUp) {
  NumberSequence sequence;
  const auto good = Operation(), mismatch = Operation();
  Begin(sequence, good);
  Begin(sequence, mismatch);
  good->Complete(absl::OkStatus());
  // All ranks get the mismatch error only after all ranks have submitted the operation, so all ranks count it.
  mismatch->Complete(absl::FailedPreconditionError("ranks disagree"));
  EXPECT_EQ(sequence.Next(), 2u);
}

TEST(MembershipSubmissionsTest, BarriersJoinsAndSetsAreGivenNames) {
  const Caller caller = {.rank = 2, .limits = {}};
  const auto barrier = BarrierSubmission(3, 0, caller);
  EXPECT_EQ(barrier->request.process_set, 3u);
  EXPECT_EQ(barrier->request.op, OpType::kBarrier);
  EXPECT_FALSE(barrier->request.limits.has_value());
  EXPECT_EQ(BarrierSubmission(0, 2, caller)->request.limits->deadline, absl::Seconds(2));
  EXPECT_THAT(BarrierSubmission(0, std::nan(""), caller).status().ToString(),
              HasSubstr("monitored_barrier: timeout_s is not a number"));
  const auto join = JoinSubmission(3, RONDA_ABSENT_COUNTED_AS_ZEROS);
  EXPECT_EQ(join->request.op, OpType::kJoin);
  EXPECT_EQ(join->request.absent, TensorRequest::Absent::kCountedAsZeros);
  ronda_absent odd = RONDA_ABSENT_NOT_COUNTED;
  const int raw = 2;  // a C caller may write any number into an enum
  std::memcpy(&odd, &raw, sizeof(raw));
  EXPECT_THAT(JoinSubmission(0, odd).status().ToString(), HasSubstr("absent 2"));
  const int ranks[2] = {0, 2};
  EXPECT_EQ(AddProcessSetSubmission(ranks, 2)->request.members, (std::vector<RankId>{0, 2}));
  EXPECT_THAT(AddProcessSetSubmission(nullptr, 2).status().ToString(), HasSubstr("no ranks"));
  EXPECT_THAT(AddProcessSetSubmission(ranks, 0).status().ToString(), HasSubstr("no ranks"));
  EXPECT_EQ(RemoveProcessSetSubmission(4, 0).request.subject, 4u);
  EXPECT_EQ(RemoveProcessSetSubmission(4, 4).request.process_set, 4u);
}

TEST(MembershipSubmissionsTest, CreationsAreToldApartByRanksAndTag) {
  const int ranks[2] = {0, 2};
  const auto created = CreateProcessSetSubmission(ranks, 2, "t");
  EXPECT_EQ(created->request.op, OpType::kCreateProcessSet);
  EXPECT_EQ(created->request.members, (std::vector<RankId>{0, 2}));
  EXPECT_NE(created->request.name, CreateProcessSetSubmission(ranks, 2, "u")->request.name);
  EXPECT_NE(created->request.name, CreateProcessSetSubmission(ranks, 1, "t")->request.name);
  EXPECT_EQ(CreateProcessSetSubmission(ranks, 2, nullptr)->request.name,
            CreateProcessSetSubmission(ranks, 2, "")->request.name);
  EXPECT_THAT(CreateProcessSetSubmission(nullptr, 2, "").status().ToString(), HasSubstr("no ranks"));
  EXPECT_THAT(CreateProcessSetSubmission(ranks, 2, "caf\xe9").status().ToString(), HasSubstr("tag is not UTF-8"));
}

class RankContextsTest : public ::testing::Test {
 protected:
  ~RankContextsTest() override { EXPECT_TRUE(runtime_->Shutdown().ok()); }

  RankContexts contexts_;
  std::unique_ptr<Runtime> runtime_ = Runtime::Create({}, {}, CreateSelfTransport("here"));
};

TEST_F(RankContextsTest, AThreadActsForItsRankWhileTheScopeLasts) {
  EXPECT_EQ(RankContexts::Current(), 0);
  {
    const RankContexts::Scope scope(&contexts_, *runtime_, {});
    EXPECT_GT(RankContexts::Current(), 0);
    EXPECT_EQ(&RankContexts::CurrentSession()->runtime(), runtime_.get());
  }
  EXPECT_EQ(RankContexts::Current(), 0);
}

TEST_F(RankContextsTest, OtherThreadsMayJoinInAndGoBack) {
  const RankContexts::Scope scope(&contexts_, *runtime_, {});
  const ronda_context context = RankContexts::Current();
  std::thread([&] {
    EXPECT_EQ(RankContexts::Current(), 0);
    ASSERT_TRUE(contexts_.MakeCurrent(context));
    EXPECT_EQ(&RankContexts::CurrentSession()->runtime(), runtime_.get());
    ASSERT_TRUE(contexts_.MakeCurrent(0));
    EXPECT_EQ(RankContexts::Current(), 0);
  }).join();
}

TEST_F(RankContextsTest, AVisitEndsWithWhatWasBefore) {
  const RankContexts::Role own = RankContexts::CurrentRole();
  const RankContexts::Scope scope(&contexts_, *runtime_, {});
  const ronda_context context = RankContexts::Current();
  {
    const RankContexts::Visit back(own);
    EXPECT_EQ(RankContexts::Current(), 0);
  }
  EXPECT_EQ(RankContexts::Current(), context);
  std::thread([&, role = RankContexts::CurrentRole()] {
    {
      const RankContexts::Visit visit(role);
      EXPECT_EQ(&RankContexts::CurrentSession()->runtime(), runtime_.get());
    }
    EXPECT_EQ(RankContexts::Current(), 0);
  }).join();
}

TEST_F(RankContextsTest, AThreadThatOutlivesItsRankFindsItGone) {
  ronda_context context = 0;
  std::atomic<bool> ended{false};
  std::thread other;
  {
    const RankContexts::Scope scope(&contexts_, *runtime_, {});
    context = RankContexts::Current();
    std::atomic<bool> joined{false};
    other = std::thread([&, context] {
      EXPECT_TRUE(contexts_.MakeCurrent(context));
      joined = true;
      ended.wait(false);
      EXPECT_EQ(RankContexts::CurrentSession(), nullptr);
    });
    while (!joined) std::this_thread::yield();
  }
  ended = true;
  ended.notify_all();
  other.join();
  EXPECT_FALSE(contexts_.MakeCurrent(context));
}

TEST_F(RankContextsTest, TheScopeLastsUntilOthersHaveLeftTheSession) {
  std::atomic<bool> left{false};
  std::thread other;
  {
    const RankContexts::Scope scope(&contexts_, *runtime_, {});
    std::atomic<bool> entered{false};
    other = std::thread([&, context = RankContexts::Current()] {
      ASSERT_TRUE(contexts_.MakeCurrent(context));
      std::shared_ptr<Session> session = RankContexts::CurrentSession();
      entered = true;
      for (int i = 0; i < 1000; ++i) std::this_thread::yield();
      left = true;
      session.reset();
    });
    while (!entered) std::this_thread::yield();
  }
  EXPECT_TRUE(left);
  other.join();
}

TEST_F(RankContextsTest, NumbersThatWereNeverGivenOutAreRefused) {
  EXPECT_FALSE(contexts_.MakeCurrent(1));
  EXPECT_FALSE(contexts_.MakeCurrent(-1));
  EXPECT_EQ(RankContexts::Current(), 0);
}

}  // namespace

}  // namespace ronda
