#include "examples/lenet_mnist/trainer.h"

#include <algorithm>
#include <string>
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

// Each rank draws weights of its own, as if only rank 0 had read a checkpoint; broadcast_parameters() then makes rank
// 0's those of all ranks. From there on they stay the same, as all ranks apply the same averages.
Trainer::Trainer(const TrainingOptions& options, const MnistImages* images, Reporter* reporter)
    : options_(options),
      batch_size_(options.batch_size == 0 ? kImagesPerRank * Size() : options.batch_size),
      images_(images),
      reporter_(reporter),
      sampler_(
          {.samples = images->size(), .batch_size = batch_size_, .rank = Rank(), .size = Size(), .seed = options.seed}),
      learning_rate_({.base = options.learning_rate,
                      .scale = static_cast<double>(batch_size_) / kImagesPerRank,
                      .warmup_steps = sampler_.steps_per_epoch(),
                      .total_steps = sampler_.steps_per_epoch() * options.epochs}),
      model_(options.seed + Rank()),
      sgd_(model_.parameters(), options.momentum),
      optimizer_(sgd_, GradientsOf(model_), {.compression = options.compression}) {
  ronda::broadcast_parameters(ValuesOf(model_), /*root=*/0);
  ronda::broadcast_optimizer_state(sgd_, /*root=*/0);
}

Trainer::End Trainer::Train() {
  for (std::size_t epoch = 0; epoch < options_.epochs && steps_done_ < options_.max_steps; ++epoch) {
    if (TrainEpoch(epoch) == End::kAskedToStop) return End::kAskedToStop;
  }
  return End::kComplete;
}

Trainer::End Trainer::TrainEpoch(std::size_t epoch) {
  sampler_.StartEpoch(epoch);
  const std::size_t steps = std::min(sampler_.steps_per_epoch(), options_.max_steps - steps_done_);
  const Clock::time_point start = Clock::now();
  double loss_sum = 0;
  std::size_t step = 0;
  // should_stop() has the same answer on every rank: none goes on while another has ended.
  for (; step < steps && !ronda::should_stop(); ++step) {
    loss_sum += TrainStep(GatherBatch(*images_, sampler_.Batch(step)));
    reporter_->StepDone(ProgressOf(epoch, step + 1, loss_sum, start));
  }
  if (step == 0) return End::kAskedToStop;
  ronda::allreduce(ronda::tensor("loss", &loss_sum));  // the average over the ranks, in place
  reporter_->EpochDone(ProgressOf(epoch, step, loss_sum, start));
  return step < steps ? End::kAskedToStop : End::kComplete;
}

double Trainer::TrainStep(const Batch& batch) {
  const Matrix& logits = model_.Forward(batch.images);
  const double loss = SoftmaxCrossEntropy(logits, batch.labels, &logits_gradient_);
  // A gradient travels to the other ranks while those of the layers before it are still being computed.
  model_.Backward(logits_gradient_,
                  [this](const Parameter& parameter) { optimizer_.gradient_ready(GradientName(parameter)); });
  sgd_.set_learning_rate(learning_rate_.At(steps_done_));
  optimizer_.step();
  ++steps_done_;
  return loss;
}

Reporter::Progress Trainer::ProgressOf(std::size_t epoch, std::size_t steps_done, double loss_sum,
                                       Clock::time_point start) const {
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return {.epoch = epoch + 1,
          .epochs = options_.epochs,
          .step = steps_done,
          .steps = sampler_.steps_per_epoch(),
          .loss = loss_sum / static_cast<double>(steps_done),
          .images_per_second = static_cast<double>(steps_done * batch_size_) / seconds};
}

double Trainer::Accuracy(const MnistImages& images) {
  constexpr std::size_t kImagesAtATime = 100;
  std::int64_t correct = 0;
  std::vector<std::size_t> indices;
  for (std::size_t i = Rank(); i < images.size(); i += Size()) {
    indices.push_back(i);
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
