// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_TESTS_BENCH_REPORT_SAMPLE_RUNS_H_
#define RONDA_TESTS_BENCH_REPORT_SAMPLE_RUNS_H_

#include <string>
#include <vector>

#include "bench/report/run_document.h"

namespace ronda::bench {

// Made-up, small results of two commands, as ronda-bench writes them.
std::string SampleStep();
std::string SampleLatency();

// Results of all commands, as if they had been read from files: collectives, latency, negotiation, startup, step.
std::vector<RunDocument> SampleRuns();

}  // namespace ronda::bench

#endif  // RONDA_TESTS_BENCH_REPORT_SAMPLE_RUNS_H_
