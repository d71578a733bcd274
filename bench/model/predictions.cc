// SPDX-License-Identifier: Apache-2.0

#include "bench/model/predictions.h"

#include <string>

#include "bench/harness/model_shapes.h"
#include "bench/model/costs.h"
#include "runtime/base/status_macros.h"

namespace ronda::bench::model {
namespace {

constexpr int kBatch = 64;
constexpr int kGpusAHost = 4;

// The relative variation of a rank's step time. It is calibrated with Inception V3 on 16 GPUs, because the gradients of
// this model are small.
constexpr double kJitter = 0.025;
// The fraction of the bandwidth that a ring reaches if its hosts are not all on one switch. It is calibrated with
// VGG-16 on 512 GPUs. Within a rack, the fraction is kLinkEfficiency, which is calibrated with VGG-16 on 16 GPUs.
constexpr double kAcrossRacksEfficiency = 0.715;
constexpr int kHostsARack = 32;

// The latency of a hop over PCIe and that of a hop over the network come from NCCL's tuning model (src/graph/tuning.cc,
// rings with the Simple protocol). The bandwidth is what PCIe 3.0 with 16 lanes reaches in practice.
constexpr double kPcieHop = 5.7e-6;
constexpr double kNetworkHop = 14e-6;
constexpr double kPcieBandwidth = 10e9;

// Returns how many images per second a single GPU trains on.
double SingleGpuSpeed(const std::string& model) {
  if (model == "inception3") return 134.4;
  return model == "resnet101" ? 119.4 : 130.9;
}

Cluster PublishedCluster(int gpus) {
  const bool is_one_rack = gpus <= kHostsARack * kGpusAHost;
  LogGP network = AssumedNetwork(kPublishedGbit);
  network.latency = kNetworkHop - 2 * network.overhead;
  if (!is_one_rack) network.gap_per_byte *= kLinkEfficiency / kAcrossRacksEfficiency;
  return {
      .local_size = kGpusAHost, .host = {.latency = kPcieHop, .gap_per_byte = 1 / kPcieBandwidth}, .network = network};
}

TrainingStepOptions StepOf(const SweepOptions& sweep, const SweepLine& line) {
  TrainingStepOptions step;
  step.ranks = line.ranks;
  step.cluster = {.local_size = sweep.local_size, .host = MeasuredHost(), .network = AssumedNetwork(line.gbit)};
  if (sweep.link.gbit > 0) {
    step.cluster.network = {.latency = sweep.link.latency, .gap_per_byte = 8 / (sweep.link.gbit * 1e9)};
    step.mover = Mover::kCpu;
  }
  if (sweep.host_bandwidth > 0) step.cluster.host.gap_per_byte = 1 / sweep.host_bandwidth;
  step.compute = sweep.compute > 0 ? sweep.compute : ModelCompute(line.model);
  return step;
}

void Simulate(const std::vector<Gradient>& gradients, TrainingStepOptions step, SweepLine* line) {
  for (const Variant& variant : Variants()) {
    step.algorithm = variant.algorithm;
    step.coordination = variant.coordination;
    step.wire = variant.wire;
    line->results.push_back(SimulateTunedStep(gradients, step));
  }
}

std::vector<double> LinksOf(const SweepOptions& options) {
  if (options.link.gbit > 0) return {options.link.gbit};
  return {options.gbit.begin(), options.gbit.end()};
}

}  // namespace

std::vector<PublishedPoint> PublishedPoints() {
  using Use = PublishedPoint::Use;
  return {
      {"inception3", 16, 2022.6 / 16 / 134.4, Use::kCalibrates},
      {"inception3", 128, 0.90, Use::kChecks},
      {"inception3", 512, 0.90, Use::kChecks},
      {"resnet101", 16, 1746.2 / 16 / 119.4, Use::kChecks},
      {"resnet101", 128, 0.90, Use::kChecks},
      {"resnet101", 512, 0.90, Use::kChecks},
      {"vgg16", 16, 1787.4 / 16 / 130.9, Use::kCalibrates},
      {"vgg16", 128, 0.79, Use::kChecks},
      {"vgg16", 512, 0.68, Use::kCalibrates},
  };
}

std::vector<Gradient> PublishedGradients(const PublishedPoint& point) {
  constexpr int kInceptionTensors = 190;
  constexpr double kInceptionParameters = 23.8e6;
  const std::string model = point.model;
  if (model == "inception3") return EvenGradients(kInceptionTensors, kInceptionParameters);
  return BackwardOrder(*PresetShapes(model));
}

TrainingStepOptions PublishedStep(const PublishedPoint& point) {
  TrainingStepOptions options;
  options.ranks = point.gpus;
  options.cluster = PublishedCluster(point.gpus);
  options.algorithm = Algorithm::kRing;
  options.coordination = Coordination::kNegotiated;
  options.compute = kBatch / SingleGpuSpeed(point.model);
  options.jitter = kJitter;
  options.bucketing = Bucketing::kWhileBusy;
  options.cycle = 5e-3;
  return options;
}

StepResult SimulatePublished(const PublishedPoint& point, Runtime runtime) {
  const std::vector<Gradient> gradients = PublishedGradients(point);
  TrainingStepOptions options = PublishedStep(point);
  if (runtime == Runtime::kHorovod) return SimulateStep(gradients, options);
  options.coordination = Coordination::kLocked;
  options.bucketing = Bucketing::kPlanned;
  options.cycle = 0;
  if (runtime != Runtime::kLocked) options.algorithm = Algorithm::kHierarchical;
  if (runtime == Runtime::kLockedFp16) options.wire = Wire::kFp16;
  return SimulateTunedStep(gradients, options);
}

std::vector<Variant> Variants() {
  const std::string algorithms = "locked, fp32";
  const std::string agreeing = "hierarchical, fp32";
  const std::string wires = "hierarchical, locked";
  return {
      {.name = "ring", .group = algorithms, .algorithm = Algorithm::kRing},
      {.name = "tree", .group = algorithms, .algorithm = Algorithm::kTree},
      {.name = "hierarchical", .group = algorithms},
      {.name = "negotiated", .group = agreeing, .coordination = Coordination::kNegotiated},
      {.name = "cached", .group = agreeing, .coordination = Coordination::kCached},
      {.name = "fp16", .group = wires, .wire = Wire::kFp16},
      {.name = "fp8", .group = wires, .wire = Wire::kFp8},
  };
}

double ModelCompute(const std::string& model) { return model == "bert-large" ? kBertLargeCompute : kResNet50Compute; }

absl::StatusOr<std::vector<SweepLine>> Sweep(const SweepOptions& options) {
  std::vector<SweepLine> lines;
  for (const std::string& model : options.models) {
    RONDA_ASSIGN_OR_RETURN(const ModelShapes shapes, PresetShapes(model));
    const std::vector<Gradient> gradients = BackwardOrder(shapes);
    for (const double gbit : LinksOf(options)) {
      for (const int ranks : options.ranks) {
        lines.push_back({.model = model, .gbit = gbit, .ranks = ranks});
        Simulate(gradients, StepOf(options, lines.back()), &lines.back());
      }
    }
  }
  return lines;
}

std::vector<ResultRow> SweepRows(const std::vector<SweepLine>& lines) {
  const std::vector<Variant> variants = Variants();
  std::vector<ResultRow> rows;
  for (const SweepLine& line : lines) {
    for (size_t i = 0; i < variants.size(); ++i) {
      const StepResult& result = line.results[i];
      rows.push_back({{"model", line.model},
                      {"gbit", line.gbit},
                      {"ranks", int64_t{line.ranks}},
                      {"algorithm", Name(variants[i].algorithm)},
                      {"coordination", Name(variants[i].coordination)},
                      {"wire", Name(variants[i].wire)},
                      {"step_s", result.step},
                      {"exposed_s", result.exposed},
                      {"coordinator_s", result.coordinator_busy},
                      {"buckets", int64_t{result.buckets}},
                      {"efficiency", result.efficiency}});
    }
  }
  return rows;
}

std::vector<ResultRow> PublishedRows() {
  std::vector<ResultRow> rows;
  for (const PublishedPoint& point : PublishedPoints()) {
    ResultRow row = {{"model", std::string(point.model)},
                     {"gbit", int64_t{kPublishedGbit}},
                     {"ranks", int64_t{point.gpus}},
                     {"published_efficiency", point.efficiency}};
    for (const Runtime runtime : kRuntimes) {
      row.emplace_back(Name(runtime), SimulatePublished(point, runtime).efficiency);
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace ronda::bench::model
