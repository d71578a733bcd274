#ifndef RONDA_EXAMPLES_LENET_MNIST_LEARNING_RATE_H_
#define RONDA_EXAMPLES_LENET_MNIST_LEARNING_RATE_H_

#include <cstddef>

namespace lenet {

// The learning rate over time, for batches that grow with the number of ranks (Goyal et al. 2017, sections 2.1
// and 2.2).
//
// A batch `scale` times as large takes `scale` times fewer steps, each `scale` times as long. The first steps are
// exceptions, as the network changes fast then: the rate rises to base * scale during `warmup_steps`. After them it
// falls linearly, to reach 0 after `total_steps`.
struct LearningRate {
  double base = 0;
  double scale = 1;
  std::size_t warmup_steps = 0;
  std::size_t total_steps = 1;

  // The rate of step `step`, counted from 0.
  double At(std::size_t step) const {
    if (step < warmup_steps) {
      return base * (1 + (scale - 1) * static_cast<double>(step + 1) / static_cast<double>(warmup_steps));
    }
    if (step >= total_steps) return 0;
    return base * scale * static_cast<double>(total_steps - step) / static_cast<double>(total_steps - warmup_steps);
  }
};

}  // namespace lenet

#endif  // RONDA_EXAMPLES_LENET_MNIST_LEARNING_RATE_H_
