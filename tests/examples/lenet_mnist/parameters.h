// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_TESTS_EXAMPLES_LENET_MNIST_PARAMETERS_H_
#define RONDA_TESTS_EXAMPLES_LENET_MNIST_PARAMETERS_H_

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <fstream>
#include <string>
#include <vector>

namespace lenet {

using Parameters = std::vector<float>;

// Returns the parameters that --dump-parameters has written. If the file has the wrong size, fails the test.
inline Parameters ReadParameters(const std::string& path) {
  constexpr std::size_t kParameterCount = 61706;
  Parameters parameters(kParameterCount);
  std::ifstream in(path, std::ios::binary);
  in.read(reinterpret_cast<char*>(parameters.data()), kParameterCount * sizeof(float));
  EXPECT_EQ(in.gcount(), kParameterCount * sizeof(float));
  EXPECT_EQ(in.peek(), std::ifstream::traits_type::eof());
  return parameters;
}

// Returns the Euclidean norm of a - b.
inline double Distance(const Parameters& a, const Parameters& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += std::pow(double{a[i]} - double{b[i]}, 2);
  return std::sqrt(sum);
}

inline double Norm(const Parameters& a) { return Distance(a, Parameters(a.size())); }

}  // namespace lenet

#endif  // RONDA_TESTS_EXAMPLES_LENET_MNIST_PARAMETERS_H_
