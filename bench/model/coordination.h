#ifndef RONDA_BENCH_MODEL_COORDINATION_H_
#define RONDA_BENCH_MODEL_COORDINATION_H_

#include "bench/model/log_gp.h"

namespace ronda::bench::model {

// How ranks agree on what to run next.
enum class Coordination {
  kNegotiated,  // rank 0 receives every tensor's description from every rank, and answers in full
  kCached,      // the same with ids of the response cache
  kLocked,      // the order is known: a ballot travels with the data, and nothing else
};

// "negotiated", "cached", "locked".
const char* CoordinationName(Coordination coordination);

// What agreeing by rank 0 costs. It receives a report from every rank, and sends a list to every rank, one after the
// other, so its time is linear in the number of ranks.
struct CoordinationCosts {
  double round = 0;             // seconds of rank 0's CPU, whatever is agreed on
  double submission = 0;        // seconds of rank 0's CPU for each rank and tensor, cached or not
  double submission_bytes = 0;  // of the report and the list together, for each rank and tensor
};

// Measured: the negotiation's benchmark, as docs/scaling.md has it. REQUIRES: not kLocked.
CoordinationCosts MeasuredCosts(Coordination coordination);

// Seconds for which rank 0 is busy with one round in which `tensors` are agreed on by `ranks`. A round of a locked
// schedule, or of a single rank, costs nothing.
double RoundBusyTime(Coordination coordination, const LogGP& network, int ranks, int tensors);

// Seconds that pass besides, while the last report and the last list travel.
double RoundLatency(Coordination coordination, const LogGP& network, int ranks);

}  // namespace ronda::bench::model

#endif  // RONDA_BENCH_MODEL_COORDINATION_H_
