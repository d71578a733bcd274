#ifndef RONDA_BENCH_PROGRESS_H_
#define RONDA_BENCH_PROGRESS_H_

#include <cstdio>
#include <string>

namespace ronda::bench {

// The line of a progress bar: "[#####     ]  50 %  64 KiB".
std::string ProgressLine(double fraction, const std::string& label);

// A bar on the last line of a terminal that says how far a benchmark is; nothing if `stream` is no terminal.
// Thread-compatible.
class ProgressBar {
 public:
  // Does not own `stream`.
  explicit ProgressBar(std::FILE* stream);
  ~ProgressBar() { Clear(); }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // 0 <= fraction <= 1. `label` says what is being measured.
  void Show(double fraction, const std::string& label);

  // Takes the bar away, so that a line can be printed; the next Show() puts it back.
  void Clear();

 private:
  std::FILE* const stream_;
  const bool is_terminal_;
  bool is_shown_ = false;
};

}  // namespace ronda::bench

#endif  // RONDA_BENCH_PROGRESS_H_
