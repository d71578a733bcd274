#ifndef RONDA_BENCH_CUDA_AIM_LINE_H_
#define RONDA_BENCH_CUDA_AIM_LINE_H_

#include <string>

namespace ronda::bench {

// A figure beside what it ought to be, as a line of its own: "packing to float16: 93.1 % of a copy (aim: at least 85 %
// of a copy)". tools/gpu/run.sh makes its table of such lines.
// REQUIRES: `what` has no ": ".
inline std::string AimLine(const std::string& what, const std::string& measured, const std::string& aim) {
  return what + ": " + measured + " (aim: " + aim + ")\n";
}

}  // namespace ronda::bench

#endif  // RONDA_BENCH_CUDA_AIM_LINE_H_
