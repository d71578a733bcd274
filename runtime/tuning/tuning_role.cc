#include "runtime/tuning/tuning_role.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/logging.h"
#include "runtime/base/types.h"

namespace ronda {
namespace {

constexpr int kWarmUpRounds = 3;
constexpr int kMaxSamples = 46;

Autotuner::Options TunerOptions(const TuningSpace& space, int rounds_per_sample) {
  return {.grid = space.grid(),
          .rounds_per_sample = rounds_per_sample,
          .warm_up_rounds = kWarmUpRounds,
          .max_rounds = kMaxSamples * (kWarmUpRounds + rounds_per_sample)};
}

}  // namespace

TuningRole::TuningRole(Options options)
    : options_(std::move(options)),
      space_(options_.defaults),
      tuner_(TunerOptions(space_, options_.rounds_per_sample)),
      in_force_(options_.defaults),
      wanted_(options_.defaults) {}

absl::Status TuningRole::Start() {
  if (options_.log_path.empty()) return absl::OkStatus();
  auto log = TuningLog::Create(options_.log_path);
  if (!log.ok()) {
    return absl::Status(log.status().code(), absl::StrCat("RONDA_AUTOTUNE_LOG: ", log.status().message()));
  }
  log_ = *std::move(log);
  return absl::OkStatus();
}

void TuningRole::ScheduleBegins(absl::Time now) {
  if (finished() || wants_change()) return;
  phase_ = Phase::kMeasuring;
  last_round_ = now;
  tuner_.BeginMeasuring();
}

// After a sample that asks for other settings, rounds may go on until the ranks have left the schedule.
void TuningRole::RoundEnds(absl::Time now) {
  if (phase_ != Phase::kMeasuring) return;
  unlike_since_ = absl::InfiniteFuture();
  round_time_ = now - std::exchange(last_round_, now);
  const std::optional<Autotuner::Measurement> measurement = tuner_.AddRound(round_time_);
  if (measurement) LogSample(*measurement);
  wanted_ = space_.At(tuner_.point());
  if (finished()) Conclude();
  if (finished() || wants_change()) phase_ = Phase::kIdle;
}

void TuningRole::Negotiated(absl::Time now) {
  phase_ = Phase::kIdle;
  if (finished()) return;
  unlike_since_ = std::min(unlike_since_, now);
  if (now - unlike_since_ < std::max(options_.patience, options_.patience_rounds * round_time_)) return;
  if (tuner_.rounds() > 0) {
    Log(LogLevel::kWarning, kCoordinatorRank, absl::StrCat("autotune ends early: ", UnlikeFor(now)));
    tuner_.GiveUp();
    wanted_ = options_.defaults;
    return Conclude();
  }
  if (std::exchange(warning_, Warning::kGiven) == Warning::kGiven) return;
  Log(LogLevel::kWarning, kCoordinatorRank,
      absl::StrCat("autotune has nothing to measure: ", UnlikeFor(now),
                   "; until one is, the settings stay as they are"));
}

std::string TuningRole::UnlikeFor(absl::Time now) const {
  return absl::StrCat(
      "for ", absl::FormatDuration(now - unlike_since_),
      " no schedule has been locked (the steps differ, or RONDA_LOCK_AFTER or RONDA_CACHE_CAPACITY is 0)");
}

std::optional<TunedSettings> TuningRole::TakeSettings() {
  if (!wants_change()) return std::nullopt;
  in_force_ = wanted_;
  return in_force_;
}

void TuningRole::LogSample(const Autotuner::Measurement& measurement) {
  if (log_ != nullptr) KeepLogIf(log_->AddSample(tuner_.rounds(), measurement, space_.At(measurement.point)));
}

void TuningRole::Conclude() {
  Log(LogLevel::kInfo, kCoordinatorRank,
      absl::StrCat("autotune: after ", tuner_.rounds(), " steps the choice is ",
                   wanted_ == options_.defaults ? "to keep " : "", Describe(wanted_)));
  if (log_ != nullptr) KeepLogIf(log_->AddChoice(tuner_.rounds(), wanted_));
  log_.reset();
}

// An error ends the log, not the job.
void TuningRole::KeepLogIf(const absl::Status& written) {
  if (written.ok()) return;
  Log(LogLevel::kWarning, kCoordinatorRank, absl::StrCat(written.message(), ": it ends here"));
  log_.reset();
}

}  // namespace ronda
