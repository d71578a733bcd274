// SPDX-License-Identifier: Apache-2.0

#include "bench/step/step_loop.h"

#include <time.h>

#include <algorithm>
#include <chrono>
#include <cmath>

namespace ronda::bench {
namespace {

clockid_t ClockOf(ComputeKind kind) { return kind == ComputeKind::kBurn ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC; }

absl::Duration Now(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return absl::DurationFromTimespec(now);
}

// Element i of rank r is (r + 1) * Pattern(i). With up to 8 ranks, these values and their sums are exact in 16 bits.
float Pattern(int64_t i) { return static_cast<float>(i % 13); }

// Returns the tolerance relative to the largest element of the tensor, which sets the scale of an 8-bit block.
// Contributions and the result are each rounded by at most half a unit in the last place.
double ToleranceOf(WireFormat wire) {
  switch (wire) {
    case WireFormat::kNone:
      return 1e-6;
    case WireFormat::kFloat16:
      return 1.0 / 1024;
    case WireFormat::kBfloat16:
      return 1.0 / 128;
    case WireFormat::kFp8E4M3:
      return 1.0 / 8;
    case WireFormat::kFp8E5M2:
      return 1.0 / 4;
  }
  return 0;
}

}  // namespace

std::vector<ReadyGradient> BackwardPass(const ModelShapes& model, absl::Duration compute) {
  double total = 0;
  for (const Parameter& parameter : model.parameters) total += parameter.work;
  const double even = total == 0 ? 1 : 0;
  if (total == 0) total = static_cast<double>(model.parameters.size());
  std::vector<ReadyGradient> pass;
  double done = 0;
  for (size_t i = model.parameters.size(); i-- > 0;) {
    done += model.parameters[i].work + even;
    pass.push_back({.parameter = i, .after = compute * (done / total)});
  }
  return pass;
}

Computation::Computation(ComputeKind kind) : kind_(kind), start_(Now(ClockOf(kind))) {}

void Computation::Until(absl::Duration duration) const {
  if (duration == absl::ZeroDuration()) return;
  const absl::Duration end = start_ + duration;
  if (kind_ == ComputeKind::kSleep) {
    const timespec until = absl::ToTimespec(end);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) != 0) {
    }
    return;
  }
  while (Now(ClockOf(kind_)) < end) {
  }
}

Gradients::Gradients(const ModelShapes& model) {
  for (const Parameter& parameter : model.parameters) {
    counts_.push_back(parameter.count());
    buffers_.emplace_back(static_cast<size_t>(parameter.count()) * sizeof(float));
  }
}

void Gradients::FillForTiming() {
  for (size_t tensor = 0; tensor < size(); ++tensor) std::fill_n(data(tensor), counts_[tensor], 1.0f);
}

void Gradients::FillForCheck(int rank) {
  for (size_t tensor = 0; tensor < size(); ++tensor) {
    for (int64_t i = 0; i < counts_[tensor]; ++i) data(tensor)[i] = static_cast<float>(rank + 1) * Pattern(i);
  }
}

int64_t Gradients::CountWrong(int ranks, Expected expected, WireFormat wire) const {
  const float sum = static_cast<float>(ranks * (ranks + 1)) / 2;
  const float factor = expected == Expected::kSum ? sum : sum / static_cast<float>(ranks);
  const double tolerance = ToleranceOf(wire) * factor * Pattern(12);
  int64_t wrong = 0;
  for (size_t tensor = 0; tensor < size(); ++tensor) {
    for (int64_t i = 0; i < counts_[tensor]; ++i) {
      // The negated comparison is also true for NaN, so NaN counts as wrong.
      if (!(std::abs(data(tensor)[i] - factor * Pattern(i)) <= tolerance)) ++wrong;
    }
  }
  return wrong;
}

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
