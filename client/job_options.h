// SPDX-License-Identifier: Apache-2.0

// ronda_options: settings by which a program that calls ronda_init() overrides the environment. Pure.
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

// The content of ronda_options.
struct ClientOptions {
  Tunables tunables;                              // fields that the options do not set are unchanged
  std::vector<std::vector<RankId>> process_sets;  // to be added from the start, in this order
};

// Sets the fields of `client` that `options` set; a null `options` sets nothing.
// Errors: INVALID_ARGUMENT that names the option and gives advice.
absl::Status ApplyOptions(const ronda_options* options, ClientOptions* client);

// The environment as ronda_init() reads it. Options that give the process its place in the job replace the variables
// with the same meaning.
struct JobVariables {
  EnvironmentReader reader;
  std::string origin;  // for errors about those variables: " (ronda_options gives RONDA_RANK, RONDA_SIZE)"; or empty
};

// Replaces RONDA_RANK, RONDA_SIZE and the local numbers as soon as a size is given. The cross ranks, which options
// cannot give, are then hidden. Replaces RONDA_MASTER_ADDR, RONDA_MASTER_PORT, RONDA_JOB_SECRET and RONDA_EPOCH if the
// corresponding option is given. A size with a port describes the job completely, so it also hides RONDA_JOB_ID, which
// may come from an outer job. A null `options` replaces nothing. Pure. The reader of the variables checks the values.
//
// Errors: INVALID_ARGUMENT if an option lacks another one that it needs, or for a bad struct_size.
absl::StatusOr<JobVariables> OverrideEnvironment(const ronda_options* options, EnvironmentReader environment);

// The environment of a member of an elastic job in the epoch of `place`. Replaces the numbers of the place, RONDA_EPOCH
// and, if the place has an address, RONDA_MASTER_ADDR and RONDA_MASTER_PORT, because the environment has those of an
// earlier epoch. Pure.
EnvironmentReader EnvironmentAt(const EpochPlace& place, EnvironmentReader environment);

// Returns whether a process takes the place that its program gives, instead of the launcher's place. A null `options`
// gives no place.
// Errors: INVALID_ARGUMENT for an epoch without a place in an elastic job, because there the launcher counts the
// epochs.
absl::StatusOr<bool> HasOwnPlace(const ronda_options* options);

}  // namespace ronda

#endif  // RONDA_CLIENT_JOB_OPTIONS_H_
