#ifndef RONDA_RUNTIME_TUNING_TUNING_ROLE_H_
#define RONDA_RUNTIME_TUNING_TUNING_ROLE_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "runtime/tuning/autotuner.h"
#include "runtime/tuning/tuning_log.h"
#include "runtime/tuning/tuning_space.h"

namespace ronda {

// What rank 0 does on top of coordinating when autotune is on: measures how long the rounds of the locked schedule
// take, and says which settings to put in force. Rounds are measured in the locked schedule alone, because only there
// all steps are alike. Joins the autotuner, the space and the log.
//
// Other settings can be put in force only while no schedule is locked. So the owner leaves the schedule when
// wants_change() says so, sends what TakeSettings() returns, and waits for the next schedule:
//
//   begin schedule -> ScheduleBegins, RoundEnds, RoundEnds, ... wants_change() -> leave -> TakeSettings -> ...
//
// Thread-compatible. Reads no clock; writes the log of the job and, if asked to, its own.
class TuningRole {
 public:
  struct Options {
    TunedSettings defaults;      // in force at the beginning
    int rounds_per_sample = 10;  // see Autotuner
    std::string log_path;        // empty: there is none
    // How long steps may go on without one that repeats itself, until that is reported, and until settings that are
    // being tried are given up; and at least so many times a step.
    absl::Duration patience = absl::Seconds(60);
    int patience_rounds = 40;
  };

  explicit TuningRole(Options options);

  // To be called first: begins the log, if the options ask for one.
  // Errors: the operating system's, with the path.
  absl::Status Start();

  // A schedule has been locked.
  void ScheduleBegins(absl::Time now);

  // All of it has been carried out once more.
  void RoundEnds(absl::Time now);

  // Tensors have been agreed on outside of any schedule.
  void Negotiated(absl::Time now);

  // Settings other than those in force are to be.
  bool wants_change() const { return wanted_ != in_force_; }

  // These settings, which count as in force from now on; nullopt if there is nothing to change.
  // REQUIRES: no schedule is locked.
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
  absl::Time last_round_;                             // when it ended; while measuring
  absl::Duration round_time_;                         // of the last round
  absl::Time unlike_since_ = absl::InfiniteFuture();  // steps have not repeated themselves since
  enum class Warning { kNotYet, kGiven } warning_ = Warning::kNotYet;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_TUNING_TUNING_ROLE_H_
