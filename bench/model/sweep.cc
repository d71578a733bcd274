#include "bench/model/sweep.h"

#include "bench/model/constants.h"
#include "bench/model/published.h"
#include "bench/shapes/presets.h"
#include "runtime/base/status_macros.h"

namespace ronda::bench::model {
namespace {

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
                      {"algorithm", std::string(AlgorithmName(variants[i].algorithm))},
                      {"coordination", std::string(CoordinationName(variants[i].coordination))},
                      {"wire", std::string(WireName(variants[i].wire))},
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
    for (const Contestant contestant : Contestants()) {
      row.emplace_back(ContestantName(contestant), SimulatePublished(point, contestant).efficiency);
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace ronda::bench::model
