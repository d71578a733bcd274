#include "bench/model/coordination.h"

#include <algorithm>

namespace ronda::bench::model {

const char* CoordinationName(Coordination coordination) {
  switch (coordination) {
    case Coordination::kNegotiated:
      return "negotiated";
    case Coordination::kCached:
      return "cached";
    case Coordination::kLocked:
      return "locked";
  }
  return "?";
}

CoordinationCosts MeasuredCosts(Coordination coordination) {
  if (coordination == Coordination::kNegotiated) {
    return {.round = 261e-6, .submission = 416e-9, .submission_bytes = 131.5};
  }
  return {.round = 32.8e-6, .submission = 22.5e-9, .submission_bytes = 0.137};
}

double RoundBusyTime(Coordination coordination, const LogGP& network, int ranks, int tensors) {
  if (coordination == Coordination::kLocked || ranks == 1) return 0;
  const CoordinationCosts costs = MeasuredCosts(coordination);
  const double messages = 2.0 * (ranks - 1) * std::max(network.overhead, network.gap);
  const double submissions = static_cast<double>(ranks) * tensors;
  return costs.round + messages + submissions * (costs.submission + costs.submission_bytes * network.gap_per_byte);
}

double RoundLatency(Coordination coordination, const LogGP& network, int ranks) {
  if (coordination == Coordination::kLocked || ranks == 1) return 0;
  return 2 * MessageLatency(network);
}

}  // namespace ronda::bench::model
