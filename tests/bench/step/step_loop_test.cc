#include "bench/step/step_loop.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace ronda::bench {
namespace {

ModelShapes ThreeTensors() {
  return {.parameters = {{.name = "a", .shape = {2}, .work = 1},
                         {.name = "b", .shape = {3}, .work = 1},
                         {.name = "c", .shape = {4}, .work = 1}}};
}

// Notes what it is asked, and sends a control message for each finished step.
class NotingExchange : public GradientExchange {
 public:
  static constexpr size_t kFinish = 100;

  void Ready(size_t parameter) override { calls.push_back(parameter); }
  void Finish() override {
    calls.push_back(kFinish);
    ++sent_;
  }
  int64_t control_messages() override { return sent_; }

  std::vector<size_t> calls;

 private:
  int64_t sent_ = 0;
};

StepLoop Loop(int warm_up, int steps) {
  return StepLoop({.pass = BackwardPass(ThreeTensors(), absl::ZeroDuration()), .warm_up = warm_up, .steps = steps});
}

TEST(StepLoop, GradientsComeInBackwardOrderAndThenTheStepIsFinished) {
  NotingExchange exchange;
  Gradients gradients(ThreeTensors());
  Loop(0, 1).Run(&exchange, &gradients, nullptr);
  EXPECT_EQ(exchange.calls, (std::vector<size_t>{2, 1, 0, NotingExchange::kFinish}));
}

TEST(StepLoop, WarmUpIsNeitherTimedNorCounted) {
  NotingExchange exchange;
  Gradients gradients(ThreeTensors());
  const BlockResult result = Loop(5, 3).Run(&exchange, &gradients, nullptr);
  EXPECT_EQ(exchange.calls.size(), 4u * (5 + 3));
  EXPECT_EQ(result.step_ms.size(), 3u);
  EXPECT_EQ(result.control_messages, 3);
  EXPECT_EQ(result.wrong, 0);
}

TEST(StepLoop, TheCheckFindsAnExchangeThatDoesNothing) {
  NoExchange exchange;
  Gradients gradients(ThreeTensors());
  const StepLoop::Check alone = {.rank = 0, .ranks = 1};
  EXPECT_EQ(Loop(0, 1).Run(&exchange, &gradients, &alone).wrong, 0);
  const StepLoop::Check of_two = {.rank = 0, .ranks = 2};
  EXPECT_EQ(Loop(0, 1).Run(&exchange, &gradients, &of_two).wrong, 1 + 2 + 3);  // all but the zeros
}

TEST(StepLoop, StepsTakeAtLeastTheTimeOfTheirComputation) {
  NoExchange exchange;
  Gradients gradients(ThreeTensors());
  const StepLoop loop({.pass = BackwardPass(ThreeTensors(), absl::Milliseconds(3)), .warm_up = 0, .steps = 2});
  for (double step : loop.Run(&exchange, &gradients, nullptr).step_ms) EXPECT_GE(step, 2.99);
}

}  // namespace
}  // namespace ronda::bench
