#ifndef RONDA_RUNTIME_LAUNCH_LINE_SPLITTER_H_
#define RONDA_RUNTIME_LAUNCH_LINE_SPLITTER_H_

#include <cstddef>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"

namespace ronda {

// Cuts a stream of bytes into lines.
//
// A line that is redrawn in place ("\r 10 %\r 20 %", as progress bars do) counts as one line: its last state is the
// line, and progress() is its state so far. "\r\n" ends a line as "\n" does. A line longer than kMaxLine is cut into
// pieces, so that memory is bounded whatever the stream carries.
//
// Thread-compatible.
class LineSplitter {
 public:
  static constexpr size_t kMaxLine = size_t{64} << 10;

  // Receives a line, without its end; valid during the call only.
  using Emit = absl::FunctionRef<void(absl::string_view line)>;

  // Takes the next bytes of the stream and emits the lines that they complete.
  void Feed(absl::string_view bytes, Emit emit);

  // The stream has ended: emits the last line if it lacks its newline.
  void Finish(Emit emit);

  // What a terminal would show of the unfinished line, if that line has been redrawn; else nullopt. Valid until the
  // next call.
  std::optional<absl::string_view> progress() const;

 private:
  void Append(absl::string_view text, Emit emit);
  void Redraw();
  void EndLine(Emit emit);
  absl::string_view visible() const { return text_.empty() ? previous_ : text_; }

  std::string text_;      // since the line began or was last redrawn
  std::string previous_;  // what the last redrawing replaces
  bool redrawn_ = false;  // this line has seen a '\r'
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_LINE_SPLITTER_H_
