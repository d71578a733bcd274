#ifndef RONDA_TESTS_BENCH_REPORT_SAMPLE_RUNS_H_
#define RONDA_TESTS_BENCH_REPORT_SAMPLE_RUNS_H_

#include <string>
#include <vector>

#include "bench/report/run_document.h"

namespace ronda::bench {

// Results of each command, small and made up, as ronda-bench writes them.
std::string SampleCollectives();
std::string SampleStep();
std::string SampleSweep();
std::string SampleLatency();
std::string SampleStartup();
std::string SampleNegotiation();

// All of them, as if they had been read from files: collectives, latency, negotiation, startup, step, sweep.
std::vector<RunDocument> SampleRuns();

}  // namespace ronda::bench

#endif  // RONDA_TESTS_BENCH_REPORT_SAMPLE_RUNS_H_
