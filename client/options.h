#ifndef RONDA_CLIENT_OPTIONS_H_
#define RONDA_CLIENT_OPTIONS_H_

#include <vector>

#include "absl/status/status.h"
#include "client/ronda.h"
#include "runtime/base/config.h"
#include "runtime/base/types.h"

namespace ronda {

// What ronda_options says.
struct ClientOptions {
  Tunables tunables;                              // what the options do not set is as it was
  std::vector<std::vector<RankId>> process_sets;  // to be added from the start, in this order
};

// Overrides in `client` what `options` sets; a null `options` sets nothing. Pure.
// Errors: INVALID_ARGUMENT that names the option and says what to do.
absl::Status ApplyOptions(const ronda_options* options, ClientOptions* client);

}  // namespace ronda

#endif  // RONDA_CLIENT_OPTIONS_H_
