// SPDX-License-Identifier: Apache-2.0

// Functions shared by the programs that train LeNet, on a CPU or a GPU.
#ifndef RONDA_EXAMPLES_LENET_MNIST_PROGRAM_H_
#define RONDA_EXAMPLES_LENET_MNIST_PROGRAM_H_

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "examples/lenet_mnist/reporter.h"

namespace lenet {

// Returns how this rank reports: only rank 0 reports, with a progress bar if its output is a terminal. REQUIRES:
// ronda::init() has been called.
Reporter::Mode ReporterMode();

// Returns a text such as "2 ranks".
std::string RanksText();

// Returns a text such as "test accuracy 0.981 (2 ranks, 9 s)".
std::string AccuracyText(double accuracy, std::chrono::duration<double> duration);

// Writes all `arrays`, one after the other. Throws std::runtime_error.
void WriteParameters(const std::string& path, const std::vector<std::vector<float>>& arrays);

// Runs `body`, and returns the program's exit code: 2 after a std::invalid_argument, 1 after any other exception. After
// an exception, writes the program's name and the exception's text to stderr.
int ExitCodeOf(const std::string& program, const std::function<void()>& body);

}  // namespace lenet

#endif  // RONDA_EXAMPLES_LENET_MNIST_PROGRAM_H_
