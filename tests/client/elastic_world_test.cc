// SPDX-License-Identifier: Apache-2.0

// Tests elastic jobs whose processes train, die, join and leave. The test itself acts as the launcher.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/ronda.hpp"
#include "client/ronda/elastic.hpp"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/world_programs.h"
#include "tests/testing/counting_model.h"
#include "tests/testing/elastic_launcher.h"
#include "tests/testing/process_world.h"

namespace {

using ronda::testing::ElasticLauncher;
using ronda::testing::MemberResult;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// -- The members' side --

constexpr std::int64_t kSamples = 103;
constexpr std::int64_t kGlobalBatch = 8;
constexpr std::int64_t kStepsOfEpoch = 13;

std::string Variable(const char* name, const char* otherwise = "") {
  const char* const value = std::getenv(name);
  return value == nullptr ? otherwise : value;
}

// Says what a member does to itself in a step. For example, "20:submitted:kill" makes the member kill itself in step
// 20, after it has submitted its tensors. A member that joins after step 20 kills itself in its first step.
class Plan {
 public:
  Plan() {
    for (const auto item : absl::StrSplit(Variable("ELASTIC_PLAN"), ',', absl::SkipEmpty())) {
      const std::vector<std::string> parts = absl::StrSplit(item, ':');
      todo_[{std::stoll(parts[0]), parts[1]}] = parts[2];
    }
  }

  void At(std::int64_t step, const std::string& point) {
    const auto found = std::find_if(todo_.begin(), todo_.end(), [&](const auto& each) {
      return each.first.first <= step && each.first.second == point;
    });
    if (found == todo_.end()) return;
    const std::string what = found->second;
    todo_.erase(found);
    if (what == "kill") raise(SIGKILL);
    if (what == "leave") raise(SIGTERM);
    // No other rank calls this barrier, so it fails at its deadline.
    if (what == "late") ronda::monitored_barrier(ronda::CallOptions::Seconds(0.05));
    if (what == "operate") {
      std::vector<float> small(3);
      for (;;) ronda::allreduce(ronda::tensor("in the update", small));
    }
  }

 private:
  std::map<std::pair<std::int64_t, std::string>, std::string> todo_;
};

using Model = ronda::testing::CountingModel;

class Sgd {
 public:
  Sgd(Model& model, Plan& plan) : model_(model), plan_(plan) {}

  std::vector<ronda::Tensor> state() { return {ronda::tensor("velocity", velocity_)}; }
  void set_step(std::int64_t step) { step_ = step; }

  void step() {
    for (std::size_t i = 0; i < model_.counts.size(); ++i) model_.counts[i] += model_.counted[i];
    plan_.At(step_, "updating");
    for (std::size_t i = 0; i < velocity_.size(); ++i) {
      velocity_[i] = 0.9f * velocity_[i] + model_.gradient[i];
      model_.weights[i] -= 0.05f * velocity_[i];
    }
  }

 private:
  Model& model_;
  Plan& plan_;
  std::int64_t step_ = 0;
  std::vector<float> velocity_ = std::vector<float>(5000);
};

// Rank 0 decides which pass over the data (epoch) is the last: pass number ELASTIC_EPOCHS. If ELASTIC_SIZES is set, the
// last pass instead comes two passes after the body has run with each number of ranks in ELASTIC_SIZES, in that order.
// In tests with ELASTIC_SIZES, rank 0 is the same process throughout the job. (If a rank dies before it has the state,
// the job does not run the body.)
class Goal {
 public:
  std::int64_t LastEpoch(int size, std::int64_t epoch) {
    const std::size_t wanted = sizes_.size();
    if (seen_ < wanted && absl::StrCat(size) == sizes_[seen_]) ++seen_;
    std::int64_t last = std::stoll(Variable("ELASTIC_EPOCHS", "3"));
    if (wanted > 0) last = seen_ < wanted ? 1 << 30 : epoch + 2;
    ronda::broadcast(ronda::tensor("last epoch", &last), 0);
    return last;
  }

 private:
  const std::vector<std::string> sizes_ = absl::StrSplit(Variable("ELASTIC_SIZES"), ',', absl::SkipEmpty());
  std::size_t seen_ = 0;
};

void Trains() {
  // If a test is killed, no member keeps training forever.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  Plan plan;
  Model model(kSamples, std::stof(Variable("ELASTIC_MEMBER")));
  Sgd sgd(model, plan);
  Goal goal;
  double loss = 0;
  ronda::elastic::Sampler sampler(kSamples, kGlobalBatch, {true, 5});
  ronda::elastic::State state({ronda::tensor("counts", model.counts), ronda::tensor("weights", model.weights)}, sgd,
                              sampler, &loss);
  ronda::elastic::RunOptions options;
  options.init.start_timeout = ronda::Options::Seconds(5);
  options.snapshot_every = std::stoll(Variable("ELASTIC_SNAPSHOT_EVERY", "0"));
  options.on_reset = [](const auto& now) { std::cout << "reset to " << now.size << " at " << now.step << "\n"; };
  std::int64_t resets = 0;
  ronda::elastic::End end = ronda::elastic::End::left;
  try {
    end = ronda::elastic::run(
        state,
        [&](const ronda::elastic::Membership& membership) {
          resets = membership.resets;
          const std::int64_t last_epoch = goal.LastEpoch(membership.size, sampler.epoch());
          ronda::DistributedOptimizerOptions sum;
          sum.op = ronda::Op::Sum;
          ronda::DistributedOptimizer optimizer(
              sgd, {ronda::tensor("counted", model.counted), ronda::tensor("gradient", model.gradient)}, sum);
          while (sampler.epoch() < last_epoch) {
            plan.At(state.step(), "before");
            sgd.set_step(state.step());
            model.Backward(sampler.next());
            optimizer.gradient_ready("counted");
            plan.At(state.step(), "submitted");
            optimizer.gradient_ready("gradient");
            optimizer.step();
            plan.At(state.step(), "updated");
            state.step_done();
          }
        },
        options);
  } catch (const ronda::Error& error) {
    std::cout << "error " << error.code() << " " << error.what() << "\n";
    return;
  }
  if (end == ronda::elastic::End::left) {
    std::cout << "left at " << state.step() << "\n";
    return;
  }
  bool every_sample = true;
  for (const std::int64_t count : model.counts) every_sample = every_sample && count == sampler.epoch();
  std::cout << "finished with " << ronda::size() << " at " << state.step() << " in epoch " << sampler.epoch()
            << (every_sample ? " every sample once" : " WRONG SAMPLES") << " resets " << resets << " hash "
            << model.Hash() << "\n";
  ronda::shutdown();
}

const std::vector<ronda::testing::RankProgram> kPrograms = {{"TrainsElastically", Trains}};

// -- The test's side --

class ElasticWorldTest : public ::testing::Test {
 protected:
  explicit ElasticWorldTest() : launcher_(Make()) {}

  static std::unique_ptr<ElasticLauncher> Make(ElasticLauncher::Environment environment = {}) {
    return std::make_unique<ElasticLauncher>(ronda::testing::ArgumentsOfRankProgram("TrainsElastically"),
                                             std::move(environment));
  }

  void Start(int count, const std::string& plan = "") {
    for (int i = 0; i < count; ++i) {
      launcher_->Start({{"ELASTIC_PLAN", plan}, {"ELASTIC_MEMBER", absl::StrCat(launcher_->results().size())}});
    }
  }

  // Expects that `members` finish with the same weights, and that every sample was used exactly once. Returns the hash
  // of the weights.
  std::string ExpectFinished(const std::vector<std::size_t>& members, const std::string& beginning) {
    std::string hash;
    for (const std::size_t i : members) {
      const MemberResult& result = launcher_->results()[i];
      SCOPED_TRACE(absl::StrCat("member ", i));
      EXPECT_EQ(result.status, 0) << result.output;
      EXPECT_THAT(result.output, AllOf(HasSubstr(beginning), HasSubstr("every sample once")));
      const std::vector<std::string> parts = absl::StrSplit(result.output, absl::string_view("hash "));
      const std::string own = parts.back();
      if (hash.empty()) hash = own;
      EXPECT_EQ(own, hash) << "the state is the same on all ranks";
    }
    return hash;
  }

  void ExpectKilled(std::size_t member) const {
    const int status = launcher_->results()[member].status;
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
  }

  const MemberResult& result(std::size_t member) const { return launcher_->results()[member]; }

  std::unique_ptr<ElasticLauncher> launcher_;
};

const std::string kAllSteps = absl::StrCat(" at ", 3 * kStepsOfEpoch, " in epoch 3");

TEST_F(ElasticWorldTest, WithoutAnyChangeAllFinishWithTheStateOfTheOldest) {
  Start(3);
  launcher_->Run();
  ExpectFinished({0, 1, 2}, absl::StrCat("finished with 3", kAllSteps));
  EXPECT_THAT(launcher_->sizes(), ElementsAre(3));
}

class ElasticDeathTest : public ElasticWorldTest, public ::testing::WithParamInterface<std::string> {};

// One rank dies at some point of a step. The survivors lose only the current step.
TEST_P(ElasticDeathTest, SurvivorsGoOnFromTheNewestCompleteStep) {
  for (const std::size_t victim : {0, 1, 2}) {
    SCOPED_TRACE(absl::StrCat("member ", victim));
    launcher_ = Make();
    for (std::size_t i = 0; i < 3; ++i) Start(1, i == victim ? absl::StrCat("20:", GetParam(), ":kill") : "");
    launcher_->Run();
    ExpectKilled(victim);
    for (std::size_t i = 0; i < 3; ++i) {
      if (i == victim) continue;
      ExpectFinished({i}, absl::StrCat("finished with 2", kAllSteps));
      const auto& joins = result(i).joins;
      ASSERT_THAT(joins, SizeIs(2));
      EXPECT_EQ(joins[0].last_epoch, -1);
      EXPECT_EQ(joins[0].step, -1);
      EXPECT_EQ(joins[1].last_epoch, 0);
      EXPECT_TRUE(joins[1].step == 20 || joins[1].step == 21) << joins[1].step;
      EXPECT_THAT(joins[1].reason, HasSubstr("died"));
    }
    EXPECT_THAT(launcher_->sizes(), ElementsAre(3, 2));
  }
}

INSTANTIATE_TEST_SUITE_P(Points, ElasticDeathTest, ::testing::Values("before", "submitted", "updating", "updated"),
                         [](const auto& info) { return info.param; });

TEST_F(ElasticWorldTest, TheSameHistoryOfMembersGivesTheSameBits) {
  std::vector<std::string> hashes;
  for (int run = 0; run < 2; ++run) {
    launcher_ = Make();
    Start(1);
    Start(1, "7:before:kill");
    Start(1, "20:before:kill");
    Start(1, "25:before:leave");
    launcher_->Run();
    hashes.push_back(ExpectFinished({0}, absl::StrCat("finished with 1", kAllSteps)));
    EXPECT_THAT(launcher_->sizes(), ElementsAre(4, 3, 2, 1));
  }
  EXPECT_EQ(hashes[0], hashes[1]);
}

TEST_F(ElasticWorldTest, AMemberThatGetsSigtermLeavesAndNothingIsLost) {
  Start(1);
  Start(1, "10:before:leave");
  Start(1);
  launcher_->Run();
  EXPECT_EQ(result(1).status, 0) << result(1).output;
  EXPECT_THAT(result(1).output, HasSubstr("left at 12")) << "one step after the signal tells it, the next hears it";
  ExpectFinished({0, 2}, absl::StrCat("finished with 2", kAllSteps));
  for (const std::size_t i : {0, 2}) {
    EXPECT_EQ(result(i).joins[1], (ronda::JoinRequest{.last_epoch = 0, .step = 12}));
    EXPECT_THAT(result(i).output, HasSubstr("reset to 2 at 12"));
  }
}

TEST_F(ElasticWorldTest, AllMembersMayBeAskedToLeaveAndTheJobIsOver) {
  Start(3, "10:before:leave");
  launcher_->Run();
  for (const MemberResult& member : launcher_->results()) {
    EXPECT_EQ(member.status, 0);
    EXPECT_THAT(member.output, HasSubstr("left at 12"));
  }
}

// Two members become four because new members join and get the state. Then all members but the oldest die, and new
// members join again.
TEST_F(ElasticWorldTest, TwoBecomeFourBecomeOneBecomeThree) {
  launcher_ = Make({{"ELASTIC_SIZES", "2,1,3"}});
  Start(2);
  launcher_->Run([&](int size) {
    if (size == 2 || size == 1) Start(2);
    if (size == 4) {
      for (const std::size_t i : launcher_->Present()) {
        if (i > 0) launcher_->Kill(i, SIGKILL);
      }
    }
  });
  EXPECT_THAT(launcher_->sizes(), ElementsAre(2, 4, 1, 3));
  for (const std::size_t i : {1, 2, 3}) ExpectKilled(i);
  ExpectFinished({0, 4, 5}, "finished with 3");
}

// All members but one die, each at a random point of a random step. Each dead member is replaced. Most of the
// replacements die too, and are replaced in turn.
TEST_F(ElasticWorldTest, ManyDeathsAtRandomPointsCostNoSample) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937 random(seed);
  launcher_ = Make({{"ELASTIC_EPOCHS", "20"}});
  const auto start_a_mortal_one = [&](std::int64_t step) {
    const char* const points[] = {"before", "submitted", "updating", "updated"};
    Start(1, absl::StrCat(step + 1 + static_cast<std::int64_t>(random() % 40), ":", points[random() % 4], ":kill"));
  };
  start_a_mortal_one(0);
  Start(1);  // this member always has the state
  for (int i = 0; i < 2; ++i) start_a_mortal_one(0);
  launcher_->Run([&](int size) {
    if (size >= 4 || launcher_->results().size() >= 16) return;
    start_a_mortal_one(result(1).joins.back().step);
  });
  ASSERT_GT(launcher_->sizes().size(), 1u);  // on a slow machine replacements may come after the end
  std::vector<std::size_t> finished;
  for (std::size_t i = 0; i < launcher_->results().size(); ++i) {
    if (!WIFSIGNALED(result(i).status)) finished.push_back(i);
  }
  EXPECT_THAT(finished, ::testing::Contains(1u));
  ExpectFinished(finished, absl::StrCat(" at ", 20 * kStepsOfEpoch, " in epoch 20"));
}

// A new member dies while it receives the state, or just after.
TEST_F(ElasticWorldTest, JoiningRankThatDiesAtOnceIsNoLoss) {
  launcher_ = Make({{"ELASTIC_SIZES", "2,2"}});
  Start(2);
  bool has_come = false;
  launcher_->Run([&](int size) {
    if (size == 2 && !std::exchange(has_come, true)) Start(1);
    if (size == 3) launcher_->Kill(2, SIGKILL);
  });
  EXPECT_THAT(launcher_->sizes(), ElementsAre(2, 3, 2));
  ExpectFinished({0, 1}, "finished with 2");
}

// Every rank fails while it updates the weights, because the update calls an operation.
TEST_F(ElasticWorldTest, StateThatIsInconsistentOnAllRanksGoesBackToTheSnapshot) {
  launcher_ = Make({{"ELASTIC_SNAPSHOT_EVERY", "8"}});
  Start(2, "20:updated:operate");
  Start(1, "20:updated:kill");
  launcher_->Run();
  ExpectFinished({0, 1}, absl::StrCat("finished with 2", kAllSteps));
  EXPECT_THAT(result(0).output, HasSubstr("reset to 2 at 16"));
}

TEST_F(ElasticWorldTest, WithoutASnapshotAnInconsistentStateOnAllRanksIsAnError) {
  Start(2, "20:updated:operate");
  Start(1, "20:updated:kill");
  launcher_->Run();
  for (const std::size_t i : {0, 1}) {
    EXPECT_THAT(result(i).output, AllOf(HasSubstr(absl::StrCat("error ", static_cast<int>(RONDA_ERROR_MEMBERSHIP))),
                                        HasSubstr("snapshot_every")));
  }
}

// No rank dies. One rank gives up on a barrier that the other ranks do not call.
TEST_F(ElasticWorldTest, ADeadlineIsAReasonToMeetAgain) {
  Start(1, "20:before:late");
  Start(2);
  launcher_->Run();
  ExpectFinished({0, 1, 2}, absl::StrCat("finished with 3", kAllSteps));
  EXPECT_THAT(launcher_->sizes(), ElementsAre(3, 3));
}

TEST_F(ElasticWorldTest, AMemberWithoutAPlaceEndsWithTheLaunchersReason) {
  Start(2);
  Start(1, "5:before:kill");
  launcher_->EndAfter(1, "fewer than 7 members are left");
  launcher_->Run();
  for (const std::size_t i : {0, 1}) {
    EXPECT_THAT(result(i).output, AllOf(HasSubstr(absl::StrCat("error ", static_cast<int>(RONDA_ERROR_MEMBERSHIP))),
                                        HasSubstr("fewer than 7 members are left")));
  }
}

// The launcher ends all members while they train, as rondarun does when it is stopped.
TEST_F(ElasticWorldTest, MembersThatTheLauncherEndsInTheirStepsLeaveTogether) {
  launcher_ = Make({{"ELASTIC_EPOCHS", "1000000"}});
  Start(3);
  launcher_->Run([&](int) { launcher_->End("the job is stopped"); });
  const std::string first = result(0).output;
  EXPECT_THAT(first, HasSubstr("left at"));
  for (const MemberResult& member : launcher_->results()) {
    EXPECT_EQ(member.status, 0);
    EXPECT_EQ(member.output, first) << "in the same step";
  }
}

TEST_F(ElasticWorldTest, MembersEndWhenTheirLauncherIsGone) {
  launcher_ = Make({{"ELASTIC_EPOCHS", "1000000"}});
  Start(3);
  launcher_->Run([&](int) { launcher_->Vanish(); });
  std::vector<std::string> outputs;
  for (const MemberResult& member : launcher_->results()) outputs.push_back(member.output);
  EXPECT_THAT(outputs, Each(AllOf(HasSubstr(absl::StrCat("error ", static_cast<int>(RONDA_ERROR_MEMBERSHIP))),
                                  HasSubstr("launcher is gone"))));
}

}  // namespace

namespace ronda::testing {

const std::vector<RankProgram>& ElasticPrograms() { return kPrograms; }

}  // namespace ronda::testing
