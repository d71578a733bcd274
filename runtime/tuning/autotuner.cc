// SPDX-License-Identifier: Apache-2.0

#include "runtime/tuning/autotuner.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "runtime/base/logging.h"

namespace ronda {
namespace {

// Appends the round times of `sample`, divided by `unit`.
void AppendRelative(const Sample& sample, double unit, std::vector<double>* relative) {
  for (const double round : sample.microseconds()) relative->push_back(round / unit);
}

}  // namespace

Sample::Sample(std::vector<double> microseconds) : microseconds_(std::move(microseconds)) {
  RONDA_CHECK(!microseconds_.empty());
  std::sort(microseconds_.begin(), microseconds_.end());
}

double Sample::Quantile(double fraction) const {
  const double place = fraction * static_cast<double>(microseconds_.size() - 1);
  const auto below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, microseconds_.size() - 1);
  return std::lerp(microseconds_[below], microseconds_[above], place - static_cast<double>(below));
}

double Sample::median_error() const {
  return 1.57 * (upper_quartile() - lower_quartile()) / std::sqrt(static_cast<double>(microseconds_.size()));
}

bool IsFaster(absl::Span<const Sample> challenger, absl::Span<const Sample> incumbent, double min_gain) {
  RONDA_CHECK(challenger.size() == incumbent.size());
  std::vector<double> challenger_rounds;
  std::vector<double> incumbent_rounds;
  for (size_t pair = 0; pair < incumbent.size(); ++pair) {
    const double unit = incumbent[pair].median();
    if (challenger[pair].median() > (1 - min_gain) * unit) return false;
    AppendRelative(challenger[pair], unit, &challenger_rounds);
    AppendRelative(incumbent[pair], unit, &incumbent_rounds);
  }
  const Sample challengers(std::move(challenger_rounds));
  const Sample incumbents(std::move(incumbent_rounds));
  return challengers.median() + challengers.median_error() < incumbents.median() - incumbents.median_error();
}

Autotuner::Autotuner(Options options) : options_(std::move(options)), incumbent_(defaults()) {
  RONDA_CHECK(options_.rounds_per_sample > 0);
  RONDA_CHECK(!options_.grid.empty());
  dimension_ = options_.grid.size() - 1;
  BeginMeasuring();
  NextDimension();
}

std::optional<Autotuner::Measurement> Autotuner::AddRound(absl::Duration time) {
  RONDA_CHECK(!finished_);
  ++rounds_;
  if (warm_up_left_ > 0) {
    --warm_up_left_;
  } else {
    microseconds_.push_back(absl::ToDoubleMicroseconds(time));
  }
  std::optional<Measurement> measurement;
  if (microseconds_.size() == static_cast<size_t>(options_.rounds_per_sample)) {
    BeginMeasuring();
    samples_.emplace_back(std::exchange(microseconds_, {}));
    measurement.emplace(Measurement{plan_[samples_.size() - 1], samples_.back(), stage_, Decision::kNone});
    if (samples_.size() == plan_.size()) measurement->decision = ConcludeStage();
  }
  if (!finished_ && rounds_ >= options_.max_rounds) GiveUp();
  return measurement;
}

// Returns whether enough rounds are left for `samples` more samples and for the final duel.
bool Autotuner::CanAfford(size_t samples) const {
  const size_t all = samples + 2 * static_cast<size_t>(options_.final_pairs);
  const auto rounds_per_sample = static_cast<size_t>(options_.warm_up_rounds + options_.rounds_per_sample);
  return static_cast<size_t>(rounds_) + all * rounds_per_sample <= static_cast<size_t>(options_.max_rounds);
}

Autotuner::Decision Autotuner::ConcludeStage() {
  switch (stage_) {
    case Stage::kScreening:
      return ConcludeScreening();
    case Stage::kDuel:
      return ConcludeDuel();
    case Stage::kFinal:
      return ConcludeFinal();
  }
  return Decision::kNone;
}

Autotuner::Decision Autotuner::ConcludeScreening() {
  std::vector<std::pair<double, TuningPoint>> better;
  for (Candidate& candidate : candidates_) {
    const double ratio = samples_[candidate.sample].median() / samples_[candidate.reference].median();
    if (ratio <= 1 - options_.min_gain) better.emplace_back(ratio, std::move(candidate.point));
  }
  std::sort(better.begin(), better.end());
  const size_t duels = std::min(better.size(), static_cast<size_t>(options_.duels_per_dimension));
  challengers_.clear();
  for (size_t i = duels; i > 0; --i) challengers_.push_back(std::move(better[i - 1].second));
  return NextDuel();
}

Autotuner::Decision Autotuner::ConcludeDuel() {
  if (!ChallengerWins()) return NextDuel();
  incumbent_ = plan_.front();
  settled_ = 1;
  NextDimension();
  return Decision::kReplaced;
}

Autotuner::Decision Autotuner::ConcludeFinal() {
  const bool wins = ChallengerWins();
  Finish(wins ? incumbent_ : defaults());
  return wins ? Decision::kReplaced : Decision::kKept;
}

// Plans to measure the incumbent, then two other values, then the incumbent again, and so on, so that every value is
// measured next to the incumbent.
void Autotuner::PlanScreening() {
  stage_ = Stage::kScreening;
  plan_ = {incumbent_};
  samples_.clear();
  candidates_.clear();
  for (size_t value = 0; value < options_.grid[dimension_]; ++value) {
    if (value == incumbent_[dimension_]) continue;
    const bool behind_incumbent = candidates_.size() % 2 == 0;
    TuningPoint point = incumbent_;
    point[dimension_] = value;
    candidates_.push_back({point, plan_.size(), behind_incumbent ? plan_.size() - 1 : plan_.size() + 1});
    plan_.push_back(std::move(point));
    if (!behind_incumbent) plan_.push_back(incumbent_);
  }
}

void Autotuner::PlanDuel(const TuningPoint& first, const TuningPoint& second, int pairs) {
  plan_.clear();
  samples_.clear();
  for (int pair = 0; pair < pairs; ++pair) {
    plan_.push_back(first);
    plan_.push_back(second);
  }
}

// In each pair of a duel's plan the challenger comes first.
bool Autotuner::ChallengerWins() const {
  std::vector<Sample> challenger;
  std::vector<Sample> incumbent;
  for (size_t i = 0; i < samples_.size(); i += 2) {
    challenger.push_back(samples_[i]);
    incumbent.push_back(samples_[i + 1]);
  }
  return IsFaster(challenger, incumbent, options_.min_gain);
}

Autotuner::Decision Autotuner::NextDuel() {
  if (challengers_.empty() || !CanAfford(2 * static_cast<size_t>(options_.duel_pairs))) {
    NextDimension();
    return Decision::kKept;
  }
  stage_ = Stage::kDuel;
  PlanDuel(challengers_.back(), incumbent_, options_.duel_pairs);
  challengers_.pop_back();
  return Decision::kDuel;
}

void Autotuner::NextDimension() {
  while (settled_ < options_.grid.size()) {
    dimension_ = (dimension_ + 1) % options_.grid.size();
    ++settled_;
    if (options_.grid[dimension_] == 1) continue;
    PlanScreening();
    if (!CanAfford(plan_.size())) break;
    return;
  }
  BeginFinal();
}

void Autotuner::BeginFinal() {
  if (incumbent_ == defaults()) return Finish(defaults());
  stage_ = Stage::kFinal;
  PlanDuel(incumbent_, defaults(), options_.final_pairs);
}

void Autotuner::Finish(TuningPoint choice) {
  incumbent_ = std::move(choice);
  finished_ = true;
}

absl::string_view Name(Autotuner::Stage stage) {
  switch (stage) {
    case Autotuner::Stage::kScreening:
      return "screening";
    case Autotuner::Stage::kDuel:
      return "duel";
    case Autotuner::Stage::kFinal:
      return "final";
  }
  return "";
}

absl::string_view Name(Autotuner::Decision decision) {
  switch (decision) {
    case Autotuner::Decision::kNone:
      return "";
    case Autotuner::Decision::kDuel:
      return "duel";
    case Autotuner::Decision::kKept:
      return "kept";
    case Autotuner::Decision::kReplaced:
      return "replaced";
  }
  return "";
}

}  // namespace ronda
