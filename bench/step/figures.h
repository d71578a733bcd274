#ifndef RONDA_BENCH_STEP_FIGURES_H_
#define RONDA_BENCH_STEP_FIGURES_H_

#include <optional>
#include <vector>

namespace ronda::bench {

// The times of one contestant's steps, in milliseconds: a vector a round, of equally many steps.
using Rounds = std::vector<std::vector<double>>;

// What the steps of a contestant come to. Milliseconds.
struct StepFigures {
  double step = 0;      // the median of the rounds' medians
  double step_p10 = 0;  // of all steps
  double step_p90 = 0;
  double exposed = 0;                // what communication adds to the step that only computes: below 0 only by noise
  std::optional<double> efficiency;  // the step that only computes over this one; none where nothing is computed
};

// `compute_only` are the steps of the same job without communication, taken in turns with those of the contestant;
// `computes` says whether there was anything to compute at all.
// REQUIRES: neither is empty, nor any of their rounds.
enum class Computes { kNothing, kSomething };
StepFigures FiguresOf(const Rounds& steps, const Rounds& compute_only, Computes computes);

// How many times longer `other` takes than `own`: above 1 if `own` is faster. Of the medians of rounds.
// REQUIRES: as FiguresOf; `own` did not take no time.
double RatioOf(const Rounds& other, const Rounds& own);

}  // namespace ronda::bench

#endif  // RONDA_BENCH_STEP_FIGURES_H_
