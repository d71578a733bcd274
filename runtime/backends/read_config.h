// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_BACKENDS_READ_CONFIG_H_
#define RONDA_RUNTIME_BACKENDS_READ_CONFIG_H_

#include "absl/status/statusor.h"
#include "runtime/base/config.h"
#include "runtime/base/environment.h"

namespace ronda {

// Reads the variables RONDA_* and the variables of the launcher that started this process (see docs/configuration.md).
// Checks the names of backends against the registry.
//
// Errors: INVALID_ARGUMENT that names the variable, its value and the right form of a value.
absl::StatusOr<Config> ReadConfig(const EnvironmentReader& environment);

}  // namespace ronda

#endif  // RONDA_RUNTIME_BACKENDS_READ_CONFIG_H_
