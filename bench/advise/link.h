// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_BENCH_ADVISE_LINK_H_
#define RONDA_BENCH_ADVISE_LINK_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/advise/advice.h"
#include "bench/model/predictions.h"

namespace ronda::bench {

// Selects the ranks among which allreduces are timed, and the largest size.
struct LinkRequest {
  int ranks = 2;
  int members = 2;                            // of the ring of these ranks: Plan::members
  std::vector<std::string> rondarun_options;  // "-H", "alpha:1,beta:1"
  double largest = 0;                         // bytes
};

// Starts ranks that time allreduces through Ronda's client. Times each combination of size and wire format separately,
// and for long enough to empty the link's token bucket. Errors: NOT_FOUND if rondarun is not installed; INTERNAL if the
// ranks fail.
absl::StatusOr<std::vector<WireOnLink>> MeasureLink(const LinkRequest& request);

// The main function of a rank that MeasureLink() has started. `words` are the arguments after "advise". Returns its
// exit code.
int RunAsLinkRank(const std::vector<std::string>& words);

// Like MeasureLink(), but computes the times with bench/model's formulas. `link` connects hosts of `local_size` ranks
// each.
std::vector<WireOnLink> LinkFromNumbers(const model::MeasuredLink& link, int local_size);

}  // namespace ronda::bench

#endif  // RONDA_BENCH_ADVISE_LINK_H_
