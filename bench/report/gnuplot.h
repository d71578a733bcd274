#ifndef RONDA_BENCH_REPORT_GNUPLOT_H_
#define RONDA_BENCH_REPORT_GNUPLOT_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "bench/report/figure.h"

namespace ronda::bench {

// A gnuplot script, its data included, that draws the figure into the file `png`.
std::string GnuplotOf(const Figure& figure, const std::string& png);

// Draws each figure into `directory`, as ID.png. Errors: NOT_FOUND if there is no gnuplot, which names its package;
// INTERNAL if it fails.
absl::Status DrawPngs(const std::vector<Figure>& figures, const std::string& directory);

}  // namespace ronda::bench

#endif  // RONDA_BENCH_REPORT_GNUPLOT_H_
