// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_BACKENDS_READ_CONFIG_H_
#define RONDA_RUNTIME_BACKENDS_READ_CONFIG_H_

#include "absl/status/statusor.h"
#include "runtime/base/config.h"
#include "runtime/base/environment.h"

namespace ronda {

// Reads the RONDA_* variables, and those of the launcher that started this process (see docs/configuration.md). Checks
// backend names against the registry.
//
// Errors: INVALID_ARGUMENT that names the variable, its value and the expected format.
absl::StatusOr<Config> ReadConfig(const EnvironmentReader& environment);

}  // namespace ronda

#endif  // RONDA_RUNTIME_BACKENDS_READ_CONFIG_H_
