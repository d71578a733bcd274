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

// Splits a byte stream into lines.
//
// Progress bars redraw a line in place ("\r 10 %\r 20 %"). Only the final state of such a line is emitted; until then,
// progress() returns its current state. "\r\n" ends a line like "\n". Lines longer than kMaxLine are cut into pieces,
// so that memory is bounded for any stream.
//
// Thread-compatible.
class LineSplitter {
 public:
  static constexpr size_t kMaxLine = size_t{64} << 10;

  // Receives a line without its newline. `line` is valid only during the call.
  using Emit = absl::FunctionRef<void(absl::string_view line)>;

  // Adds the next bytes of the stream, and emits each line that is now complete.
  void Feed(absl::string_view bytes, Emit emit);

  // Must be called at the end of the stream. Emits the last line even without a newline.
  void Finish(Emit emit);

  // If the unfinished line has been redrawn, returns the text that a terminal would show now, or else nullopt. Valid
  // until the next call.
  std::optional<absl::string_view> progress() const;

  // Removes and returns the text of the unfinished line, unless the line has been redrawn. The bytes that follow start
  // a new line.
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

// Prints the output of all ranks as the launcher's output, in whole lines. Each line starts with a mark such as
// "[rank]<stdout>: ".
//
// On a terminal, a rank may redraw a line in place (a progress bar). The console draws a progress bar at the bottom of
// the screen, and prints other lines above it. It draws only one progress bar at a time, until that one is finished. If
// the output is not a terminal, the console prints only the final state of a progress bar.
//
// Thread-compatible. The queues and the calendar that are passed to the Console must outlive it.
class Console {
 public:
  struct Options {
    int rank_count = 0;
    LaunchOptions::LinePrefix line_prefix = LaunchOptions::LinePrefix::kRank;
    std::array<Medium, kStreamCount> media = {Medium::kFile, Medium::kFile};  // by Stream
    std::vector<Stream> hidden;  // of the ranks' streams: their lines are not shown, but last_error has them
  };

  // Lines go to `out` and `err`, which are the same queue if both lead to the same terminal.
  Console(const Options& options, OutputQueue* out, OutputQueue* err, const Clock* calendar);

  // Prepares for output from the ranks 0 to `rank`.
  void AddRank(RankId rank);

  // Adds the next bytes of the output of `rank`.
  void Feed(RankId rank, Stream stream, absl::string_view bytes);

  // Called when `rank` will not print anything more to `stream`. Prints the last line of the stream, even without a
  // newline.
  void Finish(RankId rank, Stream stream);

  // Prints the unfinished line of `rank` on the terminal, and leaves the cursor at its end, where the terminal shows
  // the answer for which the rank waits.
  void ShowPrompt(RankId rank);

  // Prints a line from the launcher to stderr: "rondarun: text".
  void Say(absl::string_view text);

  // Returns the line on the stderr of `rank` that best shows why the rank ended (LastError). Ignores information in
  // Ronda's log. The result is empty if there is no such line. Valid until the next call.
  absl::string_view last_error(RankId rank) const { return last_errors_[static_cast<size_t>(rank)].text(); }

 private:
  // The line that is being redrawn in place.
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
  // If the cursor is behind a rank's question, starts a new line before other lines are printed. The rank's own lines
  // follow the user's answer, so they need no new line.
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
