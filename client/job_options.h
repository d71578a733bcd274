// ronda_options: overrides of the environment, by the program that calls ronda_init(). Pure.
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

// Overrides in `client` what `options` sets; a null `options` sets nothing.
// Errors: INVALID_ARGUMENT that names the option and gives advice.
absl::Status ApplyOptions(const ronda_options* options, ClientOptions* client);

// The environment as ronda_init() sees it: options that tell the process its place in the job stand for the variables
// that say the same.
struct JobVariables {
  EnvironmentReader reader;
  std::string origin;  // for errors about those variables: " (ronda_options gives RONDA_RANK, RONDA_SIZE)"; or empty
};

// Replaces RONDA_RANK, RONDA_SIZE and the local ones as soon as a size is given: then the cross ranks are not the
// options' to say, and are hidden. Replaces RONDA_MASTER_ADDR, RONDA_MASTER_PORT, RONDA_JOB_SECRET and RONDA_EPOCH
// where these are given. A size with a port describes the job completely, so that RONDA_JOB_ID, which could be an outer
// job's, is hidden too. A null `options` replaces nothing. Pure. Values are checked by the reader of the variables.
//
// Errors: INVALID_ARGUMENT for options of which one lacks the other, and for a bad struct_size.
absl::StatusOr<JobVariables> OverrideEnvironment(const ronda_options* options, EnvironmentReader environment);

// The environment of a member of an elastic job in the epoch in which `place` is. Replaces the numbers of the place,
// RONDA_EPOCH and, if the place has an address, RONDA_MASTER_ADDR and RONDA_MASTER_PORT: they are those of an earlier
// epoch. Pure.
EnvironmentReader EnvironmentAt(const EpochPlace& place, EnvironmentReader environment);

// Whether a process takes the place that its program gives, and none of its launcher's. A null `options` gives none.
// Errors: INVALID_ARGUMENT for an epoch without a place in an elastic job, whose epochs the launcher counts.
absl::StatusOr<bool> HasOwnPlace(const ronda_options* options);

}  // namespace ronda

#endif  // RONDA_CLIENT_JOB_OPTIONS_H_
