// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_EXAMPLES_LENET_MNIST_TRAINER_H_
#define RONDA_EXAMPLES_LENET_MNIST_TRAINER_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "client/ronda.hpp"
#include "client/ronda/training.hpp"
#include "examples/lenet_mnist/batch.h"
#include "examples/lenet_mnist/lenet.h"
#include "examples/lenet_mnist/loss.h"
#include "examples/lenet_mnist/mnist.h"
#include "examples/lenet_mnist/reporter.h"
#include "examples/lenet_mnist/sgd.h"

namespace lenet {

constexpr std::size_t kImagesPerRank = 16;  // per step, unless the user sets another number

struct TrainingOptions {
  std::size_t epochs = 10;
  std::size_t max_steps = std::numeric_limits<std::size_t>::max();  // the most steps of the training
  std::size_t batch_size = 0;    // images per step, over all ranks; 0: kImagesPerRank per rank
  double learning_rate = 0.015;  // for a batch of kImagesPerRank; scaled to the actual batch
  double momentum = 0.9;
  std::uint64_t seed = 1;
  std::string checkpoints;  // the folder for checkpoints; empty: there are none
  ronda::Compression compression = ronda::Compression::none;
};

// Returns the learning rate schedule for training in batches of `batch_size` images. `base` is the learning rate for
// batches of kImagesPerRank images.
ronda::training::LearningRate RateFor(double base, std::size_t batch_size, std::size_t steps_per_epoch,
                                      std::size_t epochs);

// Returns a sampler that selects this rank's images, based on the seed. All ranks get the same number of images.
ronda::training::DistributedSampler SamplerFor(std::size_t images, std::uint64_t seed);

// Trains a LeNet on the digits, together with the other ranks of the job. Each rank takes its share of every batch, the
// gradients are averaged over the ranks, and all ranks apply the same update.
//
// Every rank must make the same calls. Thread-compatible.
class Trainer {
 public:
  // Copies rank 0's random weights to all ranks. `images` and `reporter` must outlive the trainer.
  //
  // REQUIRES: ronda::init() has been called.
  // Throws std::invalid_argument if the ranks cannot share a batch equally. All functions throw ronda::Error.
  Trainer(const TrainingOptions& options, const MnistImages* images, Reporter* reporter);

  // Why training ended.
  enum class End { kComplete, kAskedToStop };

  // Makes options.epochs passes over the images, or options.max_steps steps if that is less. If a rank receives
  // SIGTERM, all ranks end after the current step. Continues from the last checkpoint, if any, and saves a checkpoint
  // after each epoch and at the end.
  End Train();

  // Returns the fraction of `images` that the network recognises.
  double Accuracy(const MnistImages& images);

  LeNet& model() { return model_; }
  std::size_t steps_done() const { return steps_done_; }
  std::size_t batch_size() const { return batch_size_; }

 private:
  using Clock = std::chrono::steady_clock;

  End TrainEpoch(std::size_t epoch);
  double TrainStep(const Batch& batch);
  Reporter::Progress ProgressOf(std::size_t steps_done, double loss, Clock::time_point start) const;

  std::vector<ronda::Tensor> State();
  void Resume();
  void Save();

  const TrainingOptions options_;
  const std::size_t batch_size_;
  const std::size_t share_;  // this rank's share of a batch
  const MnistImages* const images_;
  Reporter* const reporter_;
  const std::size_t steps_per_epoch_;
  ronda::training::DistributedSampler sampler_;
  const ronda::training::LearningRate learning_rate_;
  LeNet model_;
  Sgd sgd_;
  ronda::DistributedOptimizer<Sgd> optimizer_;
  std::optional<ronda::training::Checkpoints> checkpoints_;
  Matrix logits_gradient_;
  std::size_t steps_done_ = 0;
};

}  // namespace lenet

#endif  // RONDA_EXAMPLES_LENET_MNIST_TRAINER_H_
