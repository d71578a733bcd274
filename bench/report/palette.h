#ifndef RONDA_BENCH_REPORT_PALETTE_H_
#define RONDA_BENCH_REPORT_PALETTE_H_

#include <cstddef>
#include <string>
#include <utility>

#include "bench/report/figure.h"

namespace ronda::bench {

// The color of the n-th contestant: one of seven of Okabe and Ito's, which people who are colorblind can tell apart;
// then again.
std::string ColorOf(size_t index);

// How often the colors have been used up before the n-th contestant: its line differs from theirs by its dashes.
// Four kinds; then again.
enum class Dash { kSolid, kLong, kDots, kLongAndDots };
Dash DashOf(size_t index);

// The smallest and the largest number of the map; of those that were measured.
std::pair<double, double> Extremes(const HeatMap& map);

// 0 for the smallest, 1 for the largest.
double HeatOf(double value, double least, double most);

// From light (0) to dark (1).
std::string HeatColor(double heat);

// What the parts of a bar come to; one below 0 counts as none.
double TotalOf(const StackedBars::Bar& bar);

}  // namespace ronda::bench

#endif  // RONDA_BENCH_REPORT_PALETTE_H_
