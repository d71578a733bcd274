// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_BENCH_STEP_STEP_REPORT_H_
#define RONDA_BENCH_STEP_STEP_REPORT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "bench/harness/model_shapes.h"
#include "bench/harness/results.h"
#include "bench/step/step_loop.h"
#include "bench/step/step_options.h"

namespace ronda::bench {

// The step times of one implementation in milliseconds, with one vector per round. All rounds have the same number of
// steps.
using Rounds = std::vector<std::vector<double>>;

// The figures for an implementation's steps, in milliseconds.
struct StepFigures {
  double step = 0;      // the median of the rounds' medians
  double step_p10 = 0;  // over all steps
  double step_p90 = 0;
  double exposed = 0;                // communication beyond the step that only computes: below 0 only by noise
  std::optional<double> efficiency;  // the step that only computes divided by this one; nullopt if nothing is computed
};

// Returns the figures of `steps`. `compute_only` are steps of the same job without communication, which alternated with
// `steps`. `computes` says whether the steps compute anything. REQUIRES: `steps`, `compute_only` and all their rounds
// are non-empty.
enum class Computes { kNothing, kSomething };
StepFigures FiguresOf(const Rounds& steps, const Rounds& compute_only, Computes computes);

// Returns the time of `other` divided by the time of `own`, which is above 1 if `own` is faster. Compares the medians
// over the rounds. REQUIRES: `other`, `own` and all their rounds are non-empty; the time of `own` is not 0.
double RatioOf(const Rounds& other, const Rounds& own);

// An implementation's blocks, on the slowest rank.
struct Measured {
  std::string name;
  std::optional<Setting> setting;  // of Ronda's
  Rounds steps;
  int64_t control_messages = 0;  // of all ranks, in all of its timed steps
  int64_t wrong = 0;             // elements, of all ranks; checked after the first block
};

// A model, with a given amount of computation, on a given number of ranks.
struct StepCase {
  const ModelShapes& model;
  absl::Duration compute;
  ComputeKind compute_kind = ComputeKind::kSpin;
  int ranks = 1;
};

// Returns a table of the implementations, headed by a line that describes the case. The first of `measured` must be the
// implementation that only computes.
std::string StepTable(const StepCase& step_case, const std::vector<Measured>& measured);

// Returns the figures of StepTable as rows of a result document:
//
//   preset, tensors, elements, bytes, ranks, compute_ms, compute_kind; contestant: the implementation; of Ronda's
//   fusion_threshold, wire, cycle_time_us, backend, lock, wire_bytes, control_messages (all ranks, per step); step_ms,
//   step_ms_p10, step_ms_p90, compute_only_ms, exposed_ms, efficiency (if anything is computed); of Ronda's also
//   ratio_NAME_OF_PEER for each peer; wrong
std::vector<ResultRow> StepRows(const StepCase& step_case, const std::vector<Measured>& measured);

}  // namespace ronda::bench

#endif  // RONDA_BENCH_STEP_STEP_REPORT_H_
