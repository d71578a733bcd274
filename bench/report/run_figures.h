#ifndef RONDA_BENCH_REPORT_RUN_FIGURES_H_
#define RONDA_BENCH_REPORT_RUN_FIGURES_H_

#include <vector>

#include "bench/report/figure.h"
#include "bench/report/run_document.h"

namespace ronda::bench {

// What is worth a picture in these runs: bandwidth over size for each operation of `collectives`; for `step` a heat map
// where fusion thresholds and wire formats were swept, and elsewhere what a step is made of; a histogram of `latency`;
// `startup`. A contestant that took part in several runs has a line a run, with its name.
std::vector<Figure> FiguresOf(const std::vector<RunDocument>& runs);

}  // namespace ronda::bench

#endif  // RONDA_BENCH_REPORT_RUN_FIGURES_H_
