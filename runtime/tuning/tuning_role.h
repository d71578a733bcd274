// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_TUNING_TUNING_ROLE_H_
#define RONDA_RUNTIME_TUNING_TUNING_ROLE_H_

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/tuning/autotuner.h"
#include "runtime/tuning/tuning_role.h"

namespace ronda {

// The settings of a job that the autotuner may change.
struct TunedSettings {
  size_t fusion_threshold = 0;  // bytes of a bucket
  size_t min_bucket_bytes = 0;  // a locked schedule's bucket of this size need not wait for more tensors
  size_t chunk_bytes = 0;       // collectives cut their data into chunks of this size; 0: the backend chooses
  absl::Duration cycle_time;    // longest time a tensor waits for others to fuse with

  friend bool operator==(const TunedSettings&, const TunedSettings&) = default;
};

// Returns, for example, "fusion threshold 4194304 bytes, ...".
std::string Describe(const TunedSettings& settings);

// The values that the autotuner can choose: for each setting, the default and a few values about a factor of four
// apart.
//
// Immutable.
class TuningSpace {
 public:
  // Point 0 is `defaults`: the user's settings, or Ronda's defaults.
  explicit TuningSpace(const TunedSettings& defaults);

  // Returns the number of values of each setting, for Autotuner::Options::grid.
  std::vector<size_t> grid() const;

  // REQUIRES: `point` is a point of grid().
  TunedSettings At(const TuningPoint& point) const;

 private:
  std::vector<std::vector<int64_t>> values_;  // of each dimension; the default first
};

// Writes autotune's measurements and decisions to a CSV file: one row per sample, and the choice in the last row. Each
// function flushes its row to the file before it returns. docs/autotune.md explains the columns.
//
// Thread-compatible. TuningLog owns the open file.
class TuningLog {
 public:
  // Creates the file `path`. Replaces any existing file.
  // Errors: the operating system's error, with the path.
  static absl::StatusOr<std::unique_ptr<TuningLog>> Create(const std::string& path);

  // `rounds` is the number of rounds so far, including warm-ups.
  // Errors: UNAVAILABLE with the path, if the file cannot be written.
  absl::Status AddSample(int rounds, const Autotuner::Measurement& measurement, const TunedSettings& settings);
  absl::Status AddChoice(int rounds, const TunedSettings& settings);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  TuningLog(std::string path, std::FILE* file) : path_(std::move(path)), file_(file) {}
  absl::Status Write(const std::string& row);

  const std::string path_;
  const std::unique_ptr<std::FILE, Close> file_;
};

// Autotune on rank 0: measures the rounds of the locked schedule, and chooses the settings. Only rounds of a locked
// schedule are measured, because only they repeat exactly. Connects the Autotuner, the TuningSpace and the TuningLog.
//
// New settings can only be applied while no schedule is locked. So when wants_change() is true, the owner makes the
// ranks unlock the schedule, sends the settings from TakeSettings(), and waits for the next schedule:
//
//   begin schedule -> ScheduleBegins, RoundEnds, RoundEnds, ... wants_change() -> unlock -> TakeSettings -> ...
//
// Thread-compatible. Reads no clock. Writes to the job's log and, if the options name one, to a log file.
class TuningRole {
 public:
  struct Options {
    TunedSettings defaults;      // initially applied
    int rounds_per_sample = 10;  // see Autotuner
    std::string log_path;        // empty: no log
    // If steps keep differing from each other for this long, but at least for `unlike_timeout_rounds` times the length
    // of a step, the search logs a warning, or ends.
    absl::Duration unlike_timeout = absl::Seconds(60);
    int unlike_timeout_rounds = 40;
  };

  explicit TuningRole(Options options);

  // Must be called before all other functions. Creates the log file, if the options name one.
  // Errors: the operating system's error, with the path.
  absl::Status Start();

  // Records that a schedule has been locked.
  void ScheduleBegins(absl::Time now);

  // Records that the ranks have completed a round of the schedule.
  void RoundEnds(absl::Time now);

  // Records that the ranks have negotiated tensors, outside of any schedule.
  void Negotiated(absl::Time now);

  // Returns whether settings other than the current ones should be applied.
  bool wants_change() const { return wanted_ != in_force_; }

  // Returns the new settings, which count as applied from now on, or nullopt if nothing has changed. REQUIRES: no
  // schedule is locked.
  std::optional<TunedSettings> TakeSettings();

  bool finished() const { return tuner_.finished(); }

 private:
  std::string UnlikeFor(absl::Time now) const;
  void LogSample(const Autotuner::Measurement& measurement);
  void Conclude();
  void KeepLogIf(const absl::Status& written);

  const Options options_;
  const TuningSpace space_;
  Autotuner tuner_;
  std::unique_ptr<TuningLog> log_;
  TunedSettings in_force_;
  TunedSettings wanted_;
  enum class Phase { kIdle, kMeasuring } phase_ = Phase::kIdle;
  absl::Time last_round_;                             // when the last round ended; while measuring
  absl::Duration round_time_;                         // of the last round
  absl::Time unlike_since_ = absl::InfiniteFuture();  // since when steps have differed
  enum class Warning { kNotYet, kGiven } warning_ = Warning::kNotYet;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_TUNING_TUNING_ROLE_H_
