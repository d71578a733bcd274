#include "bench/progress.h"

#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_format.h"

namespace ronda::bench {

std::string ProgressLine(double fraction, const std::string& label) {
  constexpr size_t kCells = 30;
  const double bounded = std::clamp(fraction, 0.0, 1.0);
  const auto filled = static_cast<size_t>(bounded * kCells);
  return absl::StrFormat("[%s%s] %3d %%  %s", std::string(filled, '#'), std::string(kCells - filled, ' '),
                         static_cast<int>(100 * bounded), label);
}

ProgressBar::ProgressBar(std::FILE* stream) : stream_(stream), is_terminal_(isatty(fileno(stream)) == 1) {}

void ProgressBar::Show(double fraction, const std::string& label) {
  if (!is_terminal_) return;
  std::fprintf(stream_, "\r\033[K%s", ProgressLine(fraction, label).c_str());
  std::fflush(stream_);
  is_shown_ = true;
}

void ProgressBar::Clear() {
  if (!is_shown_) return;
  std::fputs("\r\033[K", stream_);
  std::fflush(stream_);
  is_shown_ = false;
}

}  // namespace ronda::bench
