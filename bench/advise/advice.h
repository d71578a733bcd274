// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_BENCH_ADVISE_ADVICE_H_
#define RONDA_BENCH_ADVISE_ADVICE_H_

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "bench/advise/profile.h"

namespace ronda::bench {

// The time of an allreduce as a function of its size, for one wire format. Immutable.
class AllreduceCurve {
 public:
  struct Point {
    double bytes = 0;  // of fp32
    double seconds = 0;
  };

  // `members` is the number of members of the measured ring: the ranks of one host, or the hosts. REQUIRES: at least
  // two points, sorted by ascending `bytes`; at least two members.
  AllreduceCurve(std::vector<Point> points, int members) : points_(std::move(points)), members_(members) {}

  // Returns the seconds that an allreduce of `bytes` among `members` takes. Interpolates linearly between the points;
  // beyond the last point, the time is proportional to `bytes`. If `members` differs from the number of members
  // measured, the times are scaled: the time of the smallest point, which is pure latency, by members - 1, and the rest
  // by (members - 1) / members. Both factors follow from the cost of a ring allreduce (bench/model/costs.h). REQUIRES:
  // members >= 2.
  double At(double bytes, int members) const;

 private:
  double Measured(double bytes) const;

  std::vector<Point> points_;
  int members_ = 2;
};

// A wire format and its cost on one link.
struct WireOnLink {
  std::string name;  // the name of a Compression
  AllreduceCurve curve;
  double cpu_share = 0;  // cores that a rank's communication takes while it is under way, 0 to 1
};

// The ranks for which a step is predicted.
struct Plan {
  int ranks = 2;
  int members = 2;  // the members of the ring; see AllreduceCurve
  int on_host = 2;  // the most ranks that share a host's cores
};

// The measurements of the program alone, and as one of several copies that share a host.
struct Program {
  Profile alone;
  Profile shared;         // of Plan::on_host copies that run at the same time: the steps of all of them
  double busy_cores = 0;  // of one of these copies, on average
  int cores = 1;          // of the host
};

struct Prediction {
  double step = 0;        // s, median, with Ronda's initial settings
  double tuned = 0;       // s, with `min_bucket`
  double compute = 0;     // s of `step` in which the slowest rank computes
  double sync = 0;        // s of all allreduces together, overlapped or not: T_sync
  double efficiency = 0;  // the step of the program alone, divided by `step`
  double min_bucket = 0;  // bytes: the best of those tried; the default if it is at most 3 % slower
};

// Predicts the step time on the ranks of `plan`, with `batch_factor` times the computation. Runs bench/model's
// simulation of the locked schedule. Communication overlaps with the computation of gradients. If computation and
// communication together need more cores than the host has, communication slows the computation down.
Prediction Predict(const Program& program, const WireOnLink& wire, const Plan& plan, double batch_factor = 1);

// Returns the factor by which to multiply each rank's batch so that all ranks together train `speedup` times as fast as
// one rank. The factor also scales the computation between two gradient exchanges. Returns 0 if even the smallest
// factor tried, 1/1024, suffices, and infinity if the largest, 1024, does not. REQUIRES: speedup < ranks.
double BatchFactorFor(const Program& program, const WireOnLink& wire, const Plan& plan, double speedup);

// The predictions for one number of ranks, one for each wire format.
struct Forecast {
  Plan plan;
  std::vector<Prediction> wires;  // in the formats' order
};

// Returns the index of the wire format with the shortest steps. Prefers the first format, which does not round, if its
// steps are at most 3 % slower.
size_t BestWire(const Forecast& forecast);

}  // namespace ronda::bench

#endif  // RONDA_BENCH_ADVISE_ADVICE_H_
