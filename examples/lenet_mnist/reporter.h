// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_EXAMPLES_LENET_MNIST_REPORTER_H_
#define RONDA_EXAMPLES_LENET_MNIST_REPORTER_H_

#include <cstddef>
#include <ostream>
#include <string>

namespace lenet {

// Shows the progress of training to the user. All ranks call the reporter, but only rank 0's reporter prints.
//
// Thread-compatible.
class Reporter {
 public:
  enum class Mode {
    kSilent,
    kLines,    // one line per epoch
    kTerminal  // with a progress bar
  };

  // The progress of training.
  struct Progress {
    std::size_t epoch = 0;  // counted from 1
    std::size_t epochs = 0;
    std::size_t step = 0;  // of the epoch; counted from 1
    std::size_t steps = 0;
    double loss = 0;  // mean since the epoch began
    double images_per_second = 0;
  };

  // `out` must outlive the reporter.
  Reporter(std::ostream* out, Mode mode) : out_(out), mode_(mode) {}

  // Prints a line of text.
  void Say(const std::string& line);

  // Called after each step; redraws the progress bar, at most a hundred times per epoch.
  void StepDone(const Progress& progress);

  // Replaces the progress bar with the line of the epoch.
  void EpochDone(const Progress& progress);

 private:
  std::ostream* const out_;
  const Mode mode_;
  std::size_t drawn_percent_ = 0;
};

}  // namespace lenet

#endif  // RONDA_EXAMPLES_LENET_MNIST_REPORTER_H_
