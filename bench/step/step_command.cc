#include "bench/step/step_command.h"

#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "bench/backend.h"
#include "bench/job.h"
#include "bench/shapes/shapes.h"
#include "bench/step/backward.h"
#include "bench/step/contestants.h"
#include "bench/step/gradients.h"
#include "bench/step/measurement.h"
#include "bench/step/step_loop.h"
#include "bench/step/step_options.h"
#include "bench/step/step_report.h"
#include "client/ronda.hpp"
#include "runtime/base/status_macros.h"

namespace ronda::bench {
namespace {

// How far a run is, over all that it is to measure. Thread-compatible.
class TurnCount {
 public:
  TurnCount(size_t total, Output* output) : total_(total), output_(output) {}

  void Next(const std::string& label) {
    output_->Progress(static_cast<double>(done_++) / static_cast<double>(total_), label);
  }

 private:
  const size_t total_;
  Output* const output_;
  size_t done_ = 0;
};

absl::StatusOr<std::vector<std::unique_ptr<StepContestant>>> ContestantsIn(const Arena& arena,
                                                                           const StepOptions& options) {
  std::vector<std::unique_ptr<StepContestant>> contestants;
  contestants.push_back(ComputeOnly(arena));
  for (const Setting& setting : AllSettings(options.sweep)) contestants.push_back(RondaWith(setting, arena));
  for (const std::unique_ptr<Peer>& peer : arena.rank.peers) {
    RONDA_ASSIGN_OR_RETURN(std::vector<std::unique_ptr<StepContestant>> forms, FormsOf(peer.get(), arena));
    for (std::unique_ptr<StepContestant>& form : forms) contestants.push_back(std::move(form));
  }
  return contestants;
}

absl::Status MeasureCase(const StepCase& step_case, const StepOptions& options, TurnCount* turns, Rank* rank) {
  const StepLoop loop({.pass = BackwardPass(step_case.model, step_case.compute),
                       .compute_kind = step_case.compute_kind,
                       .warm_up = options.warm_up,
                       .steps = options.steps});
  Gradients gradients(step_case.model);
  const Arena arena = {.model = step_case.model, .loop = loop, .gradients = gradients, .rank = *rank};
  RONDA_ASSIGN_OR_RETURN(const std::vector<std::unique_ptr<StepContestant>> contestants, ContestantsIn(arena, options));
  const auto on_turn = [&](const std::string& name) { turns->Next(absl::StrCat(step_case.model.name, ", ", name)); };
  const std::vector<Measured> measured =
      Measure(contestants, {.rounds = options.rounds, .on_turn = on_turn}, &rank->team);
  rank->output.Print(StepTable(step_case, measured));
  for (ResultRow& row : StepRows(step_case, measured)) rank->results.Add(std::move(row));
  for (const Measured& contestant : measured) {
    if (contestant.wrong == 0) continue;
    return absl::InternalError(
        absl::StrCat(contestant.wrong, " elements of ", step_case.model.name, " are wrong after \"",
                     contestant.setting.has_value() ? Name(*contestant.setting) : contestant.name, "\""));
  }
  return absl::OkStatus();
}

absl::Status MeasureAll(const std::vector<ModelShapes>& models, const StepOptions& options, Rank* rank) {
  constexpr size_t kFormsOfAPeer = 2;
  const size_t contestants = 1 + AllSettings(options.sweep).size() + kFormsOfAPeer * rank->peers.size();
  TurnCount turns(models.size() * options.computes.size() * contestants * static_cast<size_t>(options.rounds),
                  &rank->output);
  for (const ModelShapes& model : models) {
    for (absl::Duration compute : options.computes) {
      const StepCase step_case = {
          .model = model, .compute = compute, .compute_kind = options.compute_kind, .ranks = rank->team.size()};
      RONDA_RETURN_IF_ERROR(MeasureCase(step_case, options, &turns, rank));
    }
  }
  return absl::OkStatus();
}

constexpr int kUsageError = 2;

int RunStep(const std::vector<std::string>& words) {
  StepOptions options;
  Flags flags = StepFlags(&options);
  int exit_code = 0;
  if (!ParseOrExplain(&flags, words, &exit_code)) return exit_code;
  options.job.backend = JobBackend(options.sweep.backends);
  const absl::StatusOr<std::vector<ModelShapes>> models = ModelsOf(options);
  if (!models.ok()) {
    std::fprintf(stderr, "ronda-bench: %s\n", std::string(models.status().message()).c_str());
    return kUsageError;
  }
  return RunJob({.command = "step", .words = words, .options = options.job}, [&](Rank& rank) -> absl::Status {
    try {
      return MeasureAll(*models, options, &rank);
    } catch (const Error& error) {
      return absl::InternalError(error.what());
    }
  });
}

}  // namespace

Command StepCommand() {
  return {.name = "step", .summary = "the communication of training steps, of well-known models", .run = RunStep};
}

}  // namespace ronda::bench
