// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_EXAMPLES_LENET_MNIST_RANDOM_H_
#define RONDA_EXAMPLES_LENET_MNIST_RANDOM_H_

#include <cstddef>
#include <cstdint>
#include <random>

namespace lenet {

// Random numbers that are the same on every machine. The standard specifies std::mt19937_64 and std::seed_seq exactly,
// but not the library's distributions.
//
// Thread-compatible.
class RandomNumbers {
 public:
  // `stream` distinguishes uses of the same seed.
  RandomNumbers(std::uint64_t seed, std::uint64_t stream) {
    std::seed_seq sequence{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32),
                           static_cast<std::uint32_t>(stream), static_cast<std::uint32_t>(stream >> 32)};
    engine_.seed(sequence);
  }

  // Returns a uniformly distributed number in [0, bound), with a bias of at most bound / 2^64.
  std::size_t Below(std::size_t bound) { return static_cast<std::size_t>(engine_() % bound); }

  // Returns a uniformly distributed number in [-limit, limit).
  float Uniform(float limit) {
    constexpr float kScale = 1.0f / (1 << 23);  // a float holds no more than 24 random bits
    return limit * (static_cast<float>(engine_() >> 40) * kScale - 1.0f);
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace lenet

#endif  // RONDA_EXAMPLES_LENET_MNIST_RANDOM_H_
