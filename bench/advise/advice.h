#ifndef RONDA_BENCH_ADVISE_ADVICE_H_
#define RONDA_BENCH_ADVISE_ADVICE_H_

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "bench/advise/profile.h"
#include "bench/report/figure.h"

namespace ronda::bench {

// The time of an allreduce by size, in one format on the wire. Immutable.
class AllreduceCurve {
 public:
  struct Point {
    double bytes = 0;  // of fp32
    double seconds = 0;
  };

  // `members`: of the ring that was measured: the ranks of one host, or the hosts.
  // REQUIRES: at least two points, whose bytes ascend; at least two members.
  AllreduceCurve(std::vector<Point> points, int members) : points_(std::move(points)), members_(members) {}

  // Seconds of `bytes` among `members`: lines between the points, and beyond the last in proportion to it. With m
  // members in place of the p that were measured, the time of the smallest point, which is latency, grows as m - 1, and
  // the rest as (m - 1) / m: the ring's formula (bench/model/costs.h). REQUIRES: members >= 2.
  double At(double bytes, int members) const;

 private:
  double Measured(double bytes) const;

  std::vector<Point> points_;
  int members_ = 2;
};

// A format on the wire, with its costs on the link at hand.
struct WireOnLink {
  std::string name;  // of a Compression
  AllreduceCurve curve;
  double cpu_share = 0;  // cores that a rank's communication takes while it is under way, 0 to 1
};

// Ranks for which a step is predicted.
struct Plan {
  int ranks = 2;
  int members = 2;  // of the ring: AllreduceCurve
  int on_host = 2;  // the most ranks that share a host's cores
};

// The program: alone, and beside as many others as share a host.
struct Program {
  Profile alone;
  Profile shared;         // of Plan::on_host copies that run at the same time: the steps of all of them
  double busy_cores = 0;  // of a copy among these, on average
  int cores = 1;          // of the host
};

struct Prediction {
  double step = 0;        // s, median, with the settings that Ronda begins with
  double tuned = 0;       // s, with `min_bucket`
  double compute = 0;     // s of it of the slowest rank
  double sync = 0;        // s of all allreduces together, overlapped or not: T_sync
  double efficiency = 0;  // the program's step alone over this one
  double min_bucket = 0;  // bytes: of those tried the best, unless the default is as good but for 3 %
};

// The step on `plan`'s ranks, by bench/model's simulation of the locked schedule, with `batch_factor` times the
// computation. Communication runs while gradients are computed. Where the ranks of a host and their communication
// together need more cores than there are, the computation is slowed down meanwhile.
Prediction Predict(const Program& program, const WireOnLink& wire, const Plan& plan, double batch_factor = 1);

// The factor by which a rank's batch, and with it the computation between two exchanges, has to be multiplied until the
// ranks together are `speedup` times as fast as one. 0 if the smallest factor tried, 1/1024, suffices; infinity if 1024
// does not. REQUIRES: speedup < ranks.
double BatchFactorFor(const Program& program, const WireOnLink& wire, const Plan& plan, double speedup);

// The predictions for all formats, and one number of ranks.
struct Forecast {
  Plan plan;
  std::vector<Prediction> wires;  // as the formats'
};

// The format whose steps are shortest, unless the first, which rounds nothing, is as fast but for 3 %.
size_t BestWire(const Forecast& forecast);

// How many times as fast as one rank many are, by format, beside the ideal.
Figure SpeedupFigure(const std::vector<WireOnLink>& wires, const std::vector<Forecast>& forecasts);

}  // namespace ronda::bench

#endif  // RONDA_BENCH_ADVISE_ADVICE_H_
