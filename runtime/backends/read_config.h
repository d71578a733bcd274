// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_BACKENDS_READ_CONFIG_H_
#define RONDA_RUNTIME_BACKENDS_READ_CONFIG_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/base/config.h"
#include "runtime/base/environment.h"

namespace ronda {

// The values that some settings of Tunables may have, whether they come from the environment or from the program
// (ronda_options).
inline constexpr IntegerRange kCacheCapacityRange = {.min = 0, .max = int64_t{1} << 24};
inline constexpr DurationRange kCycleTimeRange = {
    .max = absl::Hours(1),
    .expectation = "a duration from 0 to 1h with a unit, such as 1ms",
    .plain_number = DurationRange::PlainNumber::kNothing};  // HOROVOD_CYCLE_TIME counts milliseconds
inline constexpr DurationRange kStallWarningRange = {
    .min = absl::Nanoseconds(1),
    .expectation = "a duration above zero such as 60 (seconds) or 10m, or inf for no warning"};
inline constexpr DurationRange kStallDeadlineRange = {
    .min = absl::Nanoseconds(1),
    .expectation = "a duration above zero such as 60 (seconds) or 10m, or inf for no deadline"};
inline constexpr DurationRange kStartTimeoutRange = {
    .min = absl::Milliseconds(1),
    .max = absl::Hours(24),
    .expectation = "a duration from 1ms to 24h, such as 30 (seconds) or 2m"};

// Reads the RONDA_* variables, and those of the launcher that started this process (see docs/configuration.md). Checks
// backend names against the registry.
//
// Errors: INVALID_ARGUMENT that names the variable, its value and the expected format.
absl::StatusOr<Config> ReadConfig(const EnvironmentReader& environment);

}  // namespace ronda

#endif  // RONDA_RUNTIME_BACKENDS_READ_CONFIG_H_
