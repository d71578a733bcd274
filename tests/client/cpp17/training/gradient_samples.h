// SPDX-License-Identifier: Apache-2.0

// Gradients for tests, and their reductions over the ranks.
#ifndef RONDA_TESTS_CLIENT_CPP17_TRAINING_GRADIENT_SAMPLES_H_
#define RONDA_TESTS_CLIENT_CPP17_TRAINING_GRADIENT_SAMPLES_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "client/ronda.hpp"
#include "client/ronda/training/random.hpp"

namespace ronda_test {

// Numbers between -1 and 1 that differ between ranks and steps. They are multiples of 2^-10, so their sums are exact.
template <class T>
std::vector<T> gradient_of(int step, std::size_t count) {
  ronda::detail::Random random(static_cast<std::uint64_t>(ronda::rank()), static_cast<std::uint64_t>(step) + 1);
  std::vector<T> gradient(count);
  for (T& element : gradient) element = static_cast<T>(std::round(1024 * random.symmetric()) / 1024);
  return gradient;
}

// Writes the values of gradient_of() into the memory of `gradient`.
template <class T>
void fill(std::vector<T>& gradient, int step) {
  const std::vector<T> values = gradient_of<T>(step, gradient.size());
  std::copy(values.begin(), values.end(), gradient.begin());
}

template <class T>
std::vector<T> mean_of(std::vector<T> values) {
  ronda::allreduce(ronda::tensor("ronda_test.mean", values));
  return values;
}

// Returns whether `values` is bitwise equal on all ranks.
template <class T>
bool same_on_all_ranks(const std::vector<T>& values) {
  const std::string own(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  const std::vector<std::string> all = ronda::allgather_object("ronda_test.bits", own);
  return std::all_of(all.begin(), all.end(), [&](const std::string& other) { return other == own; });
}

template <class T>
double distance(const std::vector<T>& a, const std::vector<T>& b) {
  double largest = a.size() == b.size() ? 0 : INFINITY;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    largest = std::max(largest, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  }
  return largest;
}

// Returns the elements of the first tensor in `state` whose name begins with `begin`, or an empty vector if there is
// none.
template <class T>
std::vector<T> part_of(const std::vector<ronda::Tensor>& state, const std::string& begin) {
  for (const ronda::Tensor& tensor : state) {
    if (tensor.name.compare(0, begin.size(), begin) != 0) continue;
    const T* const elements = static_cast<const T*>(tensor.data);
    return std::vector<T>(elements, elements + tensor.count());
  }
  return {};
}

// Copies the state `from` to the state `to`, as if it had been loaded from a checkpoint.
inline void copy_state(const std::vector<ronda::Tensor>& from, const std::vector<ronda::Tensor>& to) {
  for (std::size_t i = 0; i < from.size(); ++i) {
    const char* const bytes = static_cast<const char*>(from[i].data);
    std::copy(bytes, bytes + from[i].bytes(), static_cast<char*>(to[i].data));
  }
}

}  // namespace ronda_test

#endif  // RONDA_TESTS_CLIENT_CPP17_TRAINING_GRADIENT_SAMPLES_H_
