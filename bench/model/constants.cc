#include "bench/model/constants.h"

namespace ronda::bench::model {

LogGP MeasuredHost() {
  // L and o cannot be told apart in a collective's time: all of it is called latency.
  return {.latency = 0.105e-6, .gap_per_byte = 0.107e-9};
}

LogGP AssumedNetwork(double gbit) {
  return {.latency = 3e-6, .overhead = 1e-6, .gap = 1e-6, .gap_per_byte = 8 / (gbit * 1e9 * kLinkEfficiency)};
}

}  // namespace ronda::bench::model
