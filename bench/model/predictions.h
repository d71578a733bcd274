// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_BENCH_MODEL_PREDICTIONS_H_
#define RONDA_BENCH_MODEL_PREDICTIONS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/harness/results.h"
#include "bench/model/training_step.h"

namespace ronda::bench::model {

// A scaling efficiency that the authors of Horovod published. They measured it with TensorFlow's convolutional
// benchmarks, with 64 synthetic images per GPU, 4 P100 GPUs per host, 25 Gbit/s RoCE, and NCCL. The efficiencies on 16
// GPUs, and the speed of a single GPU, are in a table in the project's README of August 2017. The efficiencies on 128
// GPUs are in the README of October 2017; those on 512 GPUs have been in the README and in docs/benchmarks.rst since
// April 2018. The paper (Sergeev and Del Balso, "Horovod: fast and easy distributed deep learning in TensorFlow",
// arXiv:1802.05799) describes the method and the experiments on up to 128 GPUs.
struct PublishedPoint {
  enum class Use {
    kCalibrates,  // a constant of the model was chosen to match it
    kChecks,      // the model has to predict it
  };

  const char* model;  // "inception3", "resnet101", "vgg16"
  int gpus = 0;
  double efficiency = 0;  // images per second, divided by `gpus` times those of one GPU
  Use use = Use::kChecks;
};

// The bandwidth of each host's network port in the experiments of PublishedPoint, in Gbit/s.
inline constexpr int kPublishedGbit = 25;

std::vector<PublishedPoint> PublishedPoints();

// Returns the gradients of the model in a published experiment. For Inception V3, assumes gradients of equal size that
// become ready at equal intervals.
std::vector<Gradient> PublishedGradients(const PublishedPoint& point);

// Returns the training step as Horovod ran it at the time of the experiment. Horovod then used rings over all GPUs,
// negotiated tensors by name in cycles of 5 ms, and fused up to 64 MiB.
TrainingStepOptions PublishedStep(const PublishedPoint& point);

// The runtime to simulate on the cluster and the model of a published experiment.
enum class Runtime {
  kHorovod,             // PublishedStep
  kLocked,              // locked schedule, planned buckets, rings over all ranks
  kLockedHierarchical,  // the same, hierarchical
  kLockedFp16,          // the same with an fp16 wire
};

inline constexpr Runtime kRuntimes[] = {Runtime::kHorovod, Runtime::kLocked, Runtime::kLockedHierarchical,
                                        Runtime::kLockedFp16};

constexpr const char* Name(Runtime runtime) {
  constexpr const char* kNames[] = {"Horovod, ring", "locked, ring", "locked, hierarchical",
                                    "locked, hierarchical, fp16"};
  return kNames[static_cast<int>(runtime)];
}

StepResult SimulatePublished(const PublishedPoint& point, Runtime runtime);

// A measured link between two hosts. The CPUs of the ranks move the bytes (TCP).
struct MeasuredLink {
  double gbit = 0;     // Gbit/s in each direction, of large messages that travel in both at once; 0: there is no link
  double latency = 0;  // s of a small message, from the call that sends to the call that has received
};

// Selects what to predict: every model on every link with every number of ranks, in all variants.
struct SweepOptions {
  std::vector<std::string> models = {"resnet50", "bert-large"};  // presets of shapes
  std::vector<int> gbit = {25, 100, 400};                        // of a host's port to the network
  MeasuredLink link;                                             // instead of `gbit`, if it is set
  std::vector<int> ranks = {8, 64, 512, 4096, 16384};
  int local_size = 8;
  double compute = 0;         // s of forward and backward pass; 0: ModelCompute()
  double host_bandwidth = 0;  // bytes a second between ranks of a host; 0: as measured
};

// A configuration of the training step whose time is predicted.
struct Variant {
  std::string name;
  std::string group;  // of variants that are compared with each other
  Algorithm algorithm = Algorithm::kHierarchical;
  Coordination coordination = Coordination::kLocked;
  Wire wire = Wire::kNone;
};

// Returns the configurations to compare. There are three groups, each of which varies one of the algorithm, the
// coordination and the wire format, and keeps everything else equal.
std::vector<Variant> Variants();

// One line of a table, for one model, link and number of ranks. It has a result for each of Variants().
struct SweepLine {
  std::string model;
  double gbit = 0;
  int ranks = 0;
  std::vector<StepResult> results;
};

// Returns the assumed seconds of computation in a step of `model`.
double ModelCompute(const std::string& model);

// Errors: INVALID_ARGUMENT if there is no such model.
absl::StatusOr<std::vector<SweepLine>> Sweep(const SweepOptions& options);

// Return the rows for --json and --csv: one row per variant, and one row per published figure with the predictions for
// it.
std::vector<ResultRow> SweepRows(const std::vector<SweepLine>& lines);
std::vector<ResultRow> PublishedRows();

}  // namespace ronda::bench::model

#endif  // RONDA_BENCH_MODEL_PREDICTIONS_H_
