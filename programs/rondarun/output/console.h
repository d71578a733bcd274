// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_PROGRAMS_RONDARUN_OUTPUT_CONSOLE_H_
#define RONDA_PROGRAMS_RONDARUN_OUTPUT_CONSOLE_H_

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "programs/options/arguments.h"
#include "programs/options/launch_options.h"
#include "programs/rondarun/output/last_error.h"
#include "programs/rondarun/output/output_sinks.h"
#include "runtime/base/clock.h"
#include "runtime/base/types.h"

namespace ronda {

// Cuts a stream of bytes into lines.
//
// Progress bars redraw a line in place ("\r 10 %\r 20 %"). The splitter emits a progress bar only once, in its final
// state. Until the line has its final state, progress() returns the line's current state. "\r\n" ends a line like "\n".
// A line longer than kMaxLine is cut into pieces, so that memory is bounded for every stream.
//
// Thread-compatible.
class LineSplitter {
 public:
  static constexpr size_t kMaxLine = size_t{64} << 10;

  // Receives a line without its newline. `line` is valid only during the call.
  using Emit = absl::FunctionRef<void(absl::string_view line)>;

  // Adds the next bytes of the stream, and emits each line that is now complete.
  void Feed(absl::string_view bytes, Emit emit);

  // Call Finish at the end of the stream: it emits the last line even without a newline.
  void Finish(Emit emit);

  // If the unfinished line has been redrawn, returns the text that a terminal would show now; otherwise nullopt. Valid
  // until the next call.
  std::optional<absl::string_view> progress() const;

  // Removes and returns the text of the unfinished line, unless this line has been redrawn. The following bytes begin a
  // new line.
  std::string TakeUnfinished();

 private:
  void Append(absl::string_view text, Emit emit);
  void Redraw();
  void EndLine(Emit emit);
  absl::string_view visible() const { return text_.empty() ? previous_ : text_; }

  std::string text_;      // since the line began or was last redrawn
  std::string previous_;  // the text that the last redrawing replaces
  bool redrawn_ = false;  // this line has seen a '\r'
};

// Prints the output of all ranks as the output of the launcher, in whole lines. Each printed line begins with a mark
// such as "[rank]<stdout>: ".
//
// A rank may redraw a line in place on a terminal (a progress bar). The console draws a progress bar at the bottom of
// the screen, and prints other lines above the bar. The console draws only one progress bar at a time, until this
// progress bar is finished. If the output is not a terminal, the console prints only the last state of a progress bar.
//
// Thread-compatible. Console uses the queues and the calendar that it is given, which must outlive it.
class Console {
 public:
  struct Options {
    int rank_count = 0;
    LaunchOptions::LinePrefix line_prefix = LaunchOptions::LinePrefix::kRank;
    std::array<Medium, kStreamCount> media = {Medium::kFile, Medium::kFile};  // by Stream
    std::vector<Stream> hidden;  // of the ranks' streams: their lines are not shown, but last_error has them
  };

  // Lines go to `out` and `err`. `out` and `err` are the same queue if both lead to the same terminal.
  Console(const Options& options, OutputQueue* out, OutputQueue* err, const Clock* calendar);

  // Makes room for the output of the ranks 0 to `rank`.
  void AddRank(RankId rank);

  // Adds the next bytes of the output of `rank`.
  void Feed(RankId rank, Stream stream, absl::string_view bytes);

  // The caller reports that `rank` will print nothing more to `stream`. The console then prints the last line of the
  // stream, even without a newline.
  void Finish(RankId rank, Stream stream);

  // Prints the unfinished line of `rank` on the terminal, and leaves the cursor at its end. The rank waits for an
  // answer, and the terminal shows the answer at the cursor.
  void ShowPrompt(RankId rank);

  // Prints a line of the launcher to stderr: "rondarun: text".
  void Say(absl::string_view text);

  // Returns the line on the stderr of `rank` that best shows why the rank ended (LastError). Information in Ronda's log
  // is ignored. The result is empty if the rank has printed no such line. Valid until the next call.
  absl::string_view last_error(RankId rank) const { return last_errors_[static_cast<size_t>(rank)].text(); }

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
  // If the cursor stands after a rank's question, begins a new line before the other lines are printed. The rank's own
  // lines come after the user's answer, so they need no new line.
  void LeavePrompt(std::optional<RankId> rank, OutputQueue* queue);

  const Options options_;
  OutputQueue* const out_;
  OutputQueue* const err_;
  const Clock* const calendar_;
  std::vector<std::array<LineSplitter, kStreamCount>> splitters_;  // by rank
  std::vector<LastError> last_errors_;                             // by rank
  std::optional<Progress> progress_;
  std::optional<RankId> asking_;  // the rank with a question before the cursor
};

}  // namespace ronda

#endif  // RONDA_PROGRAMS_RONDARUN_OUTPUT_CONSOLE_H_
