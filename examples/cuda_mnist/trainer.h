// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_EXAMPLES_CUDA_MNIST_TRAINER_H_
#define RONDA_EXAMPLES_CUDA_MNIST_TRAINER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "client/ronda.hpp"
#include "examples/cuda_mnist/device.h"
#include "examples/cuda_mnist/lenet.h"
#include "examples/cuda_mnist/sgd.h"
#include "examples/lenet_mnist/lenet.h"
#include "examples/lenet_mnist/mnist.h"
#include "examples/lenet_mnist/reporter.h"
#include "examples/lenet_mnist/trainer.h"

namespace cuda_mnist {

// Like lenet::Trainer, on GPUs: the same steps with the same network and digits, except for rounding. The digits are in
// device memory from the beginning. Within a step the host does not wait for the device: it only enqueues the device's
// work.
//
// Every rank must make the same calls. Thread-compatible.
class Trainer {
 public:
  // Copies rank 0's random weights to all ranks. `device`, `images` and `reporter` must outlive the trainer.
  //
  // REQUIRES: ronda::init() has been called. Throws std::invalid_argument if the ranks cannot share a batch equally.
  // All functions throw ronda::Error and the device's errors.
  Trainer(Device& device, const lenet::TrainingOptions& options, const lenet::MnistImages* images,
          lenet::Reporter* reporter);

  using End = lenet::Trainer::End;
  // Trains like lenet::Trainer::Train(), but without checkpoints.
  End Train();

  // Returns the fraction of `images` that the network recognises.
  double Accuracy(const lenet::MnistImages& images);

  // Draws the order of the digits for an epoch, and copies it to the device.
  void StartEpoch(std::size_t epoch);

  // With kNone the ranks train independently from this step on, to measure the cost of communication.
  enum class Communication { kGradients, kNone };

  // Enqueues the work of a step on the device. REQUIRES: StartEpoch() has been called; step < steps_per_epoch().
  void TrainStep(std::size_t step, Communication communication = Communication::kGradients);

  LeNet& model() { return model_; }
  std::size_t steps_per_epoch() const { return steps_per_epoch_; }
  std::size_t steps_done() const { return steps_done_; }
  std::size_t batch_size() const { return batch_size_; }

 private:
  End TrainEpoch(std::size_t epoch);

  // Returns the sum of the losses since the previous call, and starts a new sum. Waits for the device.
  double TakeLossSum();

  Device& device_;
  const lenet::TrainingOptions options_;
  const std::size_t batch_size_;  // over all ranks
  const std::size_t share_;       // of a rank
  lenet::Reporter* const reporter_;
  const std::size_t steps_per_epoch_;
  ronda::training::DistributedSampler sampler_;
  const ronda::training::LearningRate learning_rate_;
  LeNet model_;
  Sgd sgd_;
  ronda::DistributedOptimizer<Sgd> optimizer_;
  const DeviceArray<std::uint8_t> pixels_;
  const DeviceArray<std::uint8_t> labels_;
  DeviceArray<int> order_;  // this rank's digits of the epoch, step by step
  DeviceArray<float> images_;
  DeviceArray<float> logits_gradient_;
  DeviceArray<float> losses_;      // of a step's images
  const DeviceArray<float> mean_;  // a product with this is the mean over a step's images
  DeviceArray<float> loss_sum_;    // over steps
  std::size_t steps_done_ = 0;
};

}  // namespace cuda_mnist

#endif  // RONDA_EXAMPLES_CUDA_MNIST_TRAINER_H_
