// SPDX-License-Identifier: Apache-2.0

// A model that counts samples. Tests use it to check that an elastic job neither loses a sample nor counts it twice.
#ifndef RONDA_TESTS_TESTING_COUNTING_MODEL_H_
#define RONDA_TESTS_TESTING_COUNTING_MODEL_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "client/ronda.hpp"
#include "client/ronda/elastic.hpp"

namespace ronda::testing {

// The state consists of weights, and of the number of steps that each sample was part of. Backward() computes the
// contribution of one batch to both; the trainer reduces and applies it. A step that is lost, repeated or half applied
// makes the counts wrong.
struct CountingModel {
  static constexpr std::size_t kWeights = 5000;

  // `start` is the initial value of all weights, which should differ between processes.
  CountingModel(std::int64_t samples, float start)
      : counts(static_cast<std::size_t>(samples)),
        counted(counts.size()),
        weights(kWeights, start),
        gradient(kWeights) {}

  std::vector<std::int64_t> counts;
  std::vector<std::int64_t> counted;  // by sample: its count on this rank, in this step
  std::vector<float> weights;
  std::vector<float> gradient;

  void Backward(const elastic::Batch& batch) {
    std::fill(counted.begin(), counted.end(), 0);
    std::fill(gradient.begin(), gradient.end(), 0.0f);
    for (const std::int64_t sample : batch.samples) {
      ++counted[static_cast<std::size_t>(sample)];
      for (std::size_t i = 0; i < gradient.size(); ++i) {
        const auto target = static_cast<float>((static_cast<std::size_t>(sample) * 31 + i) % 17);
        gradient[i] += (weights[i] - target) / static_cast<float>(batch.global_size);
      }
    }
  }

  // Returns a hash of the bits of the weights.
  std::uint64_t Hash() const {
    std::uint64_t hash = 14695981039346656037u;
    for (const float weight : weights) {
      std::uint32_t bits = 0;
      std::memcpy(&bits, &weight, sizeof(bits));
      hash = (hash ^ bits) * 1099511628211u;
    }
    return hash;
  }
};

}  // namespace ronda::testing

#endif  // RONDA_TESTS_TESTING_COUNTING_MODEL_H_
