// SPDX-License-Identifier: Apache-2.0

// Random numbers and sample orders that are the same on every machine.
#ifndef RONDA_CLIENT_RONDA_TRAINING_RANDOM_HPP_
#define RONDA_CLIENT_RONDA_TRAINING_RANDOM_HPP_

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

namespace ronda {
inline namespace abi1 {
namespace detail {

// The random number generator SplitMix64: Steele, Lea and Flood, "Fast splittable pseudorandom number generators",
// 2014. The standard library's shuffle and distributions are not used, because they differ between implementations.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  // Different values of `stream` give independent sequences from the same seed.
  Random(std::uint64_t seed, std::uint64_t stream) : state_(Random(seed).next() ^ (stream * kIncrement)) {}

  std::uint64_t next() {
    std::uint64_t z = state_ += kIncrement;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }

  // Returns a number from 0 to bound - 1. All of them are equally likely. Draws again if the number falls into the
  // last, incomplete multiple of `bound`.
  std::uint64_t below(std::uint64_t bound) {
    const std::uint64_t incomplete = (UINT64_MAX % bound + 1) % bound;
    std::uint64_t drawn = next();
    while (drawn > UINT64_MAX - incomplete) drawn = next();
    return drawn % bound;
  }

  // Returns a number between -1 and 1. The number has 24 bits, so a float can represent it exactly.
  double symmetric() { return static_cast<double>(next() >> 40) / (1 << 23) - 1; }

 private:
  static constexpr std::uint64_t kIncrement = 0x9e3779b97f4a7c15;

  std::uint64_t state_;
};

// Returns the numbers 0 to size - 1 in the order of epoch `epoch`, which depends only on the seed and the epoch number.
// The order is ascending, or a Fisher-Yates shuffle (Knuth, "The art of computer programming", volume 2, algorithm P).
enum class EpochOrder { ascending, shuffled };
inline std::vector<std::int64_t> order_of_epoch(std::int64_t size, std::int64_t epoch, EpochOrder kind,
                                                std::uint64_t seed) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(size));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  if (kind == EpochOrder::ascending) return order;
  Random random(seed, static_cast<std::uint64_t>(epoch));
  for (std::size_t i = order.size(); i > 1; --i) {
    std::swap(order[i - 1], order[static_cast<std::size_t>(random.below(i))]);
  }
  return order;
}

}  // namespace detail
}  // namespace abi1
}  // namespace ronda

#endif  // RONDA_CLIENT_RONDA_TRAINING_RANDOM_HPP_
