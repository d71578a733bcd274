// SPDX-License-Identifier: Apache-2.0

// Measures what step_done() costs in a training step: the second measurement of `ronda-bench elastic`.
#ifndef RONDA_BENCH_ELASTIC_STEPS_H_
#define RONDA_BENCH_ELASTIC_STEPS_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "bench/harness/results.h"

namespace ronda::bench {

struct ElasticStepOptions {
  int ranks = 2;
  size_t bytes = 0;                                                                       // of a step's gradients
  int tensors = 10;                                                                       // of the gradients
  int steps = 200;                                                                        // per block
  int rounds = 50;                                                                        // of blocks
  std::vector<absl::Duration> compute = {absl::ZeroDuration(), absl::Microseconds(200)};  // of a step; one run each
};

// Runs as a member of the job. Times blocks of steps that end with no call, with should_stop(), or with step_done(), in
// turn. Rank 0 sends the result rows to the process that started the job. Returns the exit code of the process.
int RunStepsAsMember(const ElasticStepOptions& options);

// Starts the job and prints its result rows; its members get `words` as the arguments of `ronda-bench elastic`. Errors:
// those of the launcher; INTERNAL if the job fails.
absl::Status MeasureSteps(const ElasticStepOptions& options, const std::vector<std::string>& words, Results* results);

}  // namespace ronda::bench

#endif  // RONDA_BENCH_ELASTIC_STEPS_H_
