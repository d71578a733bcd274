// SPDX-License-Identifier: Apache-2.0

// Reads ronda_options, the settings that a program passes to ronda_init() to override the environment. Pure.
#ifndef RONDA_CLIENT_JOB_OPTIONS_H_
#define RONDA_CLIENT_JOB_OPTIONS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/ronda.h"
#include "runtime/base/config.h"
#include "runtime/base/environment.h"
#include "runtime/base/types.h"
#include "runtime/elastic/membership_message.h"

namespace ronda {

// The settings that ronda_options contains.
struct ClientOptions {
  Tunables tunables;                              // fields that the options do not set are unchanged
  std::vector<std::vector<RankId>> process_sets;  // to be added from the start, in this order
};

// Sets the fields of `client` that `options` set; a null `options` sets nothing.
// Errors: INVALID_ARGUMENT that names the option and gives advice.
absl::Status ApplyOptions(const ronda_options* options, ClientOptions* client);

// The environment that ronda_init() reads. Options that give the process its place in the job (rank, size, address and
// so on) replace the variables with the same meaning.
struct JobVariables {
  EnvironmentReader reader;
  std::string origin;  // for errors about those variables: " (ronda_options gives RONDA_RANK, RONDA_SIZE)"; or empty
};

// A size in the options replaces RONDA_RANK and RONDA_SIZE. It also hides the local and cross ranks and sizes; of
// these, the options can only set the local ones. Replaces RONDA_MASTER_ADDR, RONDA_MASTER_PORT, RONDA_JOB_SECRET and
// RONDA_EPOCH if the corresponding option is given. A size with a port describes the job completely, so the two also
// hide RONDA_JOB_ID, which may come from an outer job. A null `options` replaces nothing. Pure. Does not validate the
// values; the code that reads the variables does.
//
// Errors: INVALID_ARGUMENT if an option needs another option that is missing, or if struct_size is wrong.
absl::StatusOr<JobVariables> OverrideEnvironment(const ronda_options* options, EnvironmentReader environment);

// Returns the environment of a member of an elastic job in the epoch of `place`. Replaces ranks, sizes, RONDA_EPOCH
// and, if `place` has an address, RONDA_MASTER_ADDR and RONDA_MASTER_PORT, because their values in `environment` belong
// to an earlier epoch. Pure.
EnvironmentReader EnvironmentAt(const EpochPlace& place, EnvironmentReader environment);

// Returns whether `options` give this process its rank, which then takes precedence over the launcher's. Null `options`
// give no rank.
// Errors: INVALID_ARGUMENT if the options give an epoch but no size, because in an elastic job the launcher numbers the
// epochs.
absl::StatusOr<bool> HasOwnPlace(const ronda_options* options);

}  // namespace ronda

#endif  // RONDA_CLIENT_JOB_OPTIONS_H_
