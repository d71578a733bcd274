// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_BENCH_MODEL_TRAINING_STEP_H_
#define RONDA_BENCH_MODEL_TRAINING_STEP_H_

#include <functional>
#include <vector>

#include "bench/harness/model_shapes.h"
#include "bench/model/costs.h"

namespace ronda::bench::model {

// A gradient. Gradients are listed in the order in which backpropagation completes them.
struct Gradient {
  double bytes = 0;  // as fp32
  double ready = 0;  // as a fraction of the backward pass; ascends
};

// Returns the gradients of a model. The backward pass runs from the last parameter to the first. The time that it
// spends on each parameter is proportional to the parameter's `work`.
std::vector<Gradient> BackwardOrder(const ModelShapes& shapes);

// Returns the gradients of a model of which only the numbers of tensors and parameters are known. All gradients have
// the same size, and become ready at equal intervals.
std::vector<Gradient> EvenGradients(int tensors, double parameters);

enum class Wire { kNone, kFp16, kFp8 };

constexpr const char* Name(Wire wire) {
  constexpr const char* kNames[] = {"none", "fp16", "fp8"};
  return kNames[static_cast<int>(wire)];
}

// The cost of a wire format. A wire format reduces the number of bytes only on links between hosts. Ranks of one host
// convert an element where they would otherwise copy it.
struct WireCost {
  double network_ratio = 1;  // bytes between hosts for each byte of fp32; fp8 has a scale for each 256 codes
  double host_factor = 1;    // time on the host, relative to fp32
  double work_per_byte = 0;  // s of a rank's core for each byte of fp32 that it packs, adds and unpacks
};

WireCost CostOf(Wire wire);

// The part of a host that moves the bytes between hosts.
enum class Mover {
  kHardware,  // the network adapter: meanwhile the ranks convert and add the next bytes
  kCpu,       // the ranks themselves, as with TCP: their conversions and additions take additional time
};

enum class Bucketing {
  kWhileBusy,  // tensors that become ready while a bucket is under way travel in the next ones
  kPlanned,    // the buckets of the locked schedule: large enough to hide latency, the last one small
};

// One data-parallel training step.
struct TrainingStepOptions {
  int ranks = 1;
  Cluster cluster;
  Algorithm algorithm = Algorithm::kHierarchical;
  Coordination coordination = Coordination::kLocked;
  Wire wire = Wire::kNone;
  Mover mover = Mover::kHardware;
  double compute = 0.15;           // s of forward and backward pass
  double forward_share = 1.0 / 3;  // of `compute`: a backward pass does twice the work of a forward pass
  double jitter = 0;               // standard deviation of a rank's compute time, relative: all wait for the slowest
  Bucketing bucketing = Bucketing::kPlanned;
  double cycle = 0;                            // s; rounds begin at multiples of it, after the step's start; 0: at once
  double fusion_threshold = 64.0 * (1 << 20);  // bytes of fp32 in a bucket of several tensors
  double min_bucket = 1 << 20;                 // kPlanned: no bucket is closed below it,
  double hold = 100e-6;                        // or while the next tensor is ready within this time, s
  // Returns the measured seconds of an allreduce of `bytes` bytes of fp32. If the function is empty, the simulation
  // uses the formulas for `algorithm` and `cluster`.
  std::function<double(double bytes)> allreduce;
  // The fraction of its speed that the computation loses while a bucket is being communicated. It is 1 if each rank
  // computes on one core, all cores of the host are in use, and the communication of each rank takes a whole core.
  double lost_speed = 0;
};

struct StepResult {
  double step = 0;              // s
  double exposed = 0;           // s of it beyond the slowest rank's computation
  double link_busy = 0;         // s in which an allreduce was under way
  double coordinator_busy = 0;  // s of rank 0's CPU
  double wire_bytes = 0;        // of a rank's gradients, on the links between hosts
  int buckets = 0;
  double efficiency = 0;  // compute / step: the time of one rank alone, divided by its time among many
};

// Simulates the link and the coordinator of a step. The link carries one bucket at a time, and the coordinator runs one
// round at a time, in order.
//
// The slowest of p ranks computes for compute * (1 + jitter * sqrt(2 ln p)). This factor is the asymptotic maximum of p
// normally distributed times. REQUIRES: `gradients` is not empty, and sorted by ascending `ready`.
StepResult SimulateStep(const std::vector<Gradient>& gradients, const TrainingStepOptions& options);

// Like SimulateStep, but with the min_bucket that gives the shortest step, out of the powers of two from 1 MiB to 256
// MiB. The fusion threshold is raised to min_bucket if necessary. Autotuning would find the same settings. REQUIRES:
// bucketing is kPlanned.
StepResult SimulateTunedStep(const std::vector<Gradient>& gradients, const TrainingStepOptions& options);

}  // namespace ronda::bench::model

#endif  // RONDA_BENCH_MODEL_TRAINING_STEP_H_
