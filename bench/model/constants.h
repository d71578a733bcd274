// The numbers that the model is fed with, each with where it comes from. docs/scaling.md discusses them.
#ifndef RONDA_BENCH_MODEL_CONSTANTS_H_
#define RONDA_BENCH_MODEL_CONSTANTS_H_

#include "bench/model/log_gp.h"

namespace ronda::bench::model {

// Measured: ranks of one host, over shared memory, for messages that do not stay in the caches. Fitted to the rows of
// tests/bench/model/testdata/allreduce_2_ranks.txt.
LogGP MeasuredHost();

// Assumed: the share of a link's nominal bandwidth that large messages get. Calibrated with a published figure
// (published.h).
inline constexpr double kLinkEfficiency = 0.83;

// Assumed: a network of `gbit` Gbit/s with hardware that moves bytes without the CPU, such as RoCE or InfiniBand.
LogGP AssumedNetwork(double gbit);

// Assumed: seconds of the forward and backward pass of one rank's batch, on an accelerator of the 2020s.
inline constexpr double kResNet50Compute = 0.15;
inline constexpr double kBertLargeCompute = 0.3;

}  // namespace ronda::bench::model

#endif  // RONDA_BENCH_MODEL_CONSTANTS_H_
