// SPDX-License-Identifier: Apache-2.0

#include "examples/lenet_mnist/program.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iostream>
#include <stdexcept>

#include "client/ronda.hpp"

namespace lenet {
namespace {

constexpr int kExitFailure = 1;
constexpr int kExitUsage = 2;

}  // namespace

// Under rondarun the program's stdout is a pipe, so rondarun tells the program whether rondarun's own output is a
// terminal.
Reporter::Mode ReporterMode() {
  if (ronda::rank() != 0) return Reporter::Mode::kSilent;
  const char* const launcher_says = std::getenv("RONDA_OUTPUT_IS_TERMINAL");
  const bool is_terminal = launcher_says != nullptr ? std::string(launcher_says) == "1" : isatty(STDOUT_FILENO) != 0;
  return is_terminal ? Reporter::Mode::kTerminal : Reporter::Mode::kLines;
}

std::string RanksText() { return std::to_string(ronda::size()) + (ronda::size() == 1 ? " rank" : " ranks"); }

std::string AccuracyText(double accuracy, std::chrono::duration<double> duration) {
  char text[80];
  std::snprintf(text, sizeof(text), "test accuracy %.3f (%s, %.0f s)", accuracy, RanksText().c_str(), duration.count());
  return text;
}

void WriteParameters(const std::string& path, const std::vector<std::vector<float>>& arrays) {
  std::ofstream file(path, std::ios::binary);
  for (const std::vector<float>& array : arrays) {
    file.write(reinterpret_cast<const char*>(array.data()), static_cast<std::streamsize>(array.size() * sizeof(float)));
  }
  file.close();
  if (!file) throw std::runtime_error(path + ": cannot write the parameters there");
}

int ExitCodeOf(const std::string& program, const std::function<void()>& body) {
  try {
    body();
    return 0;
  } catch (const std::invalid_argument& error) {
    std::cerr << program << ": " << error.what() << std::endl;
    return kExitUsage;
  } catch (const std::exception& error) {
    std::cerr << program << ": " << error.what() << std::endl;
    return kExitFailure;
  }
}

}  // namespace lenet
