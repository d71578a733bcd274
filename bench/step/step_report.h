#ifndef RONDA_BENCH_STEP_STEP_REPORT_H_
#define RONDA_BENCH_STEP_STEP_REPORT_H_

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "bench/results.h"
#include "bench/shapes/shapes.h"
#include "bench/step/backward.h"
#include "bench/step/measured.h"

namespace ronda::bench {

// What was measured: a model, with so much computation, on so many ranks.
struct StepCase {
  const ModelShapes& model;
  absl::Duration compute;
  ComputeKind compute_kind = ComputeKind::kSpin;
  int ranks = 1;
};

const char* Name(ComputeKind kind);

// A table of the contestants, and a line before it that says what they did. `measured` are the contestants' figures,
// that which only computes first.
std::string StepTable(const StepCase& step_case, const std::vector<Measured>& measured);

// The same as rows of a result document:
//
//   preset, tensors, elements, bytes, ranks, compute_ms, compute_kind; contestant; of Ronda's fusion_threshold, wire,
//   cycle_time_us, backend, lock, wire_bytes, control_messages (of all ranks, a step); step_ms, step_ms_p10,
//   step_ms_p90, compute_only_ms, exposed_ms, efficiency (if anything is computed); of Ronda's also
//   ratio_NAME_OF_PEER for each peer; wrong
std::vector<ResultRow> StepRows(const StepCase& step_case, const std::vector<Measured>& measured);

}  // namespace ronda::bench

#endif  // RONDA_BENCH_STEP_STEP_REPORT_H_
