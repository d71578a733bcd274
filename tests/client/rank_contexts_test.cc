#include "client/c_api_support.h"

#include <atomic>
#include <memory>
#include <thread>

#include "gtest/gtest.h"
#include "runtime/collectives/self/self_communicator.h"

namespace ronda {
namespace {

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
