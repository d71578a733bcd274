#include "bench/model/published.h"

#include <string>

#include "bench/model/constants.h"
#include "bench/shapes/presets.h"

namespace ronda::bench::model {
namespace {

constexpr int kBatch = 64;
constexpr int kGpusAHost = 4;

// Calibrated: what a rank's step varies by, with Inception V3 on 16 GPUs, whose gradients are few bytes.
constexpr double kJitter = 0.025;
// Calibrated: the share of the bandwidth that is left for a ring over more hosts than share a switch, with VGG-16 on
// 512 GPUs. In a rack it is kLinkEfficiency, calibrated with VGG-16 on 16 GPUs.
constexpr double kAcrossRacksEfficiency = 0.715;
constexpr int kHostsARack = 32;

// From NCCL's own tuning model (src/graph/tuning.cc, rings with the Simple protocol): a hop over PCIe, and one over the
// network. The bandwidth of PCIe 3.0 with 16 lanes in practice.
constexpr double kPcieHop = 5.7e-6;
constexpr double kNetworkHop = 14e-6;
constexpr double kPcieBandwidth = 10e9;

// Images a second of a single GPU.
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

std::vector<Contestant> Contestants() {
  return {Contestant::kHorovod, Contestant::kLocked, Contestant::kLockedHierarchical, Contestant::kLockedFp16};
}

const char* ContestantName(Contestant contestant) {
  switch (contestant) {
    case Contestant::kHorovod:
      return "Horovod, ring";
    case Contestant::kLocked:
      return "locked, ring";
    case Contestant::kLockedHierarchical:
      return "locked, hierarchical";
    case Contestant::kLockedFp16:
      return "locked, hierarchical, fp16";
  }
  return "?";
}

StepResult SimulatePublished(const PublishedPoint& point, Contestant contestant) {
  const std::vector<Gradient> gradients = PublishedGradients(point);
  TrainingStepOptions options = PublishedStep(point);
  if (contestant == Contestant::kHorovod) return SimulateStep(gradients, options);
  options.coordination = Coordination::kLocked;
  options.bucketing = Bucketing::kPlanned;
  options.cycle = 0;
  if (contestant != Contestant::kLocked) options.algorithm = Algorithm::kHierarchical;
  if (contestant == Contestant::kLockedFp16) options.wire = Wire::kFp16;
  return SimulateTunedStep(gradients, options);
}

}  // namespace ronda::bench::model
