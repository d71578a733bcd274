#include "bench/step/measurement.h"

#include <utility>

namespace ronda::bench {
namespace {

void TakeTurn(StepContestant* contestant, Checking checking, Team* team, Measured* measured) {
  BlockResult result = contestant->RunBlock(checking);
  for (double& step : result.step_ms) step = team->Max(step);
  measured->steps.push_back(std::move(result.step_ms));
  measured->control_messages += team->Sum(result.control_messages);
  measured->wrong += team->Sum(result.wrong);
}

}  // namespace

std::vector<Measured> Measure(const std::vector<std::unique_ptr<StepContestant>>& contestants,
                              const MeasurementOptions& options, Team* team) {
  std::vector<Measured> all;
  for (const auto& contestant : contestants) {
    Measured& measured = all.emplace_back();
    measured.name = contestant->name();
    if (contestant->setting() != nullptr) measured.setting = *contestant->setting();
  }
  for (int round = 0; round < options.rounds; ++round) {
    for (size_t i = 0; i < contestants.size(); ++i) {
      options.on_turn(all[i].name);
      TakeTurn(contestants[i].get(), round == 0 ? Checking::kOn : Checking::kOff, team, &all[i]);
    }
  }
  return all;
}

}  // namespace ronda::bench
