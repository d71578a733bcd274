// SPDX-License-Identifier: Apache-2.0

#include "runtime/tuning/tuning_role.h"

#include <algorithm>
#include <cerrno>
#include <initializer_list>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/base/logging.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/types.h"

namespace ronda {
namespace {

constexpr int64_t kKiB = 1024;
constexpr int64_t kMiB = 1024 * kKiB;

std::vector<int64_t> Values(int64_t first, std::initializer_list<int64_t> others) {
  std::vector<int64_t> values = {first};
  for (const int64_t other : others) {
    if (other != first) values.push_back(other);
  }
  return values;
}

constexpr char kHeader[] =
    "rounds,stage,fusion_threshold_bytes,min_bucket_bytes,chunk_bytes,cycle_time_us,lower_quartile_us,median_us,"
    "upper_quartile_us,decision\n";

std::string Columns(const TunedSettings& settings) {
  return absl::StrCat(settings.fusion_threshold, ",", settings.min_bucket_bytes, ",", settings.chunk_bytes, ",",
                      absl::ToDoubleMicroseconds(settings.cycle_time));
}

constexpr int kWarmUpRounds = 3;
constexpr int kMaxSamples = 46;

Autotuner::Options TunerOptions(const TuningSpace& space, int rounds_per_sample) {
  return {.grid = space.grid(),
          .rounds_per_sample = rounds_per_sample,
          .warm_up_rounds = kWarmUpRounds,
          .max_rounds = kMaxSamples * (kWarmUpRounds + rounds_per_sample)};
}

}  // namespace

std::string Describe(const TunedSettings& settings) {
  return absl::StrCat(
      "fusion threshold ", settings.fusion_threshold, " bytes, smallest bucket ", settings.min_bucket_bytes,
      " bytes, chunks of ",
      settings.chunk_bytes == 0 ? "the backend's own size" : absl::StrCat(settings.chunk_bytes, " bytes"),
      ", cycle time ", absl::FormatDuration(settings.cycle_time));
}

// Omits a threshold of 0 (no fusion), because without fusion a schedule cannot contain tensor groups.
TuningSpace::TuningSpace(const TunedSettings& defaults)
    : values_({Values(static_cast<int64_t>(defaults.fusion_threshold),
                      {512 * kKiB, 4 * kMiB, 16 * kMiB, 64 * kMiB, 256 * kMiB}),
               Values(static_cast<int64_t>(defaults.min_bucket_bytes), {256 * kKiB, kMiB, 4 * kMiB, 16 * kMiB}),
               Values(static_cast<int64_t>(defaults.chunk_bytes), {0, 128 * kKiB, 256 * kKiB, kMiB}),
               Values(absl::ToInt64Nanoseconds(defaults.cycle_time), {0, 200'000, 1'000'000})}) {}

std::vector<size_t> TuningSpace::grid() const {
  std::vector<size_t> grid;
  for (const std::vector<int64_t>& values : values_) grid.push_back(values.size());
  return grid;
}

TunedSettings TuningSpace::At(const TuningPoint& point) const {
  return {.fusion_threshold = static_cast<size_t>(values_[0].at(point.at(0))),
          .min_bucket_bytes = static_cast<size_t>(values_[1].at(point.at(1))),
          .chunk_bytes = static_cast<size_t>(values_[2].at(point.at(2))),
          .cycle_time = absl::Nanoseconds(values_[3].at(point.at(3)))};
}

absl::StatusOr<std::unique_ptr<TuningLog>> TuningLog::Create(const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "wbe");
  if (file == nullptr) return absl::ErrnoToStatus(errno, absl::StrCat("cannot create ", path));
  std::unique_ptr<TuningLog> log(new TuningLog(path, file));
  RONDA_RETURN_IF_ERROR(log->Write(kHeader));
  return log;
}

absl::Status TuningLog::AddSample(int rounds, const Autotuner::Measurement& measurement,
                                  const TunedSettings& settings) {
  const Sample& sample = measurement.sample;
  return Write(absl::StrFormat("%d,%s,%s,%.1f,%.1f,%.1f,%s\n", rounds, Name(measurement.stage), Columns(settings),
                               sample.lower_quartile(), sample.median(), sample.upper_quartile(),
                               Name(measurement.decision)));
}

absl::Status TuningLog::AddChoice(int rounds, const TunedSettings& settings) {
  return Write(absl::StrFormat("%d,choice,%s,,,,chosen\n", rounds, Columns(settings)));
}

absl::Status TuningLog::Write(const std::string& row) {
  if (std::fwrite(row.data(), 1, row.size(), file_.get()) == row.size() && std::fflush(file_.get()) == 0) {
    return absl::OkStatus();
  }
  return absl::UnavailableError(absl::StrCat("cannot write the autotuner's log ", path_));
}

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

// If a sample leads to new settings, more rounds may end before the ranks unlock the schedule. Ignores these rounds.
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
  if (now - unlike_since_ < std::max(options_.unlike_timeout, options_.unlike_timeout_rounds * round_time_)) return;
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

// If writing fails, closes the log, and the job continues.
void TuningRole::KeepLogIf(const absl::Status& written) {
  if (written.ok()) return;
  Log(LogLevel::kWarning, kCoordinatorRank, absl::StrCat(written.message(), ": it ends here"));
  log_.reset();
}

}  // namespace ronda
