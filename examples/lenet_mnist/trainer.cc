// SPDX-License-Identifier: Apache-2.0

#include "examples/lenet_mnist/trainer.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace lenet {
namespace {

std::size_t Rank() { return static_cast<std::size_t>(ronda::rank()); }
std::size_t Size() { return static_cast<std::size_t>(ronda::size()); }

std::string GradientName(const Parameter& parameter) { return parameter.name + ".gradient"; }

ronda::Tensor View(const std::string& name, Matrix& matrix) {
  return ronda::tensor(name, matrix.data(), {matrix.rows(), matrix.cols()});
}

std::vector<ronda::Tensor> ValuesOf(LeNet& model) {
  std::vector<ronda::Tensor> values;
  for (Parameter* parameter : model.parameters()) values.push_back(View(parameter->name, parameter->value));
  return values;
}

std::vector<ronda::Tensor> GradientsOf(LeNet& model) {
  std::vector<ronda::Tensor> gradients;
  for (Parameter* parameter : model.parameters())
    gradients.push_back(View(GradientName(*parameter), parameter->gradient));
  return gradients;
}

}  // namespace

ronda::training::LearningRate RateFor(double base, std::size_t batch_size, std::size_t steps_per_epoch,
                                      std::size_t epochs) {
  const auto steps = static_cast<std::int64_t>(steps_per_epoch);
  return ronda::training::LearningRate(base)
      .scale_by(static_cast<double>(batch_size) / kImagesPerRank)
      .warm_up(steps)
      .linear(steps * static_cast<std::int64_t>(std::max<std::size_t>(epochs, 1)));
}

ronda::training::DistributedSampler SamplerFor(std::size_t images, std::uint64_t seed) {
  return ronda::training::DistributedSampler(static_cast<std::int64_t>(images),
                                             {.seed = seed, .tail = ronda::training::Tail::drop});
}

// Each rank draws different weights, as if only rank 0 had read a checkpoint; broadcast_parameters() then copies rank
// 0's weights to all ranks. After that, the weights stay equal on all ranks, because all ranks apply the same averages.
Trainer::Trainer(const TrainingOptions& options, const MnistImages* images, Reporter* reporter)
    : options_(options),
      batch_size_(options.batch_size == 0 ? kImagesPerRank * Size() : options.batch_size),
      share_(ShareOfBatch(batch_size_, images->size(), Size())),
      images_(images),
      reporter_(reporter),
      steps_per_epoch_(images->size() / batch_size_),
      sampler_(SamplerFor(images->size(), options.seed)),
      learning_rate_(RateFor(options.learning_rate, batch_size_, steps_per_epoch_, options.epochs)),
      model_(options.seed + Rank()),
      sgd_(model_.parameters(), options.momentum),
      optimizer_(sgd_, GradientsOf(model_), {.compression = options.compression}) {
  if (!options.checkpoints.empty()) checkpoints_.emplace(ronda::training::CheckpointOptions{options.checkpoints});
  ronda::broadcast_parameters(ValuesOf(model_), /*root=*/0);
  ronda::broadcast_optimizer_state(sgd_, /*root=*/0);
}

Trainer::End Trainer::Train() {
  if (checkpoints_) Resume();
  for (std::size_t epoch = steps_done_ / steps_per_epoch_; epoch < options_.epochs && steps_done_ < options_.max_steps;
       ++epoch) {
    const End end = TrainEpoch(epoch);
    if (checkpoints_) Save();
    if (end == End::kAskedToStop) return end;
  }
  return End::kComplete;
}

Trainer::End Trainer::TrainEpoch(std::size_t epoch) {
  sampler_.set_state(
      {static_cast<std::int64_t>(epoch), static_cast<std::int64_t>(steps_done_ % steps_per_epoch_ * batch_size_)});
  const std::size_t end = std::min((epoch + 1) * steps_per_epoch_, options_.max_steps);
  const Clock::time_point start = Clock::now();
  ronda::training::Meters meters;
  std::size_t steps = 0;
  // should_stop() returns the same answer on every rank, so all ranks end after the same step.
  for (; steps_done_ < end && !ronda::should_stop(); ++steps) {
    meters.average("loss").add(TrainStep(GatherBatch(*images_, sampler_.next(share_))));
    reporter_->StepDone(ProgressOf(steps + 1, meters.average("loss").value(), start));
  }
  if (steps == 0) return End::kAskedToStop;
  reporter_->EpochDone(ProgressOf(steps, meters.reduce().at("loss"), start));
  return steps_done_ < end ? End::kAskedToStop : End::kComplete;
}

double Trainer::TrainStep(const Batch& batch) {
  const Matrix& logits = model_.Forward(batch.images);
  const double loss = SoftmaxCrossEntropy(logits, batch.labels, &logits_gradient_);
  // Gradients are sent to the other ranks while this rank still computes the gradients of earlier layers.
  model_.Backward(logits_gradient_,
                  [this](const Parameter& parameter) { optimizer_.gradient_ready(GradientName(parameter)); });
  sgd_.set_learning_rate(learning_rate_.at(static_cast<std::int64_t>(steps_done_)));
  optimizer_.step();
  ++steps_done_;
  return loss;
}

Reporter::Progress Trainer::ProgressOf(std::size_t steps_done, double loss, Clock::time_point start) const {
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  const std::size_t last = steps_done_ - 1;
  return {.epoch = last / steps_per_epoch_ + 1,
          .epochs = options_.epochs,
          .step = last % steps_per_epoch_ + 1,
          .steps = steps_per_epoch_,
          .loss = loss,
          .images_per_second = static_cast<double>(steps_done * batch_size_) / seconds};
}

// Returns everything on which the next step depends, except the images and the options.
std::vector<ronda::Tensor> Trainer::State() {
  std::vector<ronda::Tensor> state = ValuesOf(model_);
  for (ronda::Tensor& tensor : sgd_.state()) state.push_back(std::move(tensor));
  return state;
}

void Trainer::Resume() {
  const ronda::training::Resumed resumed = checkpoints_->resume(State());
  for (const std::string& problem : resumed.problems) reporter_->Say(problem);
  if (resumed.step < 0) return;
  steps_done_ = static_cast<std::size_t>(resumed.step);
  reporter_->Say("goes on after step " + std::to_string(steps_done_));
}

void Trainer::Save() { checkpoints_->save(static_cast<std::int64_t>(steps_done_), State()); }

double Trainer::Accuracy(const MnistImages& images) {
  constexpr std::size_t kImagesAtATime = 100;
  std::int64_t correct = 0;
  std::vector<std::int64_t> indices;
  for (std::size_t i = Rank(); i < images.size(); i += Size()) {
    indices.push_back(static_cast<std::int64_t>(i));
    const bool is_last = i + Size() >= images.size();
    if (indices.size() < kImagesAtATime && !is_last) continue;
    const Batch batch = GatherBatch(images, indices);
    correct += static_cast<std::int64_t>(CountCorrect(model_.Forward(batch.images), batch.labels));
    indices.clear();
  }
  ronda::allreduce(ronda::tensor("correct", &correct), {.op = ronda::Op::Sum});
  return static_cast<double>(correct) / static_cast<double>(images.size());
}

}  // namespace lenet
