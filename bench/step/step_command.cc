// SPDX-License-Identifier: Apache-2.0

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "bench/harness/command.h"
#include "bench/harness/job.h"
#include "bench/harness/model_shapes.h"
#include "bench/step/implementations.h"
#include "bench/step/step_loop.h"
#include "bench/step/step_options.h"
#include "bench/step/step_report.h"
#include "runtime/base/status_macros.h"

namespace ronda::bench {
namespace {

using Implementations = std::vector<std::unique_ptr<StepImplementation>>;

absl::StatusOr<Implementations> ImplementationsIn(const StepContext& context, const StepOptions& options) {
  Implementations implementations;
  implementations.push_back(ComputeOnly(context));
  for (const Setting& setting : AllSettings(options.sweep)) implementations.push_back(RondaWith(setting, context));
  for (const std::unique_ptr<Peer>& peer : context.rank.peers) {
    RONDA_ASSIGN_OR_RETURN(Implementations forms, FormsOf(peer.get(), context));
    for (std::unique_ptr<StepImplementation>& form : forms) implementations.push_back(std::move(form));
  }
  return implementations;
}

// Measures every model with every duration of the backward pass. Every rank must make the same calls. Throws
// ronda::Error. Thread-compatible.
class StepRun {
 public:
  StepRun(const StepOptions& options, Rank* rank) : options_(options), rank_(*rank) {}

  absl::Status Run(const std::vector<ModelShapes>& models) {
    cases_ = models.size() * options_.computes.size();
    for (const ModelShapes& model : models) {
      for (const absl::Duration compute : options_.computes) {
        RONDA_RETURN_IF_ERROR(RunCase(
            {.model = model, .compute = compute, .compute_kind = options_.compute_kind, .ranks = rank_.group.size()}));
        ++done_cases_;
      }
    }
    return absl::OkStatus();
  }

 private:
  absl::Status RunCase(const StepCase& step_case) {
    const StepLoop loop({.pass = BackwardPass(step_case.model, step_case.compute),
                         .compute_kind = step_case.compute_kind,
                         .warm_up = options_.warm_up,
                         .steps = options_.steps});
    Gradients gradients(step_case.model);
    const StepContext context = {.model = step_case.model, .loop = loop, .gradients = gradients, .rank = rank_};
    RONDA_ASSIGN_OR_RETURN(const Implementations implementations, ImplementationsIn(context, options_));
    const std::vector<Measured> measured = Measure(step_case, implementations);
    rank_.output.Print(StepTable(step_case, measured));
    for (ResultRow& row : StepRows(step_case, measured)) rank_.results.Add(std::move(row));
    for (const Measured& each : measured) {
      if (each.wrong == 0) continue;
      return absl::InternalError(absl::StrCat(each.wrong, " elements of ", step_case.model.name, " are wrong after \"",
                                              each.setting.has_value() ? Name(*each.setting) : each.name, "\""));
    }
    return absl::OkStatus();
  }

  // Runs blocks of the implementations in turn. Returns the measurements in the order of `implementations`.
  std::vector<Measured> Measure(const StepCase& step_case, const Implementations& implementations) {
    std::vector<Measured> measured;
    for (const auto& implementation : implementations) {
      measured.push_back({.name = implementation->name()});
      if (implementation->setting() != nullptr) measured.back().setting = *implementation->setting();
    }
    const double blocks = static_cast<double>(options_.rounds) * static_cast<double>(implementations.size());
    double done = 0;
    for (int round = 0; round < options_.rounds; ++round) {
      for (size_t i = 0; i < implementations.size(); ++i) {
        rank_.output.Progress((static_cast<double>(done_cases_) + done++ / blocks) / static_cast<double>(cases_),
                              absl::StrCat(step_case.model.name, ", ", measured[i].name));
        RunBlock(implementations[i].get(), round == 0 ? Checking::kOn : Checking::kOff, &measured[i]);
      }
    }
    return measured;
  }

  void RunBlock(StepImplementation* implementation, Checking checking, Measured* measured) {
    BlockResult result = implementation->RunBlock(checking);
    for (double& step : result.step_ms) step = rank_.group.Max(step);
    measured->steps.push_back(std::move(result.step_ms));
    measured->control_messages += rank_.group.Sum(result.control_messages);
    measured->wrong += rank_.group.Sum(result.wrong);
  }

  const StepOptions& options_;
  Rank& rank_;
  size_t cases_ = 0;
  size_t done_cases_ = 0;
};

int RunStep(const std::vector<std::string>& words) {
  StepOptions options;
  Flags flags = StepFlags(&options);
  int exit_code = 0;
  if (!ParseOrExplain(&flags, words, &exit_code)) return exit_code;
  options.job.backend = JobBackend(options.sweep.backends);
  const absl::StatusOr<std::vector<ModelShapes>> models = ModelsOf(options);
  if (!models.ok()) return Explain(models.status());
  return RunJob({.command = "step", .words = words, .options = options.job},
                [&](Rank& rank) { return StepRun(options, &rank).Run(*models); });
}

}  // namespace

Command StepCommand() {
  return {.name = "step", .summary = "the communication of training steps, of well-known models", .run = RunStep};
}

}  // namespace ronda::bench
