#include "bench/step/step_loop.h"

#include <chrono>

namespace ronda::bench {

void StepLoop::RunStep(GradientExchange* exchange) const {
  const Computation computation(options_.compute_kind);
  for (const ReadyGradient& gradient : options_.pass) {
    computation.Until(gradient.after);
    exchange->Ready(gradient.parameter);
  }
  exchange->Finish();
}

BlockResult StepLoop::Run(GradientExchange* exchange, Gradients* gradients, const Check* check) const {
  using Clock = std::chrono::steady_clock;
  gradients->FillForTiming();
  for (int i = 0; i < options_.warm_up; ++i) RunStep(exchange);
  BlockResult result;
  result.control_messages = -exchange->control_messages();
  for (int i = 0; i < options_.steps; ++i) {
    const auto start = Clock::now();
    RunStep(exchange);
    result.step_ms.push_back(std::chrono::duration<double, std::milli>(Clock::now() - start).count());
  }
  result.control_messages += exchange->control_messages();
  if (check == nullptr) return result;
  gradients->FillForCheck(check->rank);
  RunStep(exchange);
  result.wrong = gradients->CountWrong(check->ranks, check->expected, check->wire);
  return result;
}

}  // namespace ronda::bench
