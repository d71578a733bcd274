// SPDX-License-Identifier: Apache-2.0

#include "bench/model/training_step.h"

#include <algorithm>
#include <cmath>

namespace ronda::bench::model {
namespace {

constexpr double kFloatBytes = 4;
constexpr double kMiB = 1 << 20;
constexpr double kLargestMinBucket = 256 * kMiB;
// The seconds that a core takes to add or convert one byte of fp32, as measured (docs/scaling_model.md).
constexpr double kSumWork = 0.03e-9;
constexpr double kFp16Work = 0.10e-9;
constexpr double kFp8Work = 0.18e-9;
// The time that a wire format takes over shared memory, relative to fp32. Ronda's target for 16-bit formats is at most
// a tenth more than fp32. Encoding and decoding fp8 takes twice as long as converting to fp16 and back.
constexpr double kFp16HostFactor = 1.1;
constexpr double kFp8HostFactor = 1.2;

// Tensors [begin, end) that the ranks reduce together, or agree on together, from time `at` on.
struct Batch {
  size_t begin = 0;
  size_t end = 0;
  double at = 0;  // s after the step began
};

Cluster WithWire(Cluster cluster, const WireCost& cost) {
  cluster.host.gap_per_byte *= cost.host_factor;
  cluster.network.gap_per_byte *= cost.network_ratio;
  return cluster;
}

// Simulates one step. The constructor's arguments must outlive this object.
class StepSimulation {
 public:
  StepSimulation(const std::vector<Gradient>& gradients, const TrainingStepOptions& options)
      : gradients_(gradients),
        options_(options),
        links_(WithWire(options.cluster, CostOf(options.wire))),
        compute_(options.compute * (1 + options.jitter * std::sqrt(2 * std::log(options.ranks)))) {}

  StepResult Run() {
    if (options_.bucketing == Bucketing::kPlanned) {
      for (const Batch& bucket : Agree(PlanBuckets())) Reduce(bucket);
    } else {
      ReduceWhileBusy();
    }
    result_.step = std::max(compute_ + delay_, link_free_);
    result_.exposed = result_.step - compute_;
    result_.efficiency = options_.compute / result_.step;
    return result_;
  }

 private:
  double ReadyAt(size_t tensor) const {
    return compute_ * (options_.forward_share + (1 - options_.forward_share) * gradients_[tensor].ready);
  }

  double BytesOf(size_t begin, size_t end) const {
    double bytes = 0;
    for (size_t i = begin; i < end; ++i) bytes += gradients_[i].bytes;
    return bytes;
  }

  // Plans the buckets by the same rules as the coordinator in runtime/step.
  std::vector<Batch> PlanBuckets() const {
    std::vector<Batch> buckets;
    double bytes = 0;
    for (size_t i = 0; i < gradients_.size(); ++i) {
      const bool full = bytes + gradients_[i].bytes > options_.fusion_threshold;
      const bool large_enough = bytes >= options_.min_bucket && i > 0 && ReadyAt(i) - ReadyAt(i - 1) > options_.hold;
      if (buckets.empty() || full || large_enough) {
        buckets.push_back({.begin = i});
        bytes = 0;
      }
      buckets.back().end = i + 1;
      buckets.back().at = ReadyAt(i);
      bytes += gradients_[i].bytes;
    }
    return buckets;
  }

  double NextCycle(double time) const {
    return options_.cycle > 0 ? std::ceil(time / options_.cycle) * options_.cycle : time;
  }

  // Simulates one agreement on tensors [begin, end), which are ready at `ready`. Returns the time at which all ranks
  // know the result.
  double AgreeOn(size_t begin, size_t end, double ready) {
    const double busy =
        RoundBusyTime(options_.coordination, options_.cluster.network, options_.ranks, static_cast<int>(end - begin));
    coordinator_free_ = std::max(ready, coordinator_free_) + busy;
    result_.coordinator_busy += busy;
    return coordinator_free_ + RoundLatency(options_.coordination, options_.cluster.network, options_.ranks);
  }

  // Simulates a round of agreement for each planned bucket.
  std::vector<Batch> Agree(std::vector<Batch> buckets) {
    for (Batch& bucket : buckets) bucket.at = AgreeOn(bucket.begin, bucket.end, NextCycle(bucket.at));
    return buckets;
  }

  // Simulates rounds of agreement. Each round includes all tensors that are ready when rank 0 becomes free.
  std::vector<Batch> AgreeOnReadyTensors() {
    std::vector<Batch> rounds;
    for (size_t begin = 0; begin < gradients_.size();) {
      const double start = NextCycle(std::max(ReadyAt(begin), coordinator_free_));
      size_t end = begin + 1;
      while (end < gradients_.size() && ReadyAt(end) <= start) ++end;
      rounds.push_back({.begin = begin, .end = end, .at = AgreeOn(begin, end, start)});
      begin = end;
    }
    return rounds;
  }

  void ReduceWhileBusy() {
    const std::vector<Batch> rounds = AgreeOnReadyTensors();
    std::vector<double> agreed_at(gradients_.size());
    for (const Batch& round : rounds) std::fill(&agreed_at[round.begin], &agreed_at[round.end - 1] + 1, round.at);
    for (size_t begin = 0; begin < gradients_.size();) {
      const double start = std::max(agreed_at[begin], link_free_);
      size_t end = begin + 1;
      while (end < gradients_.size() && agreed_at[end] <= start &&
             BytesOf(begin, end + 1) <= options_.fusion_threshold) {
        ++end;
      }
      Reduce({.begin = begin, .end = end, .at = start});
      begin = end;
    }
  }

  void Reduce(const Batch& bucket) {
    const double bytes = BytesOf(bucket.begin, bucket.end);
    const double busy = options_.allreduce ? options_.allreduce(bytes) : FormulaTime(bytes);
    const double start = std::max(bucket.at + delay_, link_free_);
    Delay(start, busy);
    link_free_ = start + busy;
    result_.link_busy += busy;
    result_.wire_bytes += bytes * CostOf(options_.wire).network_ratio;
    ++result_.buckets;
  }

  // Adds the time that the computation loses because a bucket is communicated for `busy` seconds from `start` on.
  void Delay(double start, double busy) {
    const double left = compute_ + delay_ - start;  // of the computation, without this bucket
    if (left <= 0) return;
    const double speed = 1 - options_.lost_speed;
    delay_ += left >= busy * speed ? busy * options_.lost_speed : left / speed - left;
  }

  double FormulaTime(double bytes) const {
    return AllreduceTime(options_.algorithm, links_, options_.ranks, bytes) + WorkOf(bytes);
  }

  // Returns the seconds for which the ranks work on a bucket, or 0 if the link does not wait for this work.
  double WorkOf(double bytes) const {
    const bool is_waited_for = options_.mover == Mover::kCpu && options_.ranks > 1;
    return is_waited_for ? bytes * CostOf(options_.wire).work_per_byte : 0;
  }

  const std::vector<Gradient>& gradients_;
  const TrainingStepOptions& options_;
  const Cluster links_;   // as they are for bytes of fp32
  const double compute_;  // of the slowest rank
  double coordinator_free_ = 0;
  double link_free_ = 0;
  double delay_ = 0;  // of the computation, by the buckets so far
  StepResult result_;
};

}  // namespace

std::vector<Gradient> BackwardOrder(const ModelShapes& shapes) {
  double total = 0;
  for (const Parameter& parameter : shapes.parameters) total += parameter.work;
  std::vector<Gradient> gradients;
  double done = 0;
  for (auto parameter = shapes.parameters.rbegin(); parameter != shapes.parameters.rend(); ++parameter) {
    done += parameter->work;
    gradients.push_back({.bytes = kFloatBytes * static_cast<double>(parameter->count()), .ready = done / total});
  }
  return gradients;
}

std::vector<Gradient> EvenGradients(int tensors, double parameters) {
  std::vector<Gradient> gradients;
  for (int i = 1; i <= tensors; ++i) {
    gradients.push_back({.bytes = kFloatBytes * parameters / tensors, .ready = static_cast<double>(i) / tensors});
  }
  return gradients;
}

WireCost CostOf(Wire wire) {
  switch (wire) {
    case Wire::kNone:
      return {.work_per_byte = kSumWork};
    case Wire::kFp16:
      return {.network_ratio = 0.5, .host_factor = kFp16HostFactor, .work_per_byte = kFp16Work};
    case Wire::kFp8:
      return {.network_ratio = 260.0 / (256 * kFloatBytes), .host_factor = kFp8HostFactor, .work_per_byte = kFp8Work};
  }
  return {};
}

StepResult SimulateStep(const std::vector<Gradient>& gradients, const TrainingStepOptions& options) {
  return StepSimulation(gradients, options).Run();
}

StepResult SimulateTunedStep(const std::vector<Gradient>& gradients, const TrainingStepOptions& options) {
  StepResult best;
  for (double min_bucket = kMiB; min_bucket <= kLargestMinBucket; min_bucket *= 2) {
    TrainingStepOptions tried = options;
    tried.min_bucket = min_bucket;
    tried.fusion_threshold = std::max(tried.fusion_threshold, min_bucket);
    const StepResult result = SimulateStep(gradients, tried);
    if (best.buckets == 0 || result.step < best.step) best = result;
  }
  return best;
}

}  // namespace ronda::bench::model
