#ifndef RONDA_BENCH_OUTPUT_H_
#define RONDA_BENCH_OUTPUT_H_

#include <array>
#include <string>

#include "runtime/base/unique_fd.h"

namespace ronda::bench {

// The environment variable that names the pipe on which rank 0 speaks to the process that has started the ranks.
inline constexpr char kOutputVariable[] = "RONDA_BENCH_OUTPUT";

// What rank 0 has to say, so that it comes out once and without a launcher's marks; of other ranks nothing does.
// Under ronda-bench's own launch it goes to the process that the user has started, which also draws the progress bar;
// elsewhere to stdout, and no progress is shown. Thread-compatible.
class Output {
 public:
  // `pipe` is the value of kOutputVariable; empty: stdout. A pipe that cannot be opened counts as none.
  Output(int rank, const std::string& pipe);

  void Print(const std::string& text);
  void Progress(double fraction, const std::string& label);

  // Whether somebody reads the pipe, to whom this rank can leave it to write its results to files.
  bool has_reader() const { return pipe_.valid(); }

  // A line of results as EncodeRow() writes it, and the distances between the cores before and after the measurements,
  // which come last. REQUIRES: has_reader().
  void Row(const std::string& row);
  void Distances(double before, double after);

 private:
  void Send(const std::string& line);

  const int rank_;
  UniqueFd pipe_;
};

// One message of a rank's Output to who reads the pipe.
struct OutputMessage {
  enum class Kind { kText, kProgress, kRow, kDistances } kind = Kind::kText;
  std::string text;  // to print, with its newline; or the progress' label; or a row
  double fraction = 0;
  std::array<double, 2> distances = {0, 0};
};
std::string EncodeLine(const OutputMessage& message);  // a line for each of the text's, each with its newline
OutputMessage DecodeLine(const std::string& line);     // without newline; what cannot be read is text

}  // namespace ronda::bench

#endif  // RONDA_BENCH_OUTPUT_H_
