// SPDX-License-Identifier: Apache-2.0

// Tests elastic jobs whose state is in GPU memory. Each member has a fake GPU, and keeps it across epochs. The test
// itself acts as the launcher.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/ronda.hpp"
#include "client/ronda/elastic.hpp"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/world_programs.h"
#include "tests/testing/elastic_launcher.h"
#include "tests/testing/fake_gpu/fake_gpu.h"
#include "tests/testing/process_world.h"

namespace {

using ronda::testing::ElasticLauncher;
using ronda::testing::FakeGpuArray;
using ronda::testing::FakeGpuStream;
using ronda::testing::MemberResult;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// -- The members' side --

constexpr std::size_t kWeights = 50'000;

std::string Variable(const char* name, const char* otherwise = "") {
  const char* const value = std::getenv(name);
  return value == nullptr ? otherwise : value;
}

std::int64_t Member() { return std::stoll(Variable("ELASTIC_MEMBER")); }

// Returns how much every weight changes in a step. The change does not depend on the membership.
float MoveOf(std::int64_t step) { return static_cast<float>(step % 7 + 1); }

float WeightAfter(std::int64_t steps) {
  float weight = 0;
  for (std::int64_t step = 0; step < steps; ++step) weight += MoveOf(step);
  return weight;
}

// Returns rank `rank`'s contribution to the change. No single rank's contribution equals the whole change.
float PartOf(std::int64_t step, int rank, int size) {
  const auto part_of_others = [](int other) { return static_cast<float>(16 * (other + 1)); };
  if (rank < size - 1) return part_of_others(rank);
  float rest = MoveOf(step);
  for (int other = 0; other < size - 1; ++other) rest -= part_of_others(other);
  return rest;
}

// A model and its optimizer, which exist only in GPU memory.
class Model {
 public:
  std::vector<ronda::Tensor> tensors() const { return {View("weights", weights_)}; }
  std::vector<ronda::Tensor> gradients() const { return {View("gradient", gradient_)}; }
  std::vector<ronda::Tensor> state() const { return {View("moves", moves_)}; }

  const FakeGpuStream& stream() const { return stream_; }

  void Backward(std::int64_t step) const {
    gradient_.Set(std::vector<float>(kWeights, PartOf(step, ronda::rank(), ronda::size())));
  }

  void step() const {
    stream_.Enqueue([weights = weights_.data(), moves = moves_.data(), gradient = gradient_.data()] {
      for (std::size_t i = 0; i < kWeights; ++i) {
        moves[i] += 1;
        weights[i] += gradient[i];
      }
    });
  }

  bool IsThatOf(std::int64_t step) const {
    const auto all_are = [](const FakeGpuArray<float>& array, float value) {
      const std::vector<float> values = array.Get();
      return std::all_of(values.begin(), values.end(), [value](float each) { return each == value; });
    };
    return all_are(weights_, WeightAfter(step)) && all_are(moves_, static_cast<float>(step));
  }

 private:
  ronda::Tensor View(const std::string& name, const FakeGpuArray<float>& array) const {
    return ronda::cuda_tensor(name, array.data(), {static_cast<std::int64_t>(array.size())}, stream_.handle());
  }

  const FakeGpuStream stream_{static_cast<int>(Member())};
  // Only member 0 begins with the correct state. All other members must get it from member 0.
  const FakeGpuArray<float> weights_{stream_, std::vector<float>(kWeights, -1000.0f * static_cast<float>(Member()))};
  const FakeGpuArray<float> moves_{stream_, std::vector<float>(kWeights, -1000.0f * static_cast<float>(Member()))};
  const FakeGpuArray<float> gradient_{stream_, kWeights};
};

// Says in which step, and at which point of the step, something happens to a member. For example, "20:computing" kills
// the member while its GPU computes step 20. With "20:busy", the GPU takes a long time to compute step 20, and with
// "20:stuck" it never completes step 20. If the member joins after step 20, the event happens in the member's first
// step.
class Plan {
 public:
  Plan() {
    const std::vector<std::string> parts = absl::StrSplit(Variable("ELASTIC_PLAN"), ':', absl::SkipEmpty());
    if (parts.size() != 2) return;
    step_ = std::stoll(parts[0]);
    point_ = parts[1];
  }

  void At(std::int64_t step, const std::string& point, const Model& model) {
    while (is_dying_) pause();  // not beyond this point, even if the thread that kills is late
    if (!step_.has_value() || step < *step_ || point != point_) return;
    step_.reset();
    if (point == "busy") {
      model.stream().Enqueue([] { std::this_thread::sleep_for(std::chrono::seconds(3)); });
    } else if (point == "stuck") {
      model.stream().Enqueue([] {
        for (;;) pause();
      });
    } else if (point == "computing") {
      // While the GPU sleeps, the hosts of this member and of the other members run ahead as far as they can.
      model.stream().Enqueue([] {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        raise(SIGKILL);
      });
    } else if (point == "reducing") {
      is_dying_ = true;
      std::thread([] {
        std::this_thread::sleep_for(std::chrono::microseconds(std::random_device()() % 5000));
        raise(SIGKILL);
      }).detach();
    } else {
      raise(SIGKILL);
    }
  }

 private:
  std::optional<std::int64_t> step_;  // until it has happened
  std::string point_;
  bool is_dying_ = false;
};

// Rank 0 decides which step is the last: step ELASTIC_STEPS. If ELASTIC_SIZES is set, the job instead ends some steps
// after the number of ranks has had each value in ELASTIC_SIZES, in that order.
class Goal {
 public:
  std::int64_t LastStep(std::int64_t step) {
    if (seen_ < sizes_.size() && absl::StrCat(ronda::size()) == sizes_[seen_]) ++seen_;
    std::int64_t last = std::stoll(Variable("ELASTIC_STEPS", "40"));
    if (!sizes_.empty()) last = seen_ < sizes_.size() ? 1 << 30 : step + 10;
    ronda::broadcast(ronda::tensor("last step", &last), 0);
    return last;
  }

 private:
  const std::vector<std::string> sizes_ = absl::StrSplit(Variable("ELASTIC_SIZES"), ',', absl::SkipEmpty());
  std::size_t seen_ = 0;
};

void Train(const Model& model) {
  Plan plan;
  Goal goal;
  ronda::elastic::State state(model.tensors(), model);
  ronda::elastic::RunOptions options;
  options.init.start_timeout = ronda::Options::Seconds(5);
  ronda::elastic::run(
      state,
      [&](const ronda::elastic::Membership& now) {
        std::printf("%s", model.IsThatOf(now.step) ? "" : "WRONG STATE\n");
        const std::int64_t last_step = goal.LastStep(now.step);
        ronda::DistributedOptimizerOptions sum;
        sum.op = ronda::Op::Sum;
        ronda::DistributedOptimizer optimizer(model, model.gradients(), sum);
        while (state.step() < last_step) {
          const std::int64_t step = state.step();
          plan.At(step, "before", model);
          plan.At(step, "busy", model);
          plan.At(step, "stuck", model);
          plan.At(step, "computing", model);
          model.Backward(step);
          optimizer.gradient_ready("gradient");
          plan.At(step, "reducing", model);
          optimizer.step();
          plan.At(step, "updated", model);
          state.step_done();
        }
      },
      options);
  std::printf("finished with %d at %lld%s\n", ronda::size(), static_cast<long long>(state.step()),
              model.IsThatOf(state.step()) ? " in the right state" : " in a WRONG STATE");
  ronda::shutdown();
}

void TrainsOnGpu() {
  // If a test is killed, no member keeps training forever.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const auto model = std::make_unique<const Model>();
  const std::string before = ronda::testing::FakeGpuLeaks();
  try {
    Train(*model);
  } catch (const ronda::Error& error) {
    std::printf("error %d %s\n", static_cast<int>(error.code()), error.what());
    std::fflush(stdout);
    std::_Exit(3);
  }
  const ronda::testing::FakeNcclCounts nccl = ronda::testing::CountFakeNcclCommunicators();
  std::printf("communicators: %d made, %d aborted, %d left; %s\n", nccl.made, nccl.aborted, nccl.live,
              ronda::testing::FakeGpuLeaks() == before ? "nothing left on the GPU" : "LEAKS");
}

const std::vector<ronda::testing::RankProgram> kPrograms = {{"TrainsOnGpu", TrainsOnGpu}};

// -- The test's side --

class ElasticGpuTest : public ::testing::Test {
 protected:
  ElasticGpuTest() { Begin(); }

  void Begin(const ElasticLauncher::Environment& more = {}) {
    ElasticLauncher::Environment environment = {{"RONDA_CUDA_PLUGIN", ronda::testing::kFakeCudaPath},
                                                {"RONDA_NCCL_LIBRARY", ronda::testing::kFakeNcclLibraryPath},
                                                {"RONDA_DEVICE_BACKEND", "nccl"},
                                                {"FAKE_CUDA_STRICT", "1"}};
    environment.insert(environment.end(), more.begin(), more.end());
    launcher_ = std::make_unique<ElasticLauncher>(ronda::testing::ArgumentsOfRankProgram("TrainsOnGpu"), environment);
  }

  void Start(int count, const std::string& plan = "") {
    for (int i = 0; i < count; ++i) {
      const std::size_t member = launcher_->results().size();
      launcher_->Start({{"ELASTIC_PLAN", plan},
                        {"ELASTIC_MEMBER", absl::StrCat(member)},
                        {"FAKE_CUDA_DEVICES", absl::StrCat(member + 1)}});
    }
  }

  void ExpectFinished(const std::vector<std::size_t>& members, const std::string& beginning) const {
    for (const std::size_t member : members) {
      SCOPED_TRACE(absl::StrCat("member ", member));
      EXPECT_EQ(result(member).status, 0);
      EXPECT_THAT(result(member).output, AllOf(HasSubstr(beginning), HasSubstr("in the right state"),
                                               Not(HasSubstr("WRONG")), HasSubstr(" 0 left; nothing left on the GPU")));
    }
  }

  const MemberResult& result(std::size_t member) const { return launcher_->results()[member]; }

  std::unique_ptr<ElasticLauncher> launcher_;
};

class ElasticGpuDeathTest : public ElasticGpuTest, public ::testing::WithParamInterface<std::string> {};

// The GPUs of the survivors are in NCCL kernels that wait for the dead rank.
TEST_P(ElasticGpuDeathTest, SurvivorsGoOnFromTheNewestCompleteStep) {
  for (const std::size_t victim : {0, 1, 2}) {
    SCOPED_TRACE(absl::StrCat("member ", victim));
    Begin();
    for (std::size_t i = 0; i < 3; ++i) Start(1, i == victim ? absl::StrCat("20:", GetParam()) : "");
    launcher_->Run();
    for (std::size_t i = 0; i < 3; ++i) {
      if (i == victim) continue;
      ExpectFinished({i}, "finished with 2 at 40");
      EXPECT_THAT(result(i).output, HasSubstr("communicators: 4 made, 2 aborted")) << "two an epoch";
    }
    EXPECT_THAT(launcher_->sizes(), ElementsAre(3, 2));
  }
}

INSTANTIATE_TEST_SUITE_P(Points, ElasticGpuDeathTest, ::testing::Values("before", "computing", "reducing", "updated"),
                         [](const auto& info) { return info.param; });

// All members but one die, each at a random point of a random step, and are replaced.
TEST_F(ElasticGpuTest, ManyDeathsAtRandomPointsLeaveTheStateRightAndNothingElse) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937 random(seed);
  Begin({{"ELASTIC_STEPS", "250"}});
  const auto start_a_mortal_one = [&](std::int64_t step) {
    const char* const points[] = {"before", "computing", "reducing", "updated"};
    Start(1, absl::StrCat(step + 1 + static_cast<std::int64_t>(random() % 40), ":", points[random() % 4]));
  };
  start_a_mortal_one(0);
  Start(1);  // this member always has the state
  start_a_mortal_one(0);
  launcher_->Run([&](int size) {
    if (size < 3 && launcher_->results().size() < 12) start_a_mortal_one(result(1).joins.back().step);
  });
  ASSERT_GT(launcher_->sizes().size(), 1u);  // on a slow machine replacements may come after the end
  ExpectFinished({1}, " at 250 ");
  for (std::size_t member = 0; member < launcher_->results().size(); ++member) {
    if (!WIFSIGNALED(result(member).status)) ExpectFinished({member}, " at 250 ");
  }
}

// The GPU of one member is still computing when the other members have left the epoch.
TEST_F(ElasticGpuTest, AMemberWhoseStepTakesLongComesLater) {
  Start(1);
  Start(1, "20:busy");
  Start(1, "20:computing");
  launcher_->Run();
  EXPECT_THAT(launcher_->sizes(), ElementsAre(3, 2));
  ExpectFinished({0, 1}, "finished with 2 at 40");
}

// The GPU is stuck in work of the program. No program can end that work, and nothing else can run on the GPU.
TEST_F(ElasticGpuTest, AMemberWhoseGpuIsStuckEndsAndIsReplacedWhileTheOthersGoOn) {
  Begin({{"ELASTIC_SIZES", "2,3"}});
  Start(1);
  Start(1, "20:stuck");
  Start(1);
  Start(1, "20:computing");
  launcher_->Run([&](int size) {
    if (size == 2) Start(1);
  });
  EXPECT_THAT(launcher_->sizes(), ElementsAre(4, 2, 3));
  EXPECT_EQ(WEXITSTATUS(result(1).status), 3);
  EXPECT_THAT(result(1).output,
              AllOf(HasSubstr(absl::StrCat("error ", static_cast<int>(RONDA_ERROR_INTERNAL))), HasSubstr(" died"),
                    HasSubstr("; this process cannot go on: fake GPU, cuda:1 cannot be used")));
  EXPECT_EQ(result(1).joins.size(), 1u) << "it does not let the others wait for it";
  ExpectFinished({0, 2, 4}, "finished with 3");
}

TEST_F(ElasticGpuTest, JoiningRankGetsTheStateFromGpuToGpu) {
  Begin({{"ELASTIC_SIZES", "2,3"}});
  Start(2);
  bool has_come = false;
  launcher_->Run([&](int) {
    if (!std::exchange(has_come, true)) Start(1);
  });
  EXPECT_THAT(launcher_->sizes(), ElementsAre(2, 3));
  ExpectFinished({0, 1, 2}, "finished with 3");
  for (const std::size_t member : {0, 1}) {
    EXPECT_THAT(result(member).output, HasSubstr("communicators: 4 made, 0 aborted")) << "the change was planned";
  }
}

}  // namespace

namespace ronda::testing {

const std::vector<RankProgram>& ElasticGpuPrograms() { return kPrograms; }

}  // namespace ronda::testing
