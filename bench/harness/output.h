// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_BENCH_HARNESS_OUTPUT_H_
#define RONDA_BENCH_HARNESS_OUTPUT_H_

#include <array>
#include <cstdio>
#include <string>

#include "runtime/base/unique_fd.h"

namespace ronda::bench {

// The environment variable that names the pipe from rank 0 to the process that started the ranks.
inline constexpr char kOutputVariable[] = "RONDA_BENCH_OUTPUT";

// The output of a benchmark. Only rank 0 prints, and its lines do not get the launcher's prefixes. If ronda-bench
// started the ranks, the output goes to that process, which also draws the progress bar. If another launcher started
// them, the output goes to stdout, without a progress bar. Thread-compatible.
class Output {
 public:
  // `pipe` is the value of kOutputVariable. If `pipe` is empty or cannot be opened, the output goes to stdout.
  Output(int rank, const std::string& pipe);

  void Print(const std::string& text);
  void Progress(double fraction, const std::string& label);

  // Returns whether another process reads the pipe and writes the results to files.
  bool has_reader() const { return pipe_.valid(); }

  // Row() sends a result row that EncodeRow() has encoded. Peer() sends the name and version of a peer. Distances()
  // sends the results of CoreDistanceNanoseconds() before and after the measurements; call it last. REQUIRES:
  // has_reader().
  void Row(const std::string& row);
  void Peer(const std::string& description);
  void Distances(double before, double after);

 private:
  void Send(const std::string& line);

  const int rank_;
  UniqueFd pipe_;
};

// A message that travels through the pipe.
struct OutputMessage {
  enum class Kind { kText, kProgress, kRow, kPeer, kDistances } kind = Kind::kText;
  std::string text;  // to print, with its newline; or the progress' label; or a row; or a peer
  double fraction = 0;
  std::array<double, 2> distances = {0, 0};
};
std::string EncodeLine(const OutputMessage& message);  // a line for each line of the text, each with its newline
OutputMessage DecodeLine(const std::string& line);     // without newline; any line that is no message is text

// Returns a progress bar as one line: "[##### ] 50 % 64 KiB".
std::string ProgressLine(double fraction, const std::string& label);

// A progress bar on the last line of a terminal. Prints nothing if `stream` is not a terminal. Thread-compatible.
class ProgressBar {
 public:
  // Does not take ownership of `stream`.
  explicit ProgressBar(std::FILE* stream);
  ~ProgressBar() { Clear(); }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // Draws the bar. `label` names the current measurement. REQUIRES: 0 <= fraction <= 1.
  void Show(double fraction, const std::string& label);

  // Removes the bar so that other text can be printed; the next Show() draws it again.
  void Clear();

 private:
  std::FILE* const stream_;
  const bool is_terminal_;
  bool is_shown_ = false;
};

}  // namespace ronda::bench

#endif  // RONDA_BENCH_HARNESS_OUTPUT_H_
