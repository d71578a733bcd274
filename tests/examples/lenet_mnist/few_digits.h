// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_TESTS_EXAMPLES_LENET_MNIST_FEW_DIGITS_H_
#define RONDA_TESTS_EXAMPLES_LENET_MNIST_FEW_DIGITS_H_

#include <cstdint>
#include <string>

#include "tests/examples/lenet_mnist/idx_files.h"

namespace lenet {

// A data directory with the first digits of the example's data, for tests that do not need all of them.
//
// Thread-compatible. The destructor removes the directory.
class FewDigits {
 public:
  FewDigits(std::uint32_t train_count, std::uint32_t test_count);

  const std::string& path() const { return directory_.path(); }

 private:
  void Write(const std::string& prefix, std::uint32_t count) const;

  TemporaryDirectory directory_;
};

}  // namespace lenet

#endif  // RONDA_TESTS_EXAMPLES_LENET_MNIST_FEW_DIGITS_H_
