#ifndef RONDA_BENCH_MODEL_PUBLISHED_H_
#define RONDA_BENCH_MODEL_PUBLISHED_H_

#include <vector>

#include "bench/model/training_step.h"

namespace ronda::bench::model {

// A scaling efficiency that Horovod's authors have published: TensorFlow's convolutional benchmarks, synthetic images,
// 64 a GPU; 4 P100 GPUs a host; 25 Gbit/s RoCE; NCCL. 16 GPUs: table in the project's README of August 2017, which
// also has the speed of a single GPU. 128 GPUs: the README of October 2017. 512 GPUs: the README and
// docs/benchmarks.rst since April 2018. The paper (Sergeev and Del Balso, "Horovod: fast and easy distributed deep
// learning in TensorFlow", arXiv:1802.05799) describes the method, and the experiments up to 128 GPUs.
struct PublishedPoint {
  enum class Use {
    kCalibrates,  // a constant of the model was chosen to meet it
    kChecks,      // the model has to predict it
  };

  const char* model;  // "inception3", "resnet101", "vgg16"
  int gpus = 0;
  double efficiency = 0;  // images a second, over those of as many single GPUs
  Use use = Use::kChecks;
};

// Of a host's port in those experiments.
inline constexpr int kPublishedGbit = 25;

std::vector<PublishedPoint> PublishedPoints();

// The gradients of one of these models. Inception V3's are taken to be alike and spread evenly over the pass.
std::vector<Gradient> PublishedGradients(const PublishedPoint& point);

// Horovod as it was then: rings over all GPUs, tensors negotiated by name in cycles of 5 ms, up to 64 MiB fused.
TrainingStepOptions PublishedStep(const PublishedPoint& point);

// The same cluster and model with another runtime.
enum class Contestant {
  kHorovod,             // PublishedStep
  kLocked,              // locked schedule, planned buckets, rings over all ranks
  kLockedHierarchical,  // the same, hierarchical
  kLockedFp16,          // the same with an fp16 wire
};

std::vector<Contestant> Contestants();

// "Horovod, ring", "locked, ring", "locked, hierarchical", "locked, hierarchical, fp16".
const char* ContestantName(Contestant contestant);

StepResult SimulatePublished(const PublishedPoint& point, Contestant contestant);

}  // namespace ronda::bench::model

#endif  // RONDA_BENCH_MODEL_PUBLISHED_H_
