#ifndef RONDA_RUNTIME_LAUNCH_CONSOLE_H_
#define RONDA_RUNTIME_LAUNCH_CONSOLE_H_

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "runtime/base/clock.h"
#include "runtime/base/types.h"
#include "runtime/launch/arguments.h"
#include "runtime/launch/line_splitter.h"
#include "runtime/launch/output_queue.h"
#include "runtime/launch/stream.h"

namespace ronda {

// Turns what the ranks print into the launcher's output: whole lines, each marked "[rank]<stdout>: ".
//
// On a terminal, a line that a rank redraws in place (a progress bar) is redrawn in place at the bottom: other lines
// come out above it. One such line is shown at a time; the first keeps its place until it is finished. Elsewhere only
// the last state of such a line comes out.
//
// Thread-compatible. Uses the queues and the clock given to it, which must outlive it.
class Console {
 public:
  struct Options {
    int rank_count = 0;
    LaunchOptions::LinePrefix line_prefix = LaunchOptions::LinePrefix::kRank;
    std::array<Medium, kStreamCount> media = {Medium::kFile, Medium::kFile};  // by Stream
    std::vector<Stream> hidden;  // of the ranks: lines are looked at, but not shown
  };

  // Lines go to `out` and `err`, which are the same queue where both are one terminal.
  Console(const Options& options, OutputQueue* out, OutputQueue* err, const Clock* clock);

  // Takes the next bytes that `rank` printed.
  void Feed(RankId rank, Stream stream, absl::string_view bytes);

  // `rank` prints no more on `stream`: its last line comes out even without a newline.
  void Finish(RankId rank, Stream stream);

  // Prints a line of the launcher's own to stderr, as "rondarun: text".
  void Say(absl::string_view text);

  // The last line of `rank` on stderr that is not blank; empty if there is none. Valid until the next call.
  absl::string_view last_error(RankId rank) const { return last_errors_[static_cast<size_t>(rank)]; }

 private:
  // The line being redrawn in place.
  struct Progress {
    RankId rank;
    Stream stream;
    std::string text;
    bool drawn;

    bool IsOf(RankId other_rank, Stream other_stream) const { return rank == other_rank && stream == other_stream; }
  };

  LineSplitter& splitter(RankId rank, Stream stream);
  OutputQueue* queue(Stream stream) const { return stream == Stream::kStdout ? out_ : err_; }
  bool IsHidden(Stream stream) const;
  std::string Prefix(RankId rank, Stream stream) const;
  void PrintLine(RankId rank, Stream stream, absl::string_view line);
  void UpdateProgress(RankId rank, Stream stream);
  void DrawProgress();
  void EraseProgress();

  const Options options_;
  OutputQueue* const out_;
  OutputQueue* const err_;
  const Clock* const clock_;
  std::vector<std::array<LineSplitter, kStreamCount>> splitters_;  // by rank
  std::vector<std::string> last_errors_;                           // by rank
  std::optional<Progress> progress_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_CONSOLE_H_
