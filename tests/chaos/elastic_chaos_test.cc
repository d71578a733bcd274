// SPDX-License-Identifier: Apache-2.0

// Tests that LeNet learns while ranks of its elastic job are killed, stopped and asked to leave at random.
//
//   elastic_chaos_test [PROGRAM [ARGUMENT...]]
//
// With PROGRAM, tests that program instead of LeNet, for example examples/pytorch_elastic.py. It must accept `--epochs
// N`.
//
// The first job makes CHAOS_PASSES passes over the data (default: 8). If CHAOS_SECONDS is set, further jobs with longer
// pauses follow until the time is over. To repeat the injuries of an earlier run, set CHAOS_SEED to the seed that it
// printed. The injuries are the same as long as the two jobs are in the same state.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "runtime/base/clock.h"
#include "tests/chaos/elastic_chaos.h"

namespace ronda::chaos {
namespace {

constexpr char kLeNet[] = "examples/lenet_mnist/lenet_elastic";

std::vector<std::string>& Program() {
  static auto* const program = new std::vector<std::string>{kLeNet};
  return *program;
}

constexpr int64_t kDefaultPasses = 8;
constexpr int64_t kEnoughPasses = 30;  // for any program

int64_t ShortPasses() {
  const char* const text = std::getenv("CHAOS_PASSES");
  return text == nullptr ? kDefaultPasses : std::atoll(text);
}

// LeNet in C++ learns enough in a few passes, because its learning rate decays.
double AccuracyAfter(int64_t passes) { return Program().front() == kLeNet || passes >= kEnoughPasses ? 0.97 : 0.95; }

// No member is injured in the last passes, because the outcome of the job would depend on whether the member had
// already finished its program.
int64_t InjuredPassesOf(int64_t passes) { return passes - std::max<int64_t>(2, passes / 10); }

void ExpectLearns(int64_t passes, ElasticChaos::Options options) {
  options.program = Program();
  options.program.insert(options.program.end(), {"--epochs", absl::StrCat(passes)});
  ElasticChaos chaos(options);
  const auto until = [](int64_t pass) { return [pass](const JobLog& log) { return log.passes() >= pass; }; };
  const int64_t injured = InjuredPassesOf(passes);
  chaos.InjureUntil(until(injured / 2), ElasticChaos::Keeper::kChanges);
  chaos.InjureUntil(until(injured), ElasticChaos::Keeper::kStays);
  chaos.ExpectGoodEnd();
  EXPECT_EQ(chaos.log().passes(), passes);
  EXPECT_GT(chaos.log().epochs(), 1) << "nobody was injured";
  EXPECT_GE(chaos.log().accuracy(), AccuracyAfter(passes));
}

TEST(ElasticChaosTest, TheModelLearnsWhoeverDies) {
  const absl::Time end = SteadyNow() + TimeForChaos().value_or(absl::ZeroDuration());
  ElasticChaos::Options options = {.seed = SeedOfChaos()};
  double passes = static_cast<double>(ShortPasses());
  // Each job makes as many passes as fit into the remaining time, as estimated from the previous job.
  while (passes >= static_cast<double>(ShortPasses()) && !HasFailure()) {
    const absl::Time begin = SteadyNow();
    ExpectLearns(static_cast<int64_t>(passes), options);
    passes *= absl::FDivDuration(end - SteadyNow(), SteadyNow() - begin);
    options.seed += 1;
    options.pause = absl::Seconds(2.5);
    options.stops = 1 + static_cast<int>(absl::ToInt64Minutes(end - SteadyNow()));
  }
}

}  // namespace
}  // namespace ronda::chaos

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc > 1) ronda::chaos::Program().assign(argv + 1, argv + argc);
  return RUN_ALL_TESTS();
}
